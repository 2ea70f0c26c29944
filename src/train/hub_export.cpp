#include "train/hub_export.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/interrupt.h"
#include "io/atomic_file.h"
#include "io/hub/hub_writer.h"
#include "io/model_layers.h"
#include "model/stored_layer.h"
#include "train/hub_adapter.h"
#include "train/hub_source.h"
#include "train/hub_tokenizer.h"
#include "train/model_loading.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using File = CheckpointSink::File;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLongestKept = 1 << 20;

std::string read_kept(const fs::path& kept, const char* name) {
  return !kept.empty() && fs::exists(kept / name) ? read_file(kept / name, kLongestKept) : "";
}

// A Mistral stays one where it was imported as one.
std::string type_of(const Config& config, const std::string& kept_config) {
  const Json kept = Json::parse(kept_config, nullptr, false);
  if (config.model.arch == "llama" && kept.is_object() && kept.contains("model_type") &&
      kept.at("model_type") == "mistral")
    return "mistral";
  return config.model.arch;
}

// What the model is to filigree: nothing else in the folder says how its zeros came about.
std::string own_description(const Config& config, const CheckpointReader& checkpoint) {
  Json layers = Json::array();
  for (const LinearShape& layer : linear_layers(config.model)) {
    const LayerWeights weights = layer_weights(config.weights, layer.name);
    if (weights.method == "dense" || checkpoint.state().dense_phase) continue;
    Json entry = {{"name", layer.name}, {"method", weights.method}};
    if (weights.method == "block") {
      entry["block"] = to_string(weights.block);
      entry["density"] = weights.density;
    } else {
      entry["pattern"] = to_string(weights.pattern);
    }
    layers.push_back(std::move(entry));
  }
  const Json json = {
      {"step", checkpoint.state().step}, {"tokenizer", checkpoint.state().tokenizer}, {"sparse_layers", layers}};
  return json.dump(2) + "\n";
}

void write_weights(HubExported& result, const fs::path& folder, const HubExportOptions& options, const Config& config,
                   const CheckpointReader& checkpoint, const std::vector<HubArray>& arrays) {
  const bool merge = checkpoint.state().adapters && options.adapters == HubAdapters::merged;
  const auto device = Device::cpu();
  HubWriter writer(folder, hub_tensors(arrays, result.dtype), options.shard_bytes);
  for (const HubArray& array : arrays) {
    if (interrupt_requested()) throw Interrupted("interrupted; nothing was kept");
    const Shape shape = array.columns == 0 ? Shape{array.rows} : Shape{array.rows, array.columns};
    const OwnedTensor values = device->memory().tensor(Purpose::workspace, DType::f32, shape);
    if (const std::string layer = layer_of(array); !layer.empty()) {
      const bool sparse = !is_stored_dense(checkpoint, layer);
      load_dense_matrix(*device, checkpoint, config, {layer, array.rows, array.columns}, merge && sparse, values);
    } else {
      checkpoint.load(File::model, array.name, values);
    }
    write_hub_array(writer, array, values, result.dtype);
  }
  writer.finish();
  result.files = writer.files();
}

}  // namespace

HubExported export_hub_folder(const HubExportOptions& options) {
  require_user(!fs::exists(fs::symlink_status(options.out)),
               options.out.string() + ": exists already; choose another --out");
  const CheckpointReader checkpoint(find_checkpoint(options.from));
  const Config config = checkpoint_config(checkpoint.folder(), {});
  const fs::path kept = kept_hub_files(checkpoint.folder());
  const std::string kept_config = read_kept(kept, kHubConfigFile);
  HubExported result{.checkpoint = checkpoint.folder(),
                     .type = type_of(config, kept_config),
                     .dtype = config.run.precision,
                     .adapters = checkpoint.state().adapters,
                     .notes = {}};
  require_user(result.adapters || options.adapters == HubAdapters::merged,
               "--adapters peft: " + checkpoint.folder().string() + " has no adapters");
  const fs::path parent = fs::absolute(options.out).lexically_normal().parent_path();
  require_user(fs::is_directory(parent), options.out.string() + ": there is no folder " + parent.string());

  std::unique_ptr<Tokenizer> tokenizer;
  if (fs::exists(checkpoint.folder() / kTokenizerFile))
    tokenizer = load_tokenizer(checkpoint.folder() / kTokenizerFile);
  const std::string own_config =
      write_hub_config(config.model, result.type, result.dtype, tokenizer ? tokenizer->end_of_text() : -1, kept_config);
  const std::vector<HubArray> arrays = hub_arrays(
      {.type = result.type, .model = config.model, .stored_context = config.model.context, .unknown_keys = {}});

  AtomicFolder target(options.out);
  write_weights(result, target.temporary(), options, config, checkpoint, arrays);
  if (options.adapters == HubAdapters::peft)
    write_peft_adapter(target.temporary() / "adapter", fs::absolute(options.out).lexically_normal(), config, checkpoint,
                       arrays);
  // The model's own files first: what was kept is not written over.
  write_file_atomically(target.temporary() / kHubConfigFile, own_config);
  write_file_atomically(target.temporary() / "filigree.json", own_description(config, checkpoint));
  write_hub_tokenizer(target.temporary(), kept, tokenizer.get(), result.notes);
  write_generation_config(target.temporary(), kept, tokenizer.get());
  target.commit();
  return result;
}

}  // namespace filigree
