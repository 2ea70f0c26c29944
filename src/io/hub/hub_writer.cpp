#include "io/hub/hub_writer.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "io/hub/hub_weights.h"

namespace filigree {
namespace {

// `to` (stored rows, columns), or with `transposed` (columns, stored rows), from row part.first on; zeros before it.
template <typename To>
void fill_part(const HubPart& part, const Tensor& from, To* to) {
  const float* values = from.as<float>();
  const std::int64_t rows = part.rows, columns = from.count() / std::max<std::int64_t>(rows, 1);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t place =
          part.transposed ? column * part.stored + part.first + row : (part.first + row) * columns + column;
      to[place] = To(values[row * columns + column]);
    }
}

Shape shape_of(const std::vector<std::int64_t>& extents) {
  return extents.size() == 1 ? Shape{extents[0]} : Shape{extents.at(0), extents.at(1)};
}

DType dtype_of_array(const HubArray& array, DType matrix) {
  return array.columns == 0 ? DType::f32 : matrix;
}

}  // namespace

std::int64_t HubTensor::bytes() const {
  std::int64_t count = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

HubWriter::HubWriter(std::filesystem::path folder, std::vector<HubTensor> tensors, std::int64_t shard_bytes)
    : folder_(std::move(folder)), tensors_(std::move(tensors)) {
  std::int64_t held = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t bytes = tensors_[i].bytes();
    if (held > 0 && held + bytes > shard_bytes) {
      last_.push_back(i);
      held = 0;
    }
    held += bytes;
  }
  last_.push_back(tensors_.size());
  open_next();
}

std::string HubWriter::file_name(std::size_t shard) const {
  if (last_.size() == 1) return kHubWeightsFile;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, last_.size());
  return name;
}

void HubWriter::open_next() {
  writer_ = std::make_unique<SafetensorsWriter>(folder_ / file_name(shard_));
  writer_->metadata("format", "pt");  // without it transformers refuses a file
  for (std::size_t i = next_; i < last_[shard_]; ++i)
    writer_->declare(tensors_[i].name, tensors_[i].dtype, shape_of(tensors_[i].shape));
}

void HubWriter::write(const Tensor& tensor) {
  require(next_ < tensors_.size(), "HubWriter: more tensors than were declared");
  if (next_ == last_[shard_]) {
    writer_->finish();
    ++shard_;
    open_next();
  }
  writer_->write(tensors_[next_].name, tensor);
  ++next_;
}

void HubWriter::finish() {
  require(next_ == tensors_.size(), "HubWriter: fewer tensors than were declared");
  writer_->finish();
  if (last_.size() == 1) return;
  std::int64_t total = 0;
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::size_t shard = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (i == last_[shard]) ++shard;
    map[tensors_[i].name] = file_name(shard);
    total += tensors_[i].bytes();
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_atomically(folder_ / kHubIndexFile, index.dump(2) + "\n");
}

std::vector<HubTensor> hub_tensors(const std::vector<HubArray>& arrays, DType matrix) {
  std::vector<HubTensor> tensors;
  for (const HubArray& array : arrays)
    for (const HubPart& part : array.parts)
      tensors.push_back({part.name, array.stored_shape(part), dtype_of_array(array, matrix)});
  return tensors;
}

void write_hub_array(HubWriter& writer, const HubArray& array, const Tensor& values, DType matrix) {
  std::int64_t row = 0;
  for (const HubPart& part : array.parts) {
    const Tensor rows = values.slice(row, part.rows);
    const HubTensor stored{part.name, array.stored_shape(part), dtype_of_array(array, matrix)};
    const Shape shape = shape_of(stored.shape);
    row += part.rows;
    if (stored.dtype == DType::f32 && !part.transposed && part.stored == part.rows) {
      writer.write(rows);
      continue;
    }
    std::vector<std::byte> staged(static_cast<std::size_t>(stored.bytes()));
    const Tensor out{staged.data(), stored.dtype, shape};
    if (stored.dtype == DType::bf16)
      fill_part(part, rows, out.as<bf16>());
    else
      fill_part(part, rows, out.as<float>());
    writer.write(out);
  }
}

}  // namespace filigree
