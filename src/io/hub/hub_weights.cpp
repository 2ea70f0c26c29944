#include "io/hub/hub_weights.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t kLongestConfig = 1 << 20;
constexpr std::uint64_t kLongestIndex = 64 << 20;
constexpr std::size_t kMostNamed = 8;              // tensors in one message
constexpr std::int64_t kStagedElements = 1 << 20;  // of a transposed matrix at once

// Collects names for a message: "a, b and 7 more".
class NameList {
 public:
  void add(const std::string& name) {
    ++count_;
    if (count_ <= kMostNamed) text_ += (text_.empty() ? "" : ", ") + name.substr(0, 120);
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    return count_ <= kMostNamed ? text_ : text_ + " and " + std::to_string(count_ - kMostNamed) + " more";
  }

 private:
  std::size_t count_ = 0;
  std::string text_;
};

bool is_float(StoredType type) {
  return type == StoredType::f32 || type == StoredType::bf16 || type == StoredType::f16;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

bool is_hub_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kHubConfigFile, ignored) && !fs::exists(folder / "state.json", ignored);
}

HubModel read_hub_config(const fs::path& folder, std::int64_t context) {
  const fs::path file = folder / kHubConfigFile;
  return parse_hub_config(read_file(file, kLongestConfig), file.string(), context);
}

std::map<std::string, std::string> parse_hub_index(std::string_view text, const std::string& file) {
  const Json json = Json::parse(text, nullptr, false);
  const auto refuse = [&](const std::string& what) { return UserError(file + ": " + what); };
  if (json.is_discarded()) throw refuse("not valid JSON, or cut short");
  if (!json.is_object() || !json.contains("weight_map") || !json.at("weight_map").is_object())
    throw refuse("no index of safetensors files: expected an object with a weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, name] : json.at("weight_map").items()) {
    if (!name.is_string() || !is_plain_name(name.get_ref<const std::string&>()))
      throw refuse("weight_map: tensor " + tensor.substr(0, 120) +
                   " lies in no file of this folder: expected a file's name without a path");
    files.emplace(tensor, name.get<std::string>());
  }
  if (files.empty()) throw refuse("the weight_map is empty");
  return files;
}

HubWeights::HubWeights(const fs::path& folder, HubModel model)
    : folder_(folder), model_(std::move(model)), arrays_(hub_arrays(model_)) {
  open();
  use_short_names();
  check_tensors();
  check_tied_head();
}

void HubWeights::open() {
  const fs::path single = folder_ / kHubWeightsFile, index = folder_ / kHubIndexFile;
  if (fs::exists(single)) {
    require_user(!fs::exists(index), folder_.string() + ": both " + kHubWeightsFile + " and " + kHubIndexFile +
                                         " are here; remove the one that is not this model's");
    files_.push_back(std::make_unique<SafetensorsFile>(single));
    for (const StoredTensor& tensor : files_.front()->tensors()) holders_.emplace(tensor.name, files_.front().get());
    return;
  }
  require_user(
      fs::exists(index),
      folder_.string() + ": neither " + kHubWeightsFile + " nor " + kHubIndexFile +
          " is here; weights in another format (pytorch_model.bin, ...) have to be saved as safetensors first: "
          "save_pretrained of transformers does that");
  open_indexed(index);
}

void HubWeights::open_indexed(const fs::path& index) {
  const std::map<std::string, std::string> names = parse_hub_index(read_file(index, kLongestIndex), index.string());
  std::map<std::string, const SafetensorsFile*> files;
  for (const auto& [tensor, name] : names) {
    const SafetensorsFile*& file = files[name];
    if (file == nullptr) {
      require_user(fs::exists(folder_ / name), index.string() + ": " + name + " is not in this folder");
      files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
      file = files_.back().get();
    }
    require_user(file->find(tensor) != nullptr,
                 index.string() + ": tensor " + tensor + " is not in " + name + ", where it ought to be");
    holders_.emplace(tensor, file);
  }
  for (const auto& file : files_)
    for (const StoredTensor& tensor : file->tensors()) {
      const auto found = holders_.find(tensor.name);
      require_user(
          found != holders_.end() && found->second == file.get(),
          index.string() + ": does not say that tensor " + tensor.name + " is in " + file->path().filename().string());
    }
}

const SafetensorsFile* HubWeights::holder(const std::string& tensor) const {
  const auto found = holders_.find(tensor);
  return found == holders_.end() ? nullptr : found->second;
}

// Files of the bare model, without its head, leave the first part of the names out.
void HubWeights::use_short_names() {
  const std::string prefix = hub_prefix(model_);
  const auto has_prefix = [&](const auto& entry) { return entry.first.starts_with(prefix); };
  if (std::any_of(holders_.begin(), holders_.end(), has_prefix)) return;
  for (HubArray& array : arrays_)
    for (HubPart& part : array.parts)
      if (part.name.starts_with(prefix)) part.name.erase(0, prefix.size());
}

void HubWeights::check_tensors() const {
  NameList missing, unknown, shapes, types;
  std::set<std::string_view> expected;
  for (const HubArray& array : arrays_)
    for (const HubPart& part : array.parts) {
      expected.insert(part.name);
      const SafetensorsFile* file = holder(part.name);
      if (file == nullptr) {
        missing.add(part.name);
        continue;
      }
      const StoredTensor& tensor = file->at(part.name);
      const std::vector<std::int64_t> shape = array.stored_shape(part);
      if (tensor.shape != shape)
        shapes.add(part.name + " " + shape_text(tensor.shape) + " where " + kHubConfigFile + " makes it " +
                   shape_text(shape));
      if (!is_float(tensor.type)) types.add(part.name + " " + std::string(name_of(tensor.type)));
    }
  for (const auto& [name, file] : holders_)
    if (!expected.contains(name) && !is_hub_buffer(model_, name) && !(model_.model.tied && name == kHubHead))
      unknown.add(name);
  std::string text;
  const auto report = [&](const char* what, const NameList& names) {
    if (!names.empty()) text += (text.empty() ? "" : "; ") + std::string(what) + names.text();
  };
  report("missing tensors: ", missing);
  report("tensors that this model does not have: ", unknown);
  report("tensors of another shape: ", shapes);
  report("tensors that are neither fp32 nor bf16 nor fp16: ", types);
  require_user(text.empty(), folder_.string() + ": " + text);
}

void HubWeights::check_tied_head() const {
  if (!model_.model.tied) return;
  const SafetensorsFile* file = holder(kHubHead);
  if (file == nullptr) return;
  const std::string& embedding = arrays_.front().parts.front().name;
  const SafetensorsFile* other = holder(embedding);
  const std::span<const std::byte> a = file->bytes(file->at(kHubHead)), b = other->bytes(other->at(embedding));
  require_user(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0,
               folder_.string() + ": " + kHubHead + " differs from " + embedding + ", but " + kHubConfigFile +
                   " says that they are one (tie_word_embeddings)");
}

const HubArray* HubWeights::find(std::string_view name) const {
  const auto found =
      std::find_if(arrays_.begin(), arrays_.end(), [&](const HubArray& array) { return array.name == name; });
  return found == arrays_.end() ? nullptr : &*found;
}

DType HubWeights::precision() const {
  for (const HubArray& array : arrays_)
    for (const HubPart& part : array.parts)
      if (array.columns > 0 && holder(part.name)->at(part.name).type != StoredType::bf16) return DType::f32;
  return DType::bf16;
}

void HubWeights::load(const HubArray& array, const Tensor& out) const {
  std::int64_t row = 0;
  for (const HubPart& part : array.parts) {
    const Tensor rows = out.slice(row, part.rows);
    if (part.transposed)
      load_transposed(part, rows);
    else
      holder(part.name)->load_rows(part.name, part.first, rows);
    row += part.rows;
  }
}

void HubWeights::load_transposed(const HubPart& part, const Tensor& out) const {
  const std::int64_t rows = out.shape[0], columns = out.shape[1];
  const std::int64_t most = std::max<std::int64_t>(kStagedElements / rows, 1);
  std::vector<std::byte> staged(static_cast<std::size_t>(std::min(most, columns) * rows) * size_of(out.dtype));
  const std::size_t size = size_of(out.dtype);
  for (std::int64_t begin = 0; begin < columns; begin += most) {
    const std::int64_t count = std::min(most, columns - begin);
    holder(part.name)->load_rows(part.name, begin, {staged.data(), out.dtype, {count, rows}});
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < count; ++column)
        std::memcpy(static_cast<std::byte*>(out.data) + static_cast<std::size_t>(row * columns + begin + column) * size,
                    staged.data() + static_cast<std::size_t>(column * rows + row) * size, size);
  }
}

}  // namespace filigree
