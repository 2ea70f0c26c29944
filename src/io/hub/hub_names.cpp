#include "io/hub/hub_names.h"

#include <array>
#include <utility>

namespace filigree {
namespace {

// What one layer's array is called on both sides.
struct Names {
  const char* ours;
  std::vector<const char*> theirs;  // one a part
};

struct BlockNames {
  const char* folder;  // before the block's number
  std::array<Names, 2> norms;
  std::array<Names, 4> linears;  // qkv, out, up, down
};

BlockNames block_names(const std::string& arch) {
  if (arch == "gpt2")
    return {.folder = "h.",
            .norms = {{{"norm1", {"ln_1"}}, {"norm2", {"ln_2"}}}},
            .linears = {{{"attention.qkv", {"attn.c_attn"}},
                         {"attention.out", {"attn.c_proj"}},
                         {"mlp.up", {"mlp.c_fc"}},
                         {"mlp.down", {"mlp.c_proj"}}}}};
  const std::vector<const char*> qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  if (arch == "opt")
    return {.folder = "decoder.layers.",
            .norms = {{{"norm1", {"self_attn_layer_norm"}}, {"norm2", {"final_layer_norm"}}}},
            .linears = {{{"attention.qkv", qkv},
                         {"attention.out", {"self_attn.out_proj"}},
                         {"mlp.up", {"fc1"}},
                         {"mlp.down", {"fc2"}}}}};
  return {.folder = "layers.",
          .norms = {{{"norm1", {"input_layernorm"}}, {"norm2", {"post_attention_layernorm"}}}},
          .linears = {{{"attention.qkv", qkv},
                       {"attention.out", {"self_attn.o_proj"}},
                       {"mlp.up", {"mlp.gate_proj", "mlp.up_proj"}},
                       {"mlp.down", {"mlp.down_proj"}}}}};
}

class Arrays {
 public:
  explicit Arrays(const HubModel& hub) : hub_(hub), model_(hub.model), prefix_(hub_prefix(hub)) {}

  std::vector<HubArray> make() {
    const bool gpt2 = model_.arch == "gpt2", llama = model_.arch == "llama";
    const std::string top = prefix_ + (model_.arch == "opt" ? "decoder." : "");
    whole("embedding.tokens", model_.vocab, model_.width, top + (gpt2 ? "wte.weight" : "embed_tokens.weight"));
    if (!llama) positions(top + (gpt2 ? "wpe.weight" : "embed_positions.weight"));
    const BlockNames names = block_names(model_.arch);
    for (std::int64_t block = 0; block < model_.layers; ++block) {
      const std::string ours = "blocks." + std::to_string(block) + ".";
      const std::string theirs = prefix_ + names.folder + std::to_string(block) + ".";
      const std::int64_t head = model_.width / model_.heads, kv = model_.kv_heads * head;
      norm(ours + names.norms[0].ours, theirs + names.norms[0].theirs[0]);
      if (gpt2)
        linear(ours, theirs, names.linears[0], model_.width, {model_.width + 2 * kv});
      else
        linear(ours, theirs, names.linears[0], model_.width, {model_.width, kv, kv});
      linear(ours, theirs, names.linears[1], model_.width, {model_.width});
      norm(ours + names.norms[1].ours, theirs + names.norms[1].theirs[0]);
      linear(ours, theirs, names.linears[2], model_.width,
             llama ? std::vector{model_.ffn, model_.ffn} : std::vector{model_.ffn});
      linear(ours, theirs, names.linears[3], model_.ffn, {model_.width});
    }
    norm("norm", top + (gpt2 ? "ln_f" : llama ? "norm" : "final_layer_norm"));
    if (!model_.tied) whole("head.weight", model_.vocab, model_.width, kHubHead);
    return std::move(arrays_);
  }

 private:
  void whole(const std::string& ours, std::int64_t rows, std::int64_t columns, const std::string& theirs) {
    arrays_.push_back({ours, rows, columns, {{.name = theirs, .rows = rows, .stored = rows}}});
  }
  void positions(const std::string& theirs) {
    const std::int64_t unused = model_.arch == "opt" ? 2 : 0;
    arrays_.push_back(
        {"embedding.positions",
         model_.context,
         model_.width,
         {{.name = theirs, .rows = model_.context, .first = unused, .stored = unused + hub_.stored_context}}});
  }
  void norm(const std::string& ours, const std::string& theirs) {
    whole(ours + ".gain", model_.width, 0, theirs + ".weight");
    if (model_.arch != "llama") whole(ours + ".bias", model_.width, 0, theirs + ".bias");
  }
  // rows: of each part.
  void linear(const std::string& ours, const std::string& theirs, const Names& names, std::int64_t inputs,
              const std::vector<std::int64_t>& rows) {
    const bool transposed = model_.arch == "gpt2";
    HubArray weight{.name = ours + names.ours + ".weight", .columns = inputs, .parts = {}};
    HubArray bias{.name = ours + names.ours + ".bias", .parts = {}};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string name = theirs + names.theirs[i];
      weight.parts.push_back({.name = name + ".weight", .rows = rows[i], .stored = rows[i], .transposed = transposed});
      bias.parts.push_back({.name = name + ".bias", .rows = rows[i], .stored = rows[i]});
      weight.rows += rows[i];
    }
    bias.rows = weight.rows;
    arrays_.push_back(std::move(weight));
    if (model_.arch != "llama") arrays_.push_back(std::move(bias));
  }

  const HubModel& hub_;
  const ModelConfig& model_;
  std::string prefix_;
  std::vector<HubArray> arrays_;
};

// "h.12.attn.bias" with the number taken out: "h..attn.bias".
std::string without_number(const std::string& name, const std::string& folder) {
  if (!name.starts_with(folder)) return name;
  const std::size_t end = name.find_first_not_of("0123456789", folder.size());
  return end == std::string::npos ? name : folder + name.substr(end);
}

}  // namespace

std::vector<std::int64_t> HubArray::stored_shape(const HubPart& part) const {
  if (columns == 0) return {part.stored};
  if (part.transposed) return {columns, part.stored};
  return {part.stored, columns};
}

std::vector<HubArray> hub_arrays(const HubModel& model) {
  return Arrays(model).make();
}

std::string hub_prefix(const HubModel& model) {
  return model.model.arch == "gpt2" ? "transformer." : "model.";
}

bool is_hub_buffer(const HubModel& model, const std::string& name) {
  const std::string prefix = hub_prefix(model);
  const std::string rest = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  const std::string plain = without_number(rest, block_names(model.model.arch).folder);
  if (model.model.arch == "gpt2") return plain == "h..attn.bias" || plain == "h..attn.masked_bias";
  return model.model.arch == "llama" &&
         (plain == "layers..self_attn.rotary_emb.inv_freq" || plain == "rotary_emb.inv_freq");
}

}  // namespace filigree
