#include "sparsity/block_weight.h"

#include <algorithm>
#include <cmath>

#include "core/hash.h"
#include "kernels/block/block_mask.h"
#include "kernels/block/block_pack.h"
#include "kernels/block/block_plan.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "sparsity/random_operand.h"

namespace filigree {

using File = CheckpointSink::File;

BlockWeight::BlockWeight(Device& device, const LinearSpec& spec)
    : LinearWeight(spec),
      grid_{spec.outputs, spec.inputs, spec.block},
      kept_(kept_in_a_row(grid_, spec.density)),
      values_(device,
              {.name = spec.name + ".weight.values",
               .shape = {blocks(), spec.block.rows, spec.block.columns},
               .dtype = spec.dtype,
               .decay = true,
               .sharding = spec.sharding},
              spec.mode) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) refusal_ = cuda::block_products_refuse(device, grid_, spec.dtype);
  if (!refusal_.empty()) forward_backend_ = dx_backend_ = dw_backend_ = Backend::dense;
  const auto metadata = [&](DType dtype, Shape shape) {
    return device.memory().tensor(Purpose::metadata, dtype, shape);
  };
  const std::int64_t tiles = grid_.block_rows() * ((kept_ + kGradientTileBlocks - 1) / kGradientTileBlocks);
  mask_ = metadata(DType::u8, {grid_.block_rows(), (grid_.block_columns() + 7) / 8});
  row_start_ = metadata(DType::i32, {grid_.block_rows() + 1});
  row_entries_ = metadata(DType::i32, {blocks(), 2});
  column_start_ = metadata(DType::i32, {grid_.block_columns() + 1});
  column_entries_ = metadata(DType::i32, {blocks(), 2});
  gradient_tiles_ = metadata(DType::i32, {tiles, 3});
}

BlockMatrix BlockWeight::matrix_of(const Tensor& values) const {
  const auto entries = [](const OwnedTensor& list) { return static_cast<const BlockEntry*>(list.view().data); };
  return {values,
          grid_,
          {.row_start = row_start_.view().as<std::int32_t>(),
           .row_entries = entries(row_entries_),
           .column_start = column_start_.view().as<std::int32_t>(),
           .column_entries = entries(column_entries_),
           .gradient_tiles = static_cast<const BlockGradientTile*>(gradient_tiles_.view().data),
           .blocks = blocks(),
           .gradient_tile_count = gradient_tiles_.view().shape[0]}};
}

Backend BlockWeight::forward_backend(const Device& device, const Tensor& x) const {
  // The choice was made for a batch. A few rows, as in decoding, read the kept blocks and nothing else, whichever these
  // are.
  const bool few = x.shape[0] <= kDecodeTokens && (!device.is_cuda() || spec_.dtype == DType::bf16);
  return few ? Backend::sparse : forward_backend_;
}

void BlockWeight::forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) {
  forward_product(device, forward_backend(device, x), y, x, bias);
}

bool BlockWeight::forward_activated(Device& device, Activation activation, const Tensor& y, const Tensor& z,
                                    const Tensor& x, const Tensor& bias) {
  if (forward_backend(device, x) != Backend::sparse) return false;
  const Tensor kept = activation == Activation::relu ? Tensor{} : z;
  block_product(device,
                {.y = y, .x = x, .weight = matrix(), .bias = bias, .activation = activation, .pre_activation = kept});
  return true;
}

bool BlockWeight::input_gradient_activated(Device& device, Activation activation, const Tensor& dz, const Tensor& dy,
                                           const Tensor& z) {
  if (dx_backend_ != Backend::sparse) return false;
  block_product_dx(device, {.dx = dz, .dy = dy, .weight = matrix(), .activation = activation, .pre_activation = z});
  return true;
}

void BlockWeight::input_gradient(Device& device, const Tensor& dx, const Tensor& dy) {
  input_product(device, dx_backend_, dx, dy);
}

void BlockWeight::weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) {
  gradient_product(device, dw_backend_, dy, x, accumulate);
}

Tensor BlockWeight::dense_scratch(Device& device, DType dtype) const {
  const Shape shape{spec_.outputs, spec_.inputs};
  return {device.scratch(Scratch::layer, static_cast<std::size_t>(shape.count()) * size_of(dtype)), dtype, shape};
}

void BlockWeight::forward_product(Device& device, Backend backend, const Tensor& y, const Tensor& x,
                                  const Tensor& bias) const {
  if (backend == Backend::sparse) return block_product(device, {.y = y, .x = x, .weight = matrix(), .bias = bias});
  const Tensor dense = dense_scratch(device, spec_.dtype);
  block_expand(device, dense, matrix());
  matmul(device, {.y = y, .a = x, .b = dense, .bias = bias, .transpose_b = true});
}

void BlockWeight::input_product(Device& device, Backend backend, const Tensor& dx, const Tensor& dy) const {
  if (backend == Backend::sparse) return block_product_dx(device, {.dx = dx, .dy = dy, .weight = matrix()});
  const Tensor dense = dense_scratch(device, spec_.dtype);
  block_expand(device, dense, matrix());
  matmul(device, {.y = dx, .a = dy, .b = dense});
}

void BlockWeight::gradient_product(Device& device, Backend backend, const Tensor& dy, const Tensor& x,
                                   bool accumulate) const {
  const BlockMatrix gradient = matrix_of(values_.gradient());
  if (backend == Backend::sparse)
    return block_product_dw(device, {.gradient = gradient.values,
                                     .dy = dy,
                                     .x = x,
                                     .grid = grid_,
                                     .lists = gradient.lists,
                                     .accumulate = accumulate});
  const Tensor dense = dense_scratch(device, DType::f32);
  matmul(device, {.y = dense, .a = dy, .b = x, .transpose_a = true});
  block_compress(device, gradient, dense, accumulate);
}

std::string BlockWeight::plan_subject() const {
  return std::to_string(spec_.outputs) + "x" + std::to_string(spec_.inputs) + " " + std::to_string(blocks()) +
         " blocks of " + to_string(spec_.block) + " " + std::string(name_of(spec_.dtype));
}

void BlockWeight::plan(Device& device, PlanTable& table, std::int64_t tokens) {
  const Random random(spec_.seed, RandomPurpose::benchmark, fnv1a32(spec_.name));
  RandomOperand x(device, random, spec_.dtype, {tokens, spec_.inputs}),
      y(device, random, spec_.dtype, {tokens, spec_.outputs});
  const auto choose = [&](const char* product, const std::function<void(Backend)>& run) {
    PlanCandidates candidates;
    candidates.dense = [&] { run(Backend::dense); };
    if (refusal_.empty()) candidates.sparse = [&] { run(Backend::sparse); };
    candidates.refusal = refusal_;
    return table.choose(device, plan_key(product, plan_subject(), tokens, device.is_cuda()), candidates);
  };
  forward_backend_ =
      choose("forward", [&](Backend backend) { forward_product(device, backend, y.get(), x.get(), {}); });
  if (spec_.mode == Mode::inference) return;
  dw_backend_ = choose("dw", [&](Backend backend) { gradient_product(device, backend, y.get(), x.get(), false); });
  dx_backend_ = choose("dx", [&](Backend backend) { input_product(device, backend, x.get(), y.get()); });
}

std::vector<std::uint8_t> BlockWeight::choose_mask(Device& device, const Tensor& dense) const {
  const std::uint32_t stream = fnv1a32(spec_.name);
  if (spec_.mask == "balanced") return balanced_block_mask(grid_, spec_.density, spec_.seed, stream);
  if (spec_.mask == "random") return random_block_mask(grid_, spec_.density, spec_.seed, stream);
  if (spec_.mask == "diagonal-band") return diagonal_band_block_mask(grid_, spec_.density, spec_.seed, stream);
  require(spec_.mask == "magnitude", spec_.name + ": no block mask is called '" + spec_.mask + "'");
  std::vector<float> host(static_cast<std::size_t>(dense.count()));
  device.copy_to_host(host.data(), dense);
  return magnitude_block_mask(grid_, spec_.density, host.data());
}

void BlockWeight::set_lists(Device& device, const std::vector<std::uint8_t>& mask) {
  const BlockLists lists = make_block_lists(grid_, mask);
  require(lists.blocks() == blocks() && lists.most_in_row == kept_,
          spec_.name + ": a block row keeps another number of blocks than the density says");
  device.copy_from_host(row_start_, lists.row_start.data());
  device.copy_from_host(row_entries_, lists.row_entries.data());
  device.copy_from_host(column_start_, lists.column_start.data());
  device.copy_from_host(column_entries_, lists.column_entries.data());
  device.copy_from_host(gradient_tiles_, lists.gradient_tiles.data());
}

void BlockWeight::store_mask(Device& device, const std::vector<std::uint8_t>& mask) {
  const std::int64_t columns = grid_.block_columns(), stride = mask_.view().shape[1];
  std::vector<std::uint8_t> bits(mask_.view().bytes());
  for (std::int64_t row = 0; row < grid_.block_rows(); ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      if (mask[static_cast<std::size_t>(row * columns + column)])
        bits[static_cast<std::size_t>(row * stride + column / 8)] |= static_cast<std::uint8_t>(1u << (column % 8));
  device.copy_from_host(mask_, bits.data());
}

std::vector<std::uint8_t> BlockWeight::stored_mask(const Device& device) const {
  const std::int64_t columns = grid_.block_columns(), stride = mask_.view().shape[1];
  std::vector<std::uint8_t> bits(mask_.view().bytes()), mask(static_cast<std::size_t>(grid_.block_rows() * columns));
  device.copy_to_host(bits.data(), mask_);
  for (std::int64_t row = 0; row < grid_.block_rows(); ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      mask[static_cast<std::size_t>(row * columns + column)] =
          bits[static_cast<std::size_t>(row * stride + column / 8)] >> (column % 8) & 1;
  return mask;
}

bool BlockWeight::mask_valid(const Device& device) const {
  if (mask_.view().empty()) return true;  // a laid-out plan holds no mask to check
  const std::vector<std::uint8_t> mask = stored_mask(device);
  for (auto row = mask.begin(); row != mask.end(); row += grid_.block_columns())
    if (std::count(row, row + grid_.block_columns(), 1) != kept_) return false;
  return true;
}

void BlockWeight::initialize(Device& device, const Tensor& dense, bool trained) {
  const std::vector<std::uint8_t> mask = choose_mask(device, dense);
  store_mask(device, mask);
  set_lists(device, mask);
  const WholeState values = values_.room(device, values_.master());
  block_compress(device, matrix_of(values), dense);
  if (spec_.scale_by_energy && !trained) {
    // Kept weights grow by 1 / sqrt(share of the energy that was kept), so that y keeps its variance.
    const double all = sum_of_squares(device, dense);
    const double kept = sum_of_squares(device, values);
    if (kept > 0.0) scale(device, values, static_cast<float>(std::sqrt(all / kept)));
  }
  values_.assign(device, values);
}

void BlockWeight::take_moment(Device& device, Content content, const Tensor& dense) {
  const Tensor& state = state_of(values_, content);
  const WholeState whole = values_.room(device, state);
  block_compress(device, matrix_of(whole), dense);
  values_.keep(device, state, whole);
}

void BlockWeight::expand(Device& device, const Tensor& dense, Content content) {
  const WholeState whole = values_.whole(device, state_of(values_, content));
  block_expand(device, dense, matrix_of(whole));
}

void BlockWeight::save(CheckpointSink& sink) {
  save_parameter(sink, values_);
  sink.put(File::model, spec_.name + ".weight.mask", mask_);
}

void BlockWeight::load(Device& device, const CheckpointSource& source, bool with_optimizer) {
  load_parameter(device, source, values_, with_optimizer);
  const std::string name = spec_.name + ".weight.mask";
  load_tensor(device, source, File::model, name, mask_);
  require_user(mask_valid(device), name + ": a block row keeps another number of blocks than " + std::to_string(kept_) +
                                       "; the checkpoint is damaged or of another density");
  set_lists(device, stored_mask(device));
}

LayerDescription BlockWeight::describe(const Device& device) const {
  std::string backend = std::string("forward ") + name_of(forward_backend_);
  if (spec_.mode == Mode::training)
    backend += std::string(", dx ") + name_of(dx_backend_) + ", dw " + name_of(dw_backend_);
  if (!refusal_.empty()) backend += " (" + refusal_ + ")";
  return {.name = spec_.name,
          .rows = spec_.outputs,
          .columns = spec_.inputs,
          .method = "block",
          .pattern = to_string(spec_.block),
          .density = static_cast<double>(kept_) / static_cast<double>(grid_.block_columns()),
          .backend = backend,
          .mask_valid = mask_valid(device)};
}

std::int64_t BlockWeight::bytes() const {
  std::int64_t sum = values_.bytes();
  for (const OwnedTensor* tensor :
       {&mask_, &row_start_, &row_entries_, &column_start_, &column_entries_, &gradient_tiles_})
    sum += static_cast<std::int64_t>(tensor->view().bytes());
  return sum;
}

}  // namespace filigree
