// Writes the weights of a Hugging Face folder: one file, or several of limited size with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/hub/hub_names.h"
#include "io/safetensors.h"

namespace filigree {

struct HubTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;

  std::int64_t bytes() const;
};

// model.safetensors, or model-00001-of-0000N.safetensors and model.safetensors.index.json where the tensors have more
// than `shard_bytes`; a tensor is never cut. They are written in their order, one file at a time.
class HubWriter {
 public:
  HubWriter(std::filesystem::path folder, std::vector<HubTensor> tensors, std::int64_t shard_bytes);

  // The next tensor, of the declared shape and type.
  void write(const Tensor& tensor);
  void finish();
  std::size_t files() const { return last_.size(); }

 private:
  std::string file_name(std::size_t shard) const;
  void open_next();

  std::filesystem::path folder_;
  std::vector<HubTensor> tensors_;
  std::vector<std::size_t> last_;  // of each file: one past its last tensor
  std::size_t next_ = 0;           // tensor
  std::size_t shard_ = 0;          // being written
  std::unique_ptr<SafetensorsWriter> writer_;
};

// The tensors of a model of ours: each part of each array, of type `matrix`, vectors as fp32.
std::vector<HubTensor> hub_tensors(const std::vector<HubArray>& arrays, DType matrix);

// Writes the parts of one array, which is given as fp32, (rows, columns) or (rows).
void write_hub_array(HubWriter& writer, const HubArray& array, const Tensor& values, DType matrix);

}  // namespace filigree
