#include "benchmark/ceiling.h"

#include "benchmark/timing.h"
#include "core/random.h"
#include "kernels/matmul/matmul.h"

namespace filigree {
namespace {

OwnedTensor random_matrix(Device& device, DType dtype, std::int64_t width, std::uint32_t stream) {
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, {width, width});
  const Random random(1, RandomPurpose::benchmark, stream);
  with_compute_type(dtype, [&]<typename T>() {
    std::vector<T> values(static_cast<std::size_t>(width * width));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(random.uniform(i) - 0.5f);
    device.copy_from_host(tensor, values.data());
  });
  return tensor;
}

// `calls` of them between two waits, so that a launch costs nothing; the rate of one.
Measured rates(Device& device, int repeats, int calls, double work, const std::function<void()>& run) {
  const std::vector<Measured> times = time_in_turn({[&] {
                                                     for (int call = 0; call < calls; ++call) run();
                                                     device.synchronize();
                                                   }},
                                                   repeats);
  const double total = work * calls * 1e3;  // milliseconds to seconds
  return {total / times[0].median, total / times[0].max, total / times[0].min};
}

}  // namespace

std::vector<ResultRow> benchmark_ceiling(Device& device, DType dtype, int repeats) {
  const bool gpu = device.is_cuda();
  const std::int64_t bytes = std::int64_t{gpu ? 2048 : 256} << 20, width = gpu ? 8192 : 2048;
  const int calls = gpu ? 10 : 1;
  const OwnedTensor from = device.memory().tensor(Purpose::workspace, DType::u8, {bytes});
  const OwnedTensor to = device.memory().tensor(Purpose::workspace, DType::u8, {bytes});
  const OwnedTensor a = random_matrix(device, dtype, width, 1), b = random_matrix(device, dtype, width, 2);
  const OwnedTensor y = device.memory().tensor(Purpose::workspace, dtype, {width, width});
  const double operations = 2.0 * static_cast<double>(width) * static_cast<double>(width) * static_cast<double>(width);
  ResultRow row;
  row.name = "ceiling";
  row.method = "dense";
  row.config.precision = name_of(dtype);
  row.config.threads = config_threads(device);
  row.metric = "copy_gb_per_s";
  row.measured = rates(device, repeats, calls, 2.0 * static_cast<double>(bytes) / 1e9, [&] { device.copy(to, from); });
  std::vector<ResultRow> rows = {row};
  row.metric = "matmul_tflops";
  row.measured = rates(device, repeats, calls, operations / 1e12,
                       [&] { matmul(device, {.y = y, .a = a, .b = b, .transpose_b = true}); });
  rows.push_back(row);
  return rows;
}

}  // namespace filigree
