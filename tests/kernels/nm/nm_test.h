// Shared by the N:M tests: compressed matrices to play with, and every target that this processor can run.
#pragma once

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "kernels/nm/nm_pack.h"
#include "kernels/nm/nm_target.h"
#include "kernels/nm/nm_vectors.h"
#include "support.h"

namespace filigree::testing {

// A compressed matrix that owns its memory, with a random mask and normal values.
struct OwnedNm {
  OwnedTensor values;
  OwnedTensor mask;
  NmMatrix view;

  OwnedNm(Device& device, DType dtype, std::int64_t rows, std::int64_t columns, Pattern pattern, std::uint32_t stream)
      : values(random_tensor(device, dtype, {rows, kept_columns(columns, pattern)}, stream)),
        mask(device.memory().tensor(Purpose::metadata, DType::u8, {rows, mask_bytes(columns)})),
        view{values, mask, rows, columns, pattern} {
    nm_select_random(device, mask, rows, columns, pattern, Random(7, RandomPurpose::mask, stream));
  }
};

inline bool mask_bit(const NmMatrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.mask.as<std::uint8_t>()[row * mask_bytes(matrix.columns) + column / 8] >> (column % 8) & 1;
}

// (rows, columns), by the definition of the format.
inline std::vector<double> dense_of(const NmMatrix& matrix) {
  const std::vector<double> values = values_of(matrix.values);
  std::vector<double> dense(static_cast<std::size_t>(matrix.rows * matrix.columns));
  std::size_t next = 0;
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t column = 0; column < matrix.columns; ++column)
      if (mask_bit(matrix, row, column))
        dense[static_cast<std::size_t>(row * matrix.columns + column)] = values[next++];
  EXPECT_EQ(next, values.size());
  return dense;
}

struct NamedTarget {
  std::string name;
  NmTarget target;
};

inline std::vector<NamedTarget> targets() {
  const CpuFeatures& has = cpu_features();
  std::vector<NamedTarget> all = {{"basic", {}}};
  if (has.avx2) all.push_back({"avx2", {NmVectors::avx2, false, false}});
  if (has.avx512) all.push_back({"avx512", {NmVectors::avx512, false, false}});
  if (has.avx512_vbmi2) all.push_back({"avx512_words", {NmVectors::avx512, false, true}});
  if (has.avx512_bf16) all.push_back({"avx512_dot", {NmVectors::avx512, true, false}});
  return all;
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Runs body with each of these thread counts as the setting of OpenMP and of a fresh Device.
template <typename Body>
void with_thread_counts(std::initializer_list<int> counts, Body&& body) {
  const int before = omp_get_max_threads();
  for (const int threads : counts) {
    const auto device = Device::cpu(threads);
    body(*device);
  }
  omp_set_num_threads(before);
}

}  // namespace filigree::testing
