#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "io/safetensors.h"

namespace filigree {

namespace {

constexpr std::uint64_t kHeaderAlignment = 8;

// A JSON string; names that are no valid UTF-8 cannot be written.
std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error("safetensors: a name or metadata text is not valid UTF-8");
  }
}

// Appends one member of a JSON object.
void append_member(std::string& object, const std::string& member) {
  if (!object.empty()) object += ',';
  object += member;
}

std::string describe(const StoredTensor& tensor) {
  std::string shape;
  for (const std::int64_t extent : tensor.shape) append_member(shape, std::to_string(extent));
  return quoted(tensor.name) + ":{\"dtype\":\"" + std::string(name_of(tensor.type)) + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," + std::to_string(tensor.end) + "]}";
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path) : file_(path) {}

void SafetensorsWriter::metadata(std::string key, std::string value) {
  require(data_offset_ == 0, "safetensors: metadata after the first write");
  metadata_[std::move(key)] = std::move(value);
}

void SafetensorsWriter::declare(std::string name, StoredType type, std::vector<std::int64_t> shape) {
  require(data_offset_ == 0, "safetensors: tensor '" + name + "' declared after the first write");
  require(name != "__metadata__", "safetensors: a tensor cannot have the name __metadata__");
  std::uint64_t bytes = size_of(type);
  for (const std::int64_t extent : shape) {
    require(extent >= 0, "safetensors: tensor '" + name + "' has a negative extent");
    require(!__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes) &&
                bytes <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
            "safetensors: tensor '" + name + "' is too large");
  }
  require(index_.emplace(name, tensors_.size()).second, "safetensors: tensor '" + name + "' declared twice");
  tensors_.push_back({std::move(name), type, std::move(shape), 0, bytes});
}

void SafetensorsWriter::declare(std::string name, DType dtype, const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  declare(std::move(name), stored_type(dtype), std::move(extents));
}

void SafetensorsWriter::lay_out() {
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const StoredTensor& a, const StoredTensor& b) { return size_of(a.type) > size_of(b.type); });
  std::string header;
  if (!metadata_.empty()) {
    std::string texts;
    for (const auto& [key, value] : metadata_) append_member(texts, quoted(key) + ":" + quoted(value));
    header = "\"__metadata__\":{" + texts + "}";
  }
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    StoredTensor& tensor = tensors_[i];
    index_.find(tensor.name)->second = i;
    const std::uint64_t bytes = tensor.bytes();
    tensor.begin = offset;
    tensor.end = offset += bytes;
    append_member(header, describe(tensor));
  }
  header.insert(0, 1, '{');
  header += '}';
  header.append((kHeaderAlignment - header.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  written_.assign(tensors_.size(), 0);
  const std::uint64_t length = header.size();
  file_.append(&length, sizeof(length));
  file_.append(header.data(), header.size());
  data_offset_ = sizeof(length) + length;
}

StoredTensor& SafetensorsWriter::declared(std::string_view name) {
  const auto found = index_.find(name);
  require(found != index_.end(), "safetensors: tensor '" + std::string(name) + "' was not declared");
  return tensors_[found->second];
}

void SafetensorsWriter::write(std::string_view name, const void* data, std::size_t bytes) {
  if (data_offset_ == 0) lay_out();
  const StoredTensor& tensor = declared(name);
  std::uint64_t& written = written_[index_.find(name)->second];
  require(bytes <= tensor.bytes() - written,
          "safetensors: more than the " + std::to_string(tensor.bytes()) + " bytes of tensor '" + tensor.name + "'");
  file_.write_at(data_offset_ + tensor.begin + written, data, bytes);
  written += bytes;
}

void SafetensorsWriter::write(std::string_view name, const Tensor& tensor) {
  const StoredTensor& target = declared(name);
  bool same = target.type == stored_type(tensor.dtype) && std::cmp_equal(target.shape.size(), tensor.shape.rank());
  for (int axis = 0; same && axis < tensor.shape.rank(); ++axis)
    same = target.shape[static_cast<std::size_t>(axis)] == tensor.shape[axis];
  require(same, "safetensors: tensor '" + target.name + "' was declared with another type or shape than " +
                    std::string(name_of(tensor.dtype)) + " " + to_string(tensor.shape));
  write(name, tensor.data, tensor.bytes());
}

void SafetensorsWriter::finish() {
  if (data_offset_ == 0) lay_out();
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    require(written_[i] == tensors_[i].bytes(), "safetensors: tensor '" + tensors_[i].name + "' has " +
                                                    std::to_string(written_[i]) + " of its " +
                                                    std::to_string(tensors_[i].bytes()) + " bytes");
  file_.commit();
}

}  // namespace filigree
