#include "kernels/bandwidth_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "benchmark/timing.h"
#include "core/cuda_error.h"
#include "kernels/block_bench_device.h"
#include "kernels/elementwise/elementwise.h"

namespace filigree::bench {
namespace {

class Event {
 public:
  Event() { check(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream)); }
  // Milliseconds from `begin` to this one, once it has happened.
  double since(const Event& begin) {
    check(cudaEventSynchronize(event_));
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// GB/s.
Measured rate(double bytes, const std::vector<double>& milliseconds) {
  const Measured time = measured(milliseconds);
  return {bytes * 1e-6 / time.median, bytes * 1e-6 / time.max, bytes * 1e-6 / time.min};
}

}  // namespace

BandwidthBench::BandwidthBench(Device& device, std::string only) : device_(device), only_(std::move(only)) {
  constexpr std::int64_t kBytes = std::int64_t{2} << 30;
  const OwnedTensor from = random({kBytes / 2}), to = random({kBytes / 2});
  copy_ = rate(2.0 * static_cast<double>(kBytes), batches([&](int) { device_.copy(to, from); }, {}));
  fmt::print("copy on the device: {:.0f} GB/s\n", copy_.median);
}

OwnedTensor BandwidthBench::random(const Shape& shape, DType dtype) {
  OwnedTensor halves = device_.memory().tensor(Purpose::workspace, DType::bf16, shape);
  fill_random(halves.view().data, shape.count(), ++seed_, device_.stream());
  if (dtype == DType::bf16) return halves;
  OwnedTensor tensor = device_.memory().tensor(Purpose::workspace, dtype, shape);
  convert(device_, tensor, halves);
  device_.synchronize();
  return tensor;
}

std::vector<OwnedTensor> BandwidthBench::several(int count, const Shape& shape, DType dtype) {
  std::vector<OwnedTensor> made;
  for (int i = 0; i < count; ++i) made.push_back(random(shape, dtype));
  return made;
}

int BandwidthBench::sets_for(double bytes) {
  constexpr double kSeveralCaches = 5e8;  // 50 MB on an H200
  return static_cast<int>(std::clamp(std::ceil(kSeveralCaches / bytes), 2.0, 8.0));
}

void BandwidthBench::time(const std::string& name, std::int64_t tokens, double bytes,
                          const std::function<void(int)>& launch, const std::function<void()>& before) {
  const Measured speed = rate(bytes, batches(launch, before));
  fmt::print("{:<40} {:>9.1f} MB {:>9.4f} ms {:>7.0f} GB/s {:>4.0f}%  ({:.0f} to {:.0f})\n", "kernel-" + name,
             bytes * 1e-6, bytes * 1e-6 / speed.median, speed.median, 100.0 * speed.median / copy_.median, speed.min,
             speed.max);
  std::fflush(stdout);
  for (const auto& [method, measured] : {std::pair{"copy", copy_}, std::pair{"filigree", speed}}) {
    ResultRow row;
    row.name = "kernel-" + name;
    row.method = method;
    row.config.batch = tokens;
    row.config.precision = "bf16";
    row.metric = "gb_per_s";
    row.measured = measured;
    rows_.push_back(row);
  }
}

std::vector<double> BandwidthBench::batches(const std::function<void(int)>& launch,
                                            const std::function<void()>& before) const {
  constexpr int kBatches = 9;
  constexpr double kBatchMs = 15.0;
  Event begin, end;
  const auto batch = [&](int launches) {
    if (before) before();
    begin.record(device_.stream());
    for (int i = 0; i < launches; ++i) launch(i);
    end.record(device_.stream());
    return end.since(begin) / launches;
  };
  batch(1);
  int launches = 1;
  if (!before) launches = static_cast<int>(std::clamp(kBatchMs / batch(8), 8.0, 400.0));
  std::vector<double> samples;
  for (int i = 0; i < kBatches; ++i) samples.push_back(batch(launches));
  return samples;
}

}  // namespace filigree::bench
