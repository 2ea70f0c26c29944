// Shared by all tests: the one tolerance function, random tensors, temporary folders.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/random.h"
#include "core/tensor.h"

namespace filigree::testing {

// The largest error that a correct result of `dtype` may show when `length` products of magnitude `magnitude` were
// accumulated in fp32. Such a sum has the size magnitude · sqrt(length), and 4 standard deviations of it are allowed
// for:
// - each of the `length` additions rounds at most half a unit of the running sum (2^-24 of it), and these errors add up
//   like a random walk too; a factor 2 covers the inputs' own rounding in the products;
// - storing rounds half a unit of the result once: 2^-8 of it in bf16, 2^-24 in fp32 (where a few operations that
// follow
//   the sum, each as exact as that, get a factor 2).
// What is more than one such sum (several layers in a row) has a bound of its own, with its reason, in the test.
inline double tolerance(DType dtype, std::int64_t length, double magnitude) {
  const double root = std::sqrt(static_cast<double>(std::max<std::int64_t>(length, 1)));
  const double size = 4.0 * magnitude * root;
  const double accumulate = 2.0 * 0x1p-24 * root;
  const double store = dtype == DType::bf16 ? 0x1p-8 : 0x1p-23;
  return size * (accumulate + store) + 1e-30;
}

// Elements as doubles, whatever the type.
inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> out(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (tensor.dtype == DType::f32) out[i] = static_cast<const float*>(tensor.data)[i];
    if (tensor.dtype == DType::bf16)
      out[i] = static_cast<double>(static_cast<float>(static_cast<const bf16*>(tensor.data)[i]));
    if (tensor.dtype == DType::i32) out[i] = static_cast<const std::int32_t*>(tensor.data)[i];
    if (tensor.dtype == DType::u8) out[i] = static_cast<const std::uint8_t*>(tensor.data)[i];
  }
  return out;
}

inline void store(const Tensor& tensor, std::int64_t index, double value) {
  if (tensor.dtype == DType::f32) static_cast<float*>(tensor.data)[index] = static_cast<float>(value);
  if (tensor.dtype == DType::bf16) static_cast<bf16*>(tensor.data)[index] = bf16(static_cast<float>(value));
  if (tensor.dtype == DType::i32) static_cast<std::int32_t*>(tensor.data)[index] = static_cast<std::int32_t>(value);
}

inline void fill_normal(const Tensor& tensor, std::uint32_t stream, double deviation = 1.0) {
  const Random random(42, RandomPurpose::test, stream);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    store(tensor, i, deviation * static_cast<double>(random.normal(static_cast<std::uint64_t>(i))));
}

inline OwnedTensor random_tensor(Device& device, DType dtype, Shape shape, std::uint32_t stream,
                                 double deviation = 1.0) {
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, shape);
  fill_normal(tensor, stream, deviation);
  return tensor;
}

// A folder that is removed when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "filigree-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace filigree::testing
