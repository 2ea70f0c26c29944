#include "kernels/elementwise/elementwise.h"

#include <gmock/gmock.h>

#include <limits>

#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

class ElementwiseCuda : public CudaTest {};

constexpr std::int64_t kCounts[] = {1, 7, 8, 1000, 70001};

TEST_F(ElementwiseCuda, AddConvertScaleFillMatchTheProcessor) {
  for (const DType to : {DType::f32, DType::bf16})
    for (const DType from : {DType::f32, DType::bf16})
      for (const std::int64_t count : kCounts) {
        const OwnedTensor y = random_tensor(cpu(), to, {count}, 1), x = random_tensor(cpu(), from, {count}, 2);
        const OwnedTensor gy = on_gpu(y), gx = on_gpu(x);
        const auto same = [&](const char* what) {
          EXPECT_EQ(values_of(on_cpu(gy)), values_of(y)) << what << " " << count;
        };
        add(cpu(), y, x);
        add(gpu(), gy, gx);
        same("add");
        scale(cpu(), y, 0.37f);
        scale(gpu(), gy, 0.37f);
        same("scale");
        convert(cpu(), y, x);
        convert(gpu(), gy, gx);
        same("convert");
        fill(cpu(), y, 1.5f);
        fill(gpu(), gy, 1.5f);
        same("fill");
        fill(gpu(), gy, 0.0f);
        EXPECT_THAT(values_of(on_cpu(gy)), ::testing::Each(0.0));
      }
}

TEST_F(ElementwiseCuda, ColumnSumsMatchTheProcessor) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 77}, {513, 32}, {2000, 768}}) {
      const OwnedTensor sums = random_tensor(cpu(), DType::f32, {columns}, 1);
      const OwnedTensor x = random_tensor(cpu(), dtype, {rows, columns}, 2);
      const OwnedTensor gpu_sums = on_gpu(sums), gpu_x = on_gpu(x), again = on_gpu(sums), odd = on_gpu(sums);
      add_column_sums(cpu(), sums, x);
      add_column_sums(gpu(), gpu_sums, gpu_x);
      add_column_sums(gpu(), again, gpu_x);
      add_column_sums(gpu(), odd, on_gpu_shifted(x).view);
      expect_equal(gpu_sums, sums, rows, 1.0, "sums");
      expect_same(again, on_cpu(gpu_sums), "sums again");
      expect_same(odd, on_cpu(gpu_sums), "sums at an odd address");
    }
}

TEST_F(ElementwiseCuda, SumsOverTensorsMatchTheProcessorAndRepeat) {
  std::vector<OwnedTensor> host, device;
  std::vector<Tensor> on_host, on_device;
  std::uint32_t stream = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{5}, std::int64_t{65536}, std::int64_t{200003}}) {
      host.push_back(random_tensor(cpu(), dtype, {count}, ++stream));
      device.push_back(on_gpu(host.back()));
      on_host.push_back(host.back());
      on_device.push_back(device.back());
    }
  const double expected = sum_of_squares(cpu(), on_host), found = sum_of_squares(gpu(), on_device);
  EXPECT_NEAR(found, expected, 1e-6 * expected);
  EXPECT_EQ(sum_of_squares(gpu(), on_device), found);
  // Another list, then the first one again; odd addresses.
  EXPECT_NEAR(sum_of_squares(gpu(), on_device[7]), sum_of_squares(cpu(), on_host[7]), 1e-6 * 200003);
  EXPECT_EQ(sum_of_squares(gpu(), on_device), found);
  for (const Tensor& host_tensor : on_host)
    if (host_tensor.count() > 0) {
      const Shifted odd = on_gpu_shifted(host_tensor);
      const double squares = sum_of_squares(cpu(), host_tensor);
      EXPECT_NEAR(sum_of_squares(gpu(), odd.view), squares, 1e-6 * squares);
    }
  EXPECT_NEAR(sum(gpu(), on_device[3]), sum(cpu(), on_host[3]), 1e-6 * 200003);
  fill(gpu(), on_device[1], std::numeric_limits<float>::infinity());
  EXPECT_FALSE(std::isfinite(sum_of_squares(gpu(), on_device)));
}

}  // namespace
}  // namespace filigree::testing
