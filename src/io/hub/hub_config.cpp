#include "io/hub/hub_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace filigree {
namespace {

using Json = nlohmann::ordered_json;

// Far above any model, low enough that products of two never overflow.
constexpr std::int64_t kMostLayers = 1024, kMostWidth = 1 << 20, kMostRows = 1 << 24;
constexpr double kOptEpsilon = 1e-5;  // PyTorch's default, which the OPT classes take

// Keys that change nothing in what a trained model computes.
constexpr const char* kHarmless[] = {"_name_or_path",
                                     "architectures",
                                     "attention_dropout",
                                     "attn_pdrop",
                                     "attn_implementation",
                                     "auto_map",
                                     "bos_token_id",
                                     "chunk_size_feed_forward",
                                     "classifier_dropout",
                                     "decoder_start_token_id",
                                     "do_sample",
                                     "dropout",
                                     "dtype",
                                     "embd_pdrop",
                                     "eos_token_id",
                                     "finetuning_task",
                                     "forced_bos_token_id",
                                     "forced_eos_token_id",
                                     "gradient_checkpointing",
                                     "id2label",
                                     "init_std",
                                     "initializer_range",
                                     "is_decoder",
                                     "label2id",
                                     "layerdrop",
                                     "max_length",
                                     "min_length",
                                     "model_type",
                                     "n_ctx",
                                     "num_beams",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "pad_token_id",
                                     "prefix",
                                     "pretraining_tp",
                                     "problem_type",
                                     "reorder_and_upcast_attn",
                                     "resid_pdrop",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "sep_token_id",
                                     "summary_activation",
                                     "summary_first_dropout",
                                     "summary_proj_to_labels",
                                     "summary_type",
                                     "summary_use_proj",
                                     "task_specific_params",
                                     "temperature",
                                     "tokenizer_class",
                                     "top_k",
                                     "top_p",
                                     "torch_dtype",
                                     "torchscript",
                                     "transformers_version",
                                     "unk_token_id",
                                     "use_bfloat16",
                                     "use_cache"};

// The file's values, each asked for by name.
class Values {
 public:
  Values(std::string_view text, const std::string& file) : file_(file) {
    json_ = Json::parse(text, nullptr, false);
    if (json_.is_discarded()) throw UserError(file_ + ": not valid JSON, or cut short");
    if (!json_.is_object()) throw UserError(file_ + ": expected an object in {}, as Hugging Face models have it");
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw UserError(file_ + ": " + key + ": found " + (json_.contains(key) ? shown(json_.at(key)) : "nothing") + ", " +
                    why);
  }

  // Whether the key is there with a value; from now on it counts as known.
  bool has(const std::string& key) {
    known_.insert(key);
    return json_.contains(key) && !json_.at(key).is_null();
  }
  const Json& at(const std::string& key) const { return json_.at(key); }

  std::int64_t count(const std::string& key, std::int64_t most) {
    if (!has(key)) throw UserError(file_ + ": " + key + " is missing");
    const Json& value = json_.at(key);
    // Above the largest int64, value.get would wrap around.
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                      value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (!fits) refuse(key, "expected a whole number from 1 to " + std::to_string(most));
    return value.get<std::int64_t>();
  }
  std::int64_t count(const std::string& key, std::int64_t most, std::int64_t without) {
    return has(key) ? count(key, most) : without;
  }
  double positive(const std::string& key, double without) {
    return has(key) ? positive_number(json_.at(key), key) : without;
  }
  double positive_number(const Json& value, const std::string& key) const {
    const double number = value.is_number() ? value.get<double>() : 0.0;
    if (!(number > 0.0) || !std::isfinite(number)) refuse(key, "expected a number above 0");
    return number;
  }
  bool flag(const std::string& key, bool without) {
    if (!has(key)) return without;
    if (!json_.at(key).is_boolean()) refuse(key, "expected true or false");
    return json_.at(key).get<bool>();
  }
  std::string text(const std::string& key, const std::string& without) {
    if (!has(key)) return without;
    if (!json_.at(key).is_string()) refuse(key, "expected a text");
    return json_.at(key).get<std::string>();
  }
  // The only value that filigree computes; `without` is what a missing key stands for.
  void only(const std::string& key, bool right, bool without, const std::string& why) {
    if (flag(key, without) != right) refuse(key, why);
  }
  void only(const std::string& key, std::initializer_list<const char*> right, const std::string& without) {
    const std::string found = text(key, without);
    std::string names;
    for (const char* name : right) {
      if (found == name) return;
      names += (names.empty() ? "" : " or ") + std::string(name);
    }
    refuse(key, "filigree has " + names + " here");
  }

  std::vector<std::string> unknown() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : json_.items())
      if (!known_.contains(key) && std::find(std::begin(kHarmless), std::end(kHarmless), key) == std::end(kHarmless))
        keys.push_back(key.substr(0, 80));
    return keys;
  }

 private:
  // A list may be deeper than the stack that it would take to show or copy it.
  static std::string shown(const Json& value) {
    if (value.is_structured()) return value.is_array() ? "a list" : "an object";
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 80) text = text.substr(0, 80) + "...";
    return text;
  }

  std::string file_;
  Json json_;
  std::set<std::string> known_;
};

void read_gpt2(Values& values, ModelConfig& model) {
  model.arch = "gpt2";
  model.layers = values.count("n_layer", kMostLayers);
  model.width = values.count("n_embd", kMostWidth);
  model.heads = model.kv_heads = values.count("n_head", kMostWidth);
  model.ffn = values.count("n_inner", kMostRows, 4 * model.width);
  model.context = values.count("n_positions", kMostRows);
  model.norm_epsilon = values.positive("layer_norm_epsilon", 1e-5);
  model.tied = values.flag("tie_word_embeddings", true);
  // Three names of one formula.
  values.only("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}, "gelu_new");
  values.only("scale_attn_weights", true, true, "filigree divides by the root of the head size");
  values.only("scale_attn_by_inverse_layer_idx", false, false, "filigree does not scale attention by the layer");
  values.only("add_cross_attention", false, false, "filigree has no encoder to attend to");
}

void read_opt(Values& values, ModelConfig& model) {
  model.arch = "opt";
  model.layers = values.count("num_hidden_layers", kMostLayers);
  model.width = values.count("hidden_size", kMostWidth);
  model.heads = model.kv_heads = values.count("num_attention_heads", kMostWidth);
  model.ffn = values.count("ffn_dim", kMostRows);
  model.context = values.count("max_position_embeddings", kMostRows);
  model.norm_epsilon = kOptEpsilon;
  model.tied = values.flag("tie_word_embeddings", true);
  values.only(
      "do_layer_norm_before", true, true,
      "this model (OPT 350M) normalises behind its layers, which filigree has no blocks for; the other sizes of "
      "OPT can be imported");
  if (values.count("word_embed_proj_dim", kMostWidth, model.width) != model.width)
    values.refuse("word_embed_proj_dim", "this model projects its embedding to hidden_size = " +
                                             std::to_string(model.width) + ", which filigree does not");
  values.only("activation_function", {"relu"}, "relu");
  values.only("enable_bias", true, true, "filigree's OPT has biases");
  values.only("layer_norm_elementwise_affine", true, true, "filigree's norms have gains and biases");
  values.only("_remove_final_layer_norm", false, false, "filigree's OPT has a norm before the head");
}

void read_rotary(Values& values, ModelConfig& model) {
  model.rope_base = values.positive("rope_theta", 10000.0);
  const auto scaled = [&](const char* key) {
    values.refuse(key,
                  "filigree has no scaled rotary positions (linear, dynamic, yarn, llama3, ...): only models of the "
                  "type default can be imported");
  };
  for (const char* key : {"rope_parameters", "rope_scaling"}) {  // by version of transformers
    if (!values.has(key)) continue;
    const Json& rotary = values.at(key);
    if (!rotary.is_object()) values.refuse(key, "expected an object");
    for (const auto& [name, value] : rotary.items()) {
      if (name == "rope_theta")
        model.rope_base = values.positive_number(value, key);
      else if (name != "rope_type" && name != "type")
        scaled(key);
      else if (value != "default")
        scaled(key);
    }
  }
  if (values.positive("partial_rotary_factor", 1.0) != 1.0)
    values.refuse("partial_rotary_factor", "filigree turns whole heads");
}

void read_llama(Values& values, ModelConfig& model, bool mistral) {
  model.arch = "llama";
  model.layers = values.count("num_hidden_layers", kMostLayers);
  model.width = values.count("hidden_size", kMostWidth);
  model.heads = values.count("num_attention_heads", kMostWidth);
  model.kv_heads = values.count("num_key_value_heads", kMostWidth, mistral ? 8 : model.heads);
  model.ffn = values.count("intermediate_size", kMostRows);
  model.context = values.count("max_position_embeddings", kMostRows);
  model.norm_epsilon = values.positive("rms_norm_eps", 1e-6);
  model.tied = values.flag("tie_word_embeddings", false);
  read_rotary(values, model);
  values.only("hidden_act", {"silu"}, "silu");
  for (const char* key : {"attention_bias", "mlp_bias"})
    values.only(key, false, false, "filigree's LLaMA has no biases");
  if (model.width % model.heads == 0 && values.has("head_dim") &&
      values.count("head_dim", kMostWidth) != model.width / model.heads)
    values.refuse("head_dim",
                  "filigree's heads share hidden_size evenly: " + std::to_string(model.width / model.heads) + " each");
}

// Attention here is over the whole context: the same thing where no position is further back than the window.
void check_window(Values& values, std::int64_t context) {
  const std::int64_t window =
      values.has("sliding_window") ? values.count("sliding_window", std::numeric_limits<std::int64_t>::max()) : context;
  if (window < context)
    values.refuse("sliding_window",
                  "but the context is " + std::to_string(context) +
                      " tokens, and filigree attends to all of it: take the model with a context of at most " +
                      std::to_string(window) + " (import --context " + std::to_string(window) +
                      "; model.context where a configuration starts from this folder)");
}

void check_shape(const ModelConfig& model, const std::string& file) {
  const auto refuse = [&](const std::string& text) { throw UserError(file + ": " + text); };
  const std::string width = "a width of " + std::to_string(model.width);
  const std::string heads = std::to_string(model.heads) + " heads";
  if (model.width % model.heads != 0) refuse(width + " does not divide into " + heads);
  if (model.heads % model.kv_heads != 0)
    refuse(heads + " do not share " + std::to_string(model.kv_heads) + " key and value heads evenly");
  if (model.arch == "llama" && model.width / model.heads % 2 != 0)
    refuse("heads of " + std::to_string(model.width / model.heads) + " channels, but rotary positions turn pairs");
}

// null, a number, or several that end a text.
bool is_token_id(const Json& value) {
  const auto number = [](const Json& one) { return one.is_number_integer(); };
  return value.is_null() || number(value) || (value.is_array() && std::all_of(value.begin(), value.end(), number));
}

}  // namespace

HubModel parse_hub_config(std::string_view text, const std::string& file, std::int64_t context) {
  Values values(text, file);
  HubModel result;
  ModelConfig& model = result.model;
  result.type = values.text("model_type", "");
  if (result.type == "gpt2")
    read_gpt2(values, model);
  else if (result.type == "opt")
    read_opt(values, model);
  else if (result.type == "llama" || result.type == "mistral")
    read_llama(values, model, result.type == "mistral");
  else
    values.refuse("model_type", "filigree imports gpt2, opt, llama and mistral");
  if (values.has("quantization_config"))
    values.refuse("quantization_config", "filigree imports weights in fp32, bf16 and fp16 only");
  model.vocab = values.count("vocab_size", kMostRows);
  check_shape(model, file);
  result.stored_context = model.context;
  if (context > model.context)
    throw UserError(file + ": a context of " + std::to_string(context) + " tokens was asked for, but the model has " +
                    std::to_string(model.context) + " positions");
  if (context > 0) model.context = context;
  if (result.type == "mistral") check_window(values, model.context);
  result.unknown_keys = values.unknown();
  return result;
}

std::string write_hub_config(const ModelConfig& model, const std::string& type, DType dtype, std::int64_t end_of_text,
                             const std::string& kept) {
  const Json end = end_of_text >= 0 ? Json(end_of_text) : Json(nullptr);
  Json json;
  if (type == "gpt2") {
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", type},
            {"activation_function", "gelu_new"},
            {"n_layer", model.layers},
            {"n_embd", model.width},
            {"n_head", model.heads},
            {"n_inner", model.ffn},
            {"n_positions", model.context},
            {"n_ctx", model.context},
            {"layer_norm_epsilon", model.norm_epsilon},
            {"attn_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"resid_pdrop", 0.0}};
  } else if (type == "opt") {
    require_user(model.norm_epsilon == kOptEpsilon,
                 "model.norm_epsilon: " + Json(model.norm_epsilon).dump() +
                     ", but Hugging Face's OPT has 1e-5 and no key for another one: this model cannot be exported");
    json = {{"architectures", {"OPTForCausalLM"}},
            {"model_type", type},
            {"activation_function", "relu"},
            {"num_hidden_layers", model.layers},
            {"hidden_size", model.width},
            {"word_embed_proj_dim", model.width},
            {"num_attention_heads", model.heads},
            {"ffn_dim", model.ffn},
            {"max_position_embeddings", model.context},
            {"do_layer_norm_before", true},
            {"dropout", 0.0}};
  } else {
    json = {{"architectures", {type == "mistral" ? "MistralForCausalLM" : "LlamaForCausalLM"}},
            {"model_type", type},
            {"hidden_act", "silu"},
            {"num_hidden_layers", model.layers},
            {"hidden_size", model.width},
            {"num_attention_heads", model.heads},
            {"num_key_value_heads", model.kv_heads},
            {"head_dim", model.width / model.heads},
            {"intermediate_size", model.ffn},
            {"max_position_embeddings", model.context},
            {"rms_norm_eps", model.norm_epsilon},
            // The first form is read by all versions of transformers, the second is what version 5 writes.
            {"rope_theta", model.rope_base},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", model.rope_base}}}};
    if (type == "mistral") json["sliding_window"] = nullptr;
  }
  json["vocab_size"] = model.vocab;
  json["tie_word_embeddings"] = model.tied;
  json["bos_token_id"] = end;
  json["eos_token_id"] = end;
  if (type == "opt") json["pad_token_id"] = end;  // the class has another default, which may be no id of this model
  const Json before = Json::parse(kept, nullptr, false);
  if (before.is_object())
    for (const char* id : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (before.contains(id) && is_token_id(before.at(id))) json[id] = before.at(id);
  json["torch_dtype"] = dtype == DType::bf16 ? "bfloat16" : "float32";
  return json.dump(2) + "\n";
}

}  // namespace filigree
