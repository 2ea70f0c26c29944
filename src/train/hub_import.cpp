#include "train/hub_import.h"

#include "core/interrupt.h"
#include "io/config_toml.h"
#include "io/model_presets.h"
#include "train/checkpoint.h"
#include "train/hub_source.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using File = CheckpointSink::File;

DType stored_as(const HubArray& array, DType precision) {
  return array.columns == 0 ? DType::f32 : precision;  // biases and gains are fp32 in every model
}

Shape shape_of(const HubArray& array) {
  return array.columns == 0 ? Shape{array.rows} : Shape{array.rows, array.columns};
}

// A configuration needs steps and a batch: an imported model has made none, and has no data.
Config checkpoint_configuration(const HubSource& source, DType precision) {
  Config config = source.config();
  config.run.precision = precision;
  config.train.steps = 1;
  config.train.batch_tokens = config.model.context;
  return config;
}

}  // namespace

HubImported import_hub_folder(const HubImportOptions& options) {
  require_user(fs::exists(options.from / kHubConfigFile),
               options.from.string() + ": no Hugging Face folder: there is no " + kHubConfigFile + " in it");
  require_user(!fs::exists(fs::symlink_status(options.out)),
               options.out.string() + ": exists already; choose another --out");
  const HubSource source(options.from, options.context);
  const HubWeights& weights = source.weights();
  HubImported result{.hub = weights.model(),
                     .precision = options.precision.value_or(weights.precision()),
                     .parameters = parameter_count(weights.model().model),
                     .tokenizer = {},
                     .notes = {}};
  for (const std::string& key : result.hub.unknown_keys)
    result.notes.push_back((options.from / kHubConfigFile).string() + ": " + key +
                           " is no key that filigree knows; it was passed over");
  const HubTokenizer found = find_hub_tokenizer(options.from, result.hub.model.vocab);
  if (found.tokenizer)
    result.tokenizer = found.tokenizer->name();
  else
    result.notes.push_back("no tokenizer was imported, so that the model reads and writes ids only: " + found.why_not);

  const fs::path parent = fs::absolute(options.out).lexically_normal().parent_path();
  require_user(fs::is_directory(parent), options.out.string() + ": there is no folder " + parent.string());
  CheckpointWriter writer(options.out);
  for (const HubArray& array : weights.arrays())
    writer.declare(File::model, array.name, stored_as(array, result.precision), shape_of(array));
  std::vector<std::byte> staged;
  for (const HubArray& array : weights.arrays()) {
    if (interrupt_requested()) throw Interrupted("interrupted; nothing was kept");
    Tensor tensor{nullptr, stored_as(array, result.precision), shape_of(array)};
    staged.resize(tensor.bytes());
    tensor.data = staged.data();
    weights.load(array, tensor);
    writer.write(File::model, array.name, tensor);
  }
  keep_hub_files(options.from, writer.folder() / kKeptHubFolder, true);
  const CheckpointState state{.backends = {},
                              .dense_products = {},
                              .tokenizer = found.tokenizer ? found.tokenizer->identity() : "",
                              .imported = result.hub.type,
                              .data = {}};
  writer.finish(state, write_config(checkpoint_configuration(source, result.precision)),
                found.tokenizer ? found.tokenizer->serialize() : "");
  return result;
}

}  // namespace filigree
