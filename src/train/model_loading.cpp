#include "train/model_loading.h"

#include "io/config_toml.h"
#include "io/hub/hub_weights.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

}  // namespace

fs::path find_checkpoint(const fs::path& given) {
  fs::path path = fs::absolute(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // a trailing slash
  require_user(fs::exists(path), path.string() + ": there is no such run or checkpoint");
  if (fs::exists(path / "state.json")) return path;
  if (const auto newest = newest_checkpoint(path)) return *newest;
  require_user(!is_hub_folder(path) || fs::exists(path / "config.toml"),
               path.string() + ": a Hugging Face folder; `filigree import` makes a checkpoint of it");
  require_user(!fs::exists(path / "config.toml"),
               path.string() + ": this run has no checkpoint yet; continue it with `filigree train ... --resume`");
  throw UserError(path.string() + ": neither a run (config.toml, checkpoints/) nor a checkpoint (state.json)");
}

Config checkpoint_config(const fs::path& checkpoint, std::span<const std::string> overrides) {
  return read_config(checkpoint / "config.toml", overrides);
}

LoadedModel load_model(Device& device, const fs::path& path, std::span<const std::string> overrides) {
  LoadedModel loaded;
  loaded.checkpoint = find_checkpoint(path);
  const CheckpointReader reader(loaded.checkpoint);
  loaded.config = checkpoint_config(loaded.checkpoint, overrides);
  loaded.step = reader.state().step;
  if (fs::exists(loaded.checkpoint / "tokenizer.model")) {
    loaded.tokenizer = load_tokenizer(loaded.checkpoint / "tokenizer.model");
    require_user(loaded.tokenizer->identity() == reader.state().tokenizer,
                 (loaded.checkpoint / "tokenizer.model").string() +
                     ": not the tokenizer that this model was trained with (" + loaded.tokenizer->identity() +
                     " in place of " + reader.state().tokenizer + ")");
  }
  loaded.model = std::make_unique<Transformer>(device, loaded.config, Mode::inference, reader.state().dense_phase);
  if (reader.state().adapters) loaded.model->insert_adapters(device);
  loaded.model->load(device, reader, false);
  return loaded;
}

}  // namespace filigree
