// The GPU products against the CPU reference, kernel by kernel: outputs are poisoned first, and what lies behind them
// must stay as it was.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <cstring>
#include <utility>

#include "block_cases.h"
#include "core/cuda_error.h"
#include "kernels/block/block_mask.h"
#include "kernels/block/block_matmul.h"

namespace filigree::testing {
namespace {

// Device memory with a guard of 64 KB behind it, all bytes 0xff (NaN as bf16 and fp32).
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t count) : count_(static_cast<std::size_t>(count)) {
    check(cudaMalloc(&data_, count_ * sizeof(T) + kGuard));
    check(cudaMemset(data_, 0xff, count_ * sizeof(T) + kGuard));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(static_cast<std::int64_t>(values.size())) {
    check(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  explicit DeviceArray(const std::vector<double>& values) requires(!std::is_same_v<T, double>)
      : DeviceArray(std::vector<T>(values.begin(), values.end())) {}
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> read() const {
    std::vector<std::uint8_t> guard(kGuard);
    std::vector<T> values(count_);
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    check(cudaMemcpy(guard.data(), data() + count_, kGuard, cudaMemcpyDeviceToHost));
    EXPECT_TRUE(std::all_of(guard.begin(), guard.end(), [](std::uint8_t byte) { return byte == 0xff; }))
        << "written behind the end";
    return values;
  }

 private:
  static constexpr std::size_t kGuard = 65536;
  void* data_ = nullptr;
  std::size_t count_;
};

std::vector<bf16> rounded(const std::vector<double>& values) {
  std::vector<bf16> out;
  for (const double value : values) out.push_back(bf16(static_cast<float>(value)));
  return out;
}

template <typename T>
void expect_close(const std::vector<T>& found, const std::vector<double>& expected, std::int64_t length) {
  ASSERT_EQ(found.size(), expected.size());
  const double allowed = tolerance(dtype_of<T>, length, 1.0);
  double worst = 0.0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(static_cast<double>(static_cast<float>(found[i])) - expected[i]);
    if (!(error <= worst)) worst = error, where = i;  // a NaN counts as worst
  }
  EXPECT_LE(worst, allowed) << "at element " << where << ": expected " << expected[where];
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// A block matrix on both sides.
struct DeviceMatrix {
  BlockReference host;
  DeviceArray<bf16> values;
  DeviceArray<std::int32_t> row_start, column_start;
  DeviceArray<BlockEntry> row_entries, column_entries;
  DeviceArray<BlockGradientTile> gradient_tiles;

  explicit DeviceMatrix(BlockReference matrix)
      : host(std::move(matrix)),
        values(rounded(host.values)),
        row_start(host.lists.row_start),
        column_start(host.lists.column_start),
        row_entries(host.lists.row_entries),
        column_entries(host.lists.column_entries),
        gradient_tiles(host.lists.gradient_tiles) {}
  DeviceBlockLists lists() const {
    return {.row_start = row_start.data(),
            .row_entries = row_entries.data(),
            .column_start = column_start.data(),
            .column_entries = column_entries.data(),
            .gradient_tiles = gradient_tiles.data(),
            .blocks = host.lists.blocks(),
            .gradient_tile_count = static_cast<std::int64_t>(host.lists.gradient_tiles.size())};
  }
};

struct Case {
  const char* name;
  BlockGrid grid;
  std::int64_t tokens;
  double density;    // 0: a ragged mask that keeps half of the blocks
  int clusters = 0;  // to plan for; 0: what the GPU has
};

class BlockMatmulTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    const auto& [name, grid, tokens, density, clusters] = GetParam();
    gpu_ = block_gpu();
    if (grid.block == BlockShape{} && choose_block_kernel(grid, gpu_) != BlockKernel::sm90)
      GTEST_SKIP() << "the Hopper kernels need compute capability 9.0, this GPU has " << gpu_.major << "."
                   << gpu_.minor;
    if (clusters > 0) gpu_.clusters = clusters;
    const auto mask = density == 0 ? ragged_mask(grid, 0.5, 11) : balanced_block_mask(grid, density, 12, 0);
    matrix_ = std::make_unique<DeviceMatrix>(random_matrix(grid, mask, 13));
    x_ = uniform_bf16(tokens * grid.columns, 14);
    dy_ = uniform_bf16(tokens * grid.rows, 15);
  }

  const BlockGrid& grid() const { return GetParam().grid; }
  std::int64_t tokens() const { return GetParam().tokens; }
  std::int64_t row_length() const { return std::int64_t{matrix_->host.lists.most_in_row} * grid().block.columns; }
  std::int64_t column_length() const { return std::int64_t{matrix_->host.lists.most_in_column} * grid().block.rows; }

  BlockGpu gpu_;
  std::unique_ptr<DeviceMatrix> matrix_;
  std::vector<double> x_, dy_;
};

TEST_P(BlockMatmulTest, Forward) {
  const DeviceArray<bf16> x(rounded(x_)), y(tokens() * grid().rows);
  const BlockForwardArgs args{.y = y.data(),
                              .x = x.data(),
                              .values = matrix_->values.data(),
                              .tokens = tokens(),
                              .grid = grid(),
                              .lists = matrix_->lists()};
  const BlockPlan plan = plan_block_forward(grid(), tokens(), gpu_);
  block_forward(args, plan, nullptr);
  const std::vector<bf16> first = y.read();
  expect_close(first, matrix_->host.forward(x_, {}, tokens()), row_length());
  for (int i = 0; i < 20; ++i) block_forward(args, plan, nullptr);
  EXPECT_TRUE(same_bits(y.read(), first));
}

TEST_P(BlockMatmulTest, ForwardWithEpilogues) {
  const std::vector<double> bias = uniform_bf16(grid().rows, 16), residual = uniform_bf16(tokens() * grid().rows, 17);
  const DeviceArray<bf16> x(rounded(x_)), r(rounded(residual)), y(tokens() * grid().rows), pre(tokens() * grid().rows);
  const DeviceArray<float> b(bias);
  const BlockPlan plan = plan_block_forward(grid(), tokens(), gpu_);
  BlockForwardArgs args{.y = y.data(),
                        .pre_activation = pre.data(),
                        .x = x.data(),
                        .values = matrix_->values.data(),
                        .bias = b.data(),
                        .residual = r.data(),
                        .activation = BlockActivation::gelu,
                        .tokens = tokens(),
                        .grid = grid(),
                        .lists = matrix_->lists()};
  block_forward(args, plan, nullptr);
  const std::vector<double> linear = matrix_->host.forward(x_, bias, tokens());
  std::vector<double> expected = linear;
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = gelu_reference(expected[i]) + residual[i];
  expect_close(pre.read(), linear, row_length() + 1);
  expect_close(y.read(), expected, row_length() + 2);

  // The residual in place, without activation: the rounded product is what the pre-activation was, the sum is exact.
  const std::vector<bf16> product = pre.read();
  args.pre_activation = nullptr;
  args.activation = BlockActivation::none;
  args.residual = args.y;
  check(cudaMemcpy(y.data(), r.data(), residual.size() * sizeof(bf16), cudaMemcpyDeviceToDevice));
  block_forward(args, plan, nullptr);
  std::vector<bf16> sums;
  for (std::size_t i = 0; i < product.size(); ++i)
    sums.push_back(bf16(static_cast<float>(product[i]) + static_cast<float>(residual[i])));
  EXPECT_TRUE(same_bits(y.read(), sums));

  // ReLU is exact, too.
  args.activation = BlockActivation::relu;
  args.residual = nullptr;
  block_forward(args, plan, nullptr);
  std::vector<bf16> kept = product;
  for (bf16& value : kept) value = static_cast<float>(value) < 0.0f ? bf16(0.0f) : value;
  EXPECT_TRUE(same_bits(y.read(), kept));
}

TEST_P(BlockMatmulTest, InputGradient) {
  const DeviceArray<bf16> dy(rounded(dy_)), dx(tokens() * grid().columns);
  BlockInputGradientArgs args{.dx = dx.data(),
                              .dy = dy.data(),
                              .values = matrix_->values.data(),
                              .tokens = tokens(),
                              .grid = grid(),
                              .lists = matrix_->lists()};
  const BlockPlan plan = plan_block_input_gradient(grid(), tokens(), gpu_);
  block_input_gradient(args, plan, nullptr);
  const std::vector<bf16> first = dx.read();
  std::vector<double> expected = matrix_->host.input_gradient(dy_, tokens());
  expect_close(first, expected, column_length());
  for (int i = 0; i < 20; ++i) block_input_gradient(args, plan, nullptr);
  EXPECT_TRUE(same_bits(dx.read(), first));

  args.accumulate = true;
  block_input_gradient(args, plan, nullptr);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(static_cast<float>(first[i]));
  expect_close(dx.read(), expected, 2 * column_length());
}

TEST_P(BlockMatmulTest, InputGradientWithActivation) {
  const std::vector<double> before = uniform_bf16(tokens() * grid().columns, 18);
  const DeviceArray<bf16> dy(rounded(dy_)), z(rounded(before)), dx(tokens() * grid().columns);
  BlockInputGradientArgs args{.dx = dx.data(),
                              .dy = dy.data(),
                              .values = matrix_->values.data(),
                              .tokens = tokens(),
                              .grid = grid(),
                              .lists = matrix_->lists()};
  const BlockPlan plan = plan_block_input_gradient(grid(), tokens(), gpu_);
  block_input_gradient(args, plan, nullptr);
  const std::vector<bf16> product = dx.read();
  args.pre_activation = z.data();
  args.activation = BlockActivation::relu;
  block_input_gradient(args, plan, nullptr);
  std::vector<bf16> expected = product;
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = bf16(static_cast<float>(product[i]) * (before[i] > 0.0 ? 1.0f : 0.0f));
  EXPECT_TRUE(same_bits(dx.read(), expected));

  args.activation = BlockActivation::gelu;
  block_input_gradient(args, plan, nullptr);
  std::vector<double> slopes = matrix_->host.input_gradient(dy_, tokens());
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < slopes.size(); ++i)
    slopes[i] *= (gelu_reference(before[i] + kStep) - gelu_reference(before[i] - kStep)) / (2.0 * kStep);
  expect_close(dx.read(), slopes, 2 * column_length());
}

template <typename T>
void check_weight_gradient(const DeviceMatrix& matrix, const std::vector<double>& dy_host,
                           const std::vector<double>& x_host, std::int64_t tokens, const BlockPlan& plan) {
  const BlockGrid& grid = matrix.host.grid;
  const DeviceArray<bf16> dy(rounded(dy_host)), x(rounded(x_host));
  const DeviceArray<T> gradient(matrix.host.lists.blocks() * grid.block_elements());
  const DeviceArray<std::uint8_t> workspace(static_cast<std::int64_t>(plan.workspace_bytes));
  BlockWeightGradientArgs args{.gradient = gradient.data(),
                               .dy = dy.data(),
                               .x = x.data(),
                               .workspace = workspace.data(),
                               .gradient_type = dtype_of<T>,
                               .tokens = tokens,
                               .grid = grid,
                               .lists = matrix.lists()};
  block_weight_gradient(args, plan, nullptr);
  const std::vector<T> first = gradient.read();
  std::vector<double> expected = matrix.host.weight_gradient(dy_host, x_host, tokens);
  expect_close(first, expected, tokens);
  for (int i = 0; i < 20; ++i) block_weight_gradient(args, plan, nullptr);
  EXPECT_TRUE(same_bits(gradient.read(), first));
  workspace.read();

  args.accumulate = true;
  block_weight_gradient(args, plan, nullptr);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(static_cast<float>(first[i]));
  expect_close(gradient.read(), expected, 2 * tokens);
}

TEST_P(BlockMatmulTest, WeightGradient) {
  const auto tiles = static_cast<std::int64_t>(matrix_->host.lists.gradient_tiles.size());
  const BlockPlan plan = plan_block_weight_gradient(grid(), tiles, tokens(), gpu_);
  check_weight_gradient<float>(*matrix_, dy_, x_, tokens(), plan);
  check_weight_gradient<bf16>(*matrix_, dy_, x_, tokens(), plan);
}

const auto name_of_case = [](const auto& instance) { return std::string(instance.param.name); };

// These suit compute-sanitizer's race check as well, where the others take minutes: --gtest_filter='Small/*'. Those
// named decode have up to 16 tokens: the forward product then decodes.
INSTANTIATE_TEST_SUITE_P(
    Small, BlockMatmulTest,
    ::testing::Values(Case{"single_block", {.rows = 128, .columns = 128}, 256, 1.0},
                      Case{"one_token", {.rows = 256, .columns = 384}, 1, 0.5},
                      Case{"overhanging_blocks", {.rows = 200, .columns = 328}, 513, 0},
                      Case{"half_block", {.rows = 64, .columns = 72}, 70, 1.0},
                      Case{"plain_16", {.rows = 72, .columns = 100, .block = {16, 16}}, 33, 0.4},
                      Case{"plain_odd", {.rows = 45, .columns = 51, .block = {10, 17}}, 37, 0},
                      Case{"decode_ragged", {.rows = 640, .columns = 896}, 3, 0},
                      Case{"decode_32", {.rows = 100, .columns = 136, .block = {32, 32}}, 16, 0},
                      Case{"decode_64", {.rows = 328, .columns = 200, .block = {64, 64}}, 8, 0},
                      Case{"decode_flat", {.rows = 40, .columns = 520, .block = {4, 24}}, 9, 0},
                      Case{"decode_narrow", {.rows = 90, .columns = 70, .block = {24, 4}}, 2, 0},
                      Case{"decode_odd", {.rows = 45, .columns = 51, .block = {10, 17}}, 11, 0},
                      Case{"decode_uneven_width", {.rows = 72, .columns = 100, .block = {16, 16}}, 5, 0.4},
                      Case{"decode_overhanging", {.rows = 200, .columns = 328}, 16, 0}),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    Large, BlockMatmulTest,
    ::testing::Values(Case{"ragged_rows", {.rows = 640, .columns = 896}, 1000, 0},
                      Case{"dense", {.rows = 512, .columns = 512}, 512, 1.0},
                      Case{"eighth", {.rows = 256, .columns = 2048}, 300, 0.125},
                      Case{"split_tokens", {.rows = 256, .columns = 512}, 3000, 0.5},
                      Case{"whole_and_split", {.rows = 896, .columns = 384}, 2100, 0, 5},
                      Case{"many_tiles", {.rows = 2176, .columns = 1536}, 600, 0.4, 3},
                      Case{"decode_chunks", {.rows = 300, .columns = 10240}, 16, 0.5},
                      Case{"decode_many_rows", {.rows = 20480, .columns = 384}, 4, 0},
                      Case{"decode_phases_of_8", {.rows = 1500, .columns = 20480}, 8, 0.5},
                      Case{"decode_phases_of_16", {.rows = 1500, .columns = 40960}, 16, 0.5},
                      Case{"decode_pieces", {.rows = 4000, .columns = 4096, .block = {64, 64}}, 5, 0},
                      Case{"decode_many_tokens", {.rows = 4000, .columns = 4096, .block = {64, 64}}, 13, 0},
                      Case{"decode_low_blocks", {.rows = 3000, .columns = 640, .block = {4, 64}}, 3, 0},
                      Case{"decode_low_blocks_of_16", {.rows = 3000, .columns = 640, .block = {4, 64}}, 16, 0},
                      Case{"decode_16", {.rows = 2064, .columns = 1600, .block = {16, 16}}, 4, 0.5},
                      Case{"decode_many_warps", {.rows = 24, .columns = 4096, .block = {8, 8}}, 1, 0.5}),
    name_of_case);

TEST(BlockMatmul, RefusesADerivativeWithoutItsArgument) {
  BlockInputGradientArgs args;
  args.tokens = 1;
  args.grid = {.rows = 64, .columns = 64, .block = {64, 64}};
  args.lists.blocks = 1;
  args.activation = BlockActivation::gelu;
  EXPECT_THROW(block_input_gradient(args, {}, nullptr), Error);
}

TEST(BlockMatmul, RefusesAPlanThatDoesNotFit) {
  BlockForwardArgs args;
  args.tokens = 1;
  args.grid = {.rows = 64, .columns = 64, .block = {64, 64}};
  args.lists.blocks = 1;
  BlockPlan plan;
  plan.kernel = BlockKernel::sm90;
  EXPECT_THROW(block_forward(args, plan, nullptr), Error);
}

}  // namespace
}  // namespace filigree::testing
