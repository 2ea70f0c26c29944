#include "train/hub_source.h"

#include "core/error.h"

namespace filigree {

namespace fs = std::filesystem;

HubSource::HubSource(const fs::path& folder, std::int64_t context)
    : weights_(folder, read_hub_config(folder, context)) {}

Config HubSource::config() const {
  Config config;
  config.run.precision = weights_.precision();
  config.model = weights_.model().model;
  config.weights.method = "dense";
  return config;
}

bool HubSource::has(CheckpointSink::File file, const std::string& name) const {
  return file == CheckpointSink::File::model && weights_.find(name) != nullptr;
}

void HubSource::load(CheckpointSink::File file, const std::string& name, const Tensor& out) const {
  const HubArray* array = file == CheckpointSink::File::model ? weights_.find(name) : nullptr;
  require(array != nullptr, "a Hugging Face folder has no array " + name);
  const Shape shape = array->columns == 0 ? Shape{array->rows} : Shape{array->rows, array->columns};
  require(out.shape == shape, name + ": " + to_string(out.shape) + " is asked for, but it is " + to_string(shape));
  weights_.load(*array, out);
}

HubTokenizer find_hub_tokenizer(const fs::path& folder, std::int64_t vocab) {
  HubTokenizer found;
  try {
    found.tokenizer = load_tokenizer(folder);
  } catch (const UserError& error) {
    found.why_not = error.what();
    return found;
  }
  if (found.tokenizer->vocab_size() > vocab) {
    found.why_not = folder.string() + ": its tokenizer has " + std::to_string(found.tokenizer->vocab_size()) +
                    " entries, the model " + std::to_string(vocab);
    found.tokenizer.reset();
  }
  return found;
}

fs::path kept_hub_files(const fs::path& checkpoint) {
  for (const fs::path& place : {checkpoint, checkpoint.parent_path().parent_path()})  // or its run
    if (fs::is_directory(place / kKeptHubFolder)) return place / kKeptHubFolder;
  return {};
}

void keep_hub_files(const fs::path& from, const fs::path& to, bool tokenizer) {
  const auto keep = [&](const char* name) {
    if (!fs::is_regular_file(from / name)) return;
    fs::create_directories(to);
    fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
  };
  for (const char* name : kHubModelFiles) keep(name);
  if (!tokenizer) return;
  for (const char* name : kHubTokenizerFiles) keep(name);
}

}  // namespace filigree
