// Times GPU kernels that are bound by memory, beside a copy on the device, and keeps the results as rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmark/results.h"
#include "core/device.h"

namespace filigree::bench {

class BandwidthBench {
 public:
  // Measures the copy. Cases whose name has `only` in it are wanted.
  BandwidthBench(Device& device, std::string only);

  Device& device() const { return device_; }
  const std::vector<ResultRow>& rows() const { return rows_; }
  bool wanted(const std::string& name) const { return name.find(only_) != std::string::npos; }

  // bf16, uniform in [-1, 1); fp32 ones are rounded to bf16.
  OwnedTensor random(const Shape& shape, DType dtype = DType::bf16);
  std::vector<OwnedTensor> several(int count, const Shape& shape, DType dtype = DType::bf16);
  // So many sets of operands of `bytes` each that the second-level cache cannot hold them.
  static int sets_for(double bytes);

  // Batches of launches between two events; prints, and adds a row for the kernel and one for the copy. `launch` gets
  // its number in the batch. `before`, where given, runs untimed before each batch, which is one launch then.
  void time(const std::string& name, std::int64_t tokens, double bytes, const std::function<void(int)>& launch,
            const std::function<void()>& before = {});

 private:
  // Milliseconds of a launch, one number a batch.
  std::vector<double> batches(const std::function<void(int)>& launch, const std::function<void()>& before) const;

  Device& device_;
  std::string only_;
  std::uint32_t seed_ = 0;
  Measured copy_;  // GB/s
  std::vector<ResultRow> rows_;
};

}  // namespace filigree::bench
