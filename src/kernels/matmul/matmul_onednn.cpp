#include "kernels/matmul/matmul_onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "kernels/elementwise/elementwise.h"

namespace filigree {
namespace {

// What a primitive is built for: y (M, N) = scale · op(a) op(b) + bias [+ y]
struct MatmulDescription {
  std::int64_t rows = 0;     // M
  std::int64_t columns = 0;  // N
  std::int64_t depth = 0;    // K
  DType operands = DType::f32;
  DType result = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;
  float scale = 1.0f;
  int threads = 1;  // oneDNN plans for OpenMP's thread count

  friend bool operator==(const MatmulDescription&, const MatmulDescription&) = default;
};

MatmulDescription description_of(const MatmulArgs& args) {
  return {.rows = args.y.shape[0],
          .columns = args.y.shape[1],
          .depth = args.a.shape[args.transpose_a ? 0 : 1],
          .operands = args.a.dtype,
          .result = args.y.dtype,
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .bias = !args.bias.empty(),
          .scale = args.scale,
          .threads = omp_get_max_threads()};
}

struct Hash {
  std::size_t operator()(const MatmulDescription& what) const {
    std::size_t hash = 0;
    const auto mix = [&](std::size_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15u; };
    mix(static_cast<std::size_t>(what.rows));
    mix(static_cast<std::size_t>(what.columns));
    mix(static_cast<std::size_t>(what.depth));
    mix(static_cast<std::size_t>(what.operands) | static_cast<std::size_t>(what.result) << 8 |
        static_cast<std::size_t>(what.transpose_a) << 16 | static_cast<std::size_t>(what.transpose_b) << 17 |
        static_cast<std::size_t>(what.accumulate) << 18 | static_cast<std::size_t>(what.bias) << 19);
    mix(std::bit_cast<std::uint32_t>(what.scale));
    mix(static_cast<std::size_t>(what.threads));
    return hash ^ hash >> 32;
  }
};

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

std::size_t round_up(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// A row-major matrix, read as its transpose when `transposed`.
dnnl::memory::desc layout(std::int64_t rows, std::int64_t columns, DType dtype, bool transposed) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

// Whether b is first brought into the layout that oneDNN likes best for it. On one Sapphire Rapids core, fp32, T 4096:
// products at 155 to 170 GFLOP/s instead of 140 to 155, and instead of 64 to 78 where b's rows are 12 KB apart (N 768,
// K 3072: dX and dW); the reordering takes 2 ms of 120. Fewer rows do not earn it, and with a transposed bf16 a it
// costs.
bool reorders_b(const MatmulDescription& what) {
  return what.rows >= 512 && !(what.operands == DType::bf16 && what.transpose_a);
}

// A primitive, perhaps a reordering of b before it, and their memory objects; pointers are set at each call.
struct Product {
  Product(const dnnl::engine& engine, const MatmulDescription& what) {
    const auto y_layout = layout(what.rows, what.columns, what.result, false);
    const auto a_layout = layout(what.rows, what.depth, what.operands, what.transpose_a);
    const auto plain_b = layout(what.depth, what.columns, what.operands, what.transpose_b);
    const dnnl::memory::desc any_b(plain_b.dims(), type_of(what.operands), dnnl::memory::format_tag::any);
    const auto& b_layout = reorders_b(what) ? any_b : plain_b;
    const auto bias_layout = layout(1, what.columns, DType::f32, false);
    // oneDNN scales the bias too: with another scale it is added afterwards instead.
    const bool late_bias = what.bias && what.scale != 1.0f;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (what.scale != 1.0f) attributes.set_output_scales(0, {what.scale});
    dnnl::post_ops after;
    if (what.accumulate) after.append_sum(1.0f);
    if (late_bias) after.append_binary(dnnl::algorithm::binary_add, bias_layout);
    attributes.set_post_ops(after);
    const auto operation = what.bias && !late_bias ? dnnl::matmul::desc(a_layout, b_layout, bias_layout, y_layout)
                                                   : dnnl::matmul::desc(a_layout, b_layout, y_layout);
    const dnnl::matmul::primitive_desc plan(operation, attributes, engine);
    product = dnnl::matmul(plan);
    y = dnnl::memory(y_layout, engine, DNNL_MEMORY_NONE);
    a = dnnl::memory(a_layout, engine, DNNL_MEMORY_NONE);
    b = dnnl::memory(plain_b, engine, DNNL_MEMORY_NONE);
    ready_b = dnnl::memory(plan.weights_desc(), engine, DNNL_MEMORY_NONE);
    scratch = dnnl::memory(plan.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    bias = dnnl::memory(bias_layout, engine, DNNL_MEMORY_NONE);
    add(DNNL_ARG_DST, y);
    add(DNNL_ARG_SRC, a);
    add(DNNL_ARG_WEIGHTS, ready_b);
    add(DNNL_ARG_SCRATCHPAD, scratch);
    const int late_slot = DNNL_ARG_ATTR_MULTIPLE_POST_OP(what.accumulate ? 1 : 0) | DNNL_ARG_SRC_1;
    if (what.bias) add(late_bias ? late_slot : DNNL_ARG_BIAS, bias);
    scratch_bytes = round_up(plan.scratchpad_desc().get_size());
    if (plan.weights_desc() == plain_b) return;
    dnnl::primitive_attr reorder_attributes;
    reorder_attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc reorder_plan(engine, plain_b, engine, plan.weights_desc(), reorder_attributes);
    reorder = dnnl::reorder(reorder_plan);
    reorder_scratch = dnnl::memory(reorder_plan.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    reorder_arguments = {
        {{DNNL_ARG_FROM, b.get()}, {DNNL_ARG_TO, ready_b.get()}, {DNNL_ARG_SCRATCHPAD, reorder_scratch.get()}}};
    scratch_bytes = std::max(scratch_bytes, round_up(reorder_plan.scratchpad_desc().get_size()));
    packed_bytes = round_up(plan.weights_desc().get_size());
  }
  Product(const Product&) = delete;  // the arguments hold the memories' handles
  Product& operator=(const Product&) = delete;

  bool reorders() const { return packed_bytes != 0; }
  std::size_t bytes() const { return scratch_bytes + packed_bytes; }

  dnnl::matmul product;
  dnnl::reorder reorder;
  dnnl::memory y, a, b, ready_b, scratch, bias, reorder_scratch;
  std::array<dnnl_exec_arg_t, 5> arguments{};  // as the C interface takes them: a call allocates nothing
  std::array<dnnl_exec_arg_t, 3> reorder_arguments{};
  int argument_count = 0;
  std::size_t scratch_bytes = 0, packed_bytes = 0;

 private:
  void add(int slot, const dnnl::memory& memory) {
    arguments[static_cast<std::size_t>(argument_count++)] = {slot, memory.get()};
  }
};

class OneDnn : public LibraryState {
 public:
  OneDnn() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  Product& product(const MatmulDescription& what) {
    const auto found = products_.find(what);
    if (found != products_.end()) return found->second;
    return products_.try_emplace(what, engine_, what).first->second;
  }
  // scratch has product.bytes().
  void run(Product& product, std::byte* scratch, void* y, void* a, void* b, void* bias) {
    product.y.set_data_handle(y);
    product.a.set_data_handle(a);
    product.b.set_data_handle(b);
    product.bias.set_data_handle(bias);
    product.scratch.set_data_handle(scratch);
    if (product.reorders()) {
      product.ready_b.set_data_handle(scratch + product.scratch_bytes);
      product.reorder_scratch.set_data_handle(scratch);
      execute(product.reorder, product.reorder_arguments.data(), 3);
    } else {
      product.ready_b.set_data_handle(product.b.get_data_handle());
    }
    execute(product.product, product.arguments.data(), product.argument_count);
  }

 private:
  void execute(const dnnl::primitive& primitive, const dnnl_exec_arg_t* arguments, int count) {
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream_.get(), count, arguments),
                            "could not execute a primitive");
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<MatmulDescription, Product, Hash> products_;
};

std::string to_string(const MatmulDescription& what) {
  return std::to_string(what.rows) + " x " + std::to_string(what.columns) + " x " + std::to_string(what.depth) + " " +
         std::string(name_of(what.operands)) + " to " + std::string(name_of(what.result));
}

}  // namespace

bool onednn_has_bf16() {
  return cpu_features().avx512;
}

void onednn_matmul(Device& device, const MatmulArgs& args) {
  const MatmulDescription what = description_of(args);
  try {
    auto& library = device.library<OneDnn>(Library::onednn, [] { return std::make_unique<OneDnn>(); });
    Product& product = library.product(what);
    auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, product.bytes()));
    library.run(product, scratch, args.y.data, args.a.data, args.b.data, args.bias.data);
  } catch (const dnnl::error& error) {
    throw Error("oneDNN refused the matrix product " + to_string(what) + ": " + error.what());
  }
}

void onednn_matmul_widened(Device& device, const MatmulArgs& args) {
  const auto wide_bytes = [](std::int64_t rows, std::int64_t columns) {
    return round_up(static_cast<std::size_t>(rows * columns) * sizeof(float));
  };
  MatmulDescription wide = description_of(args);
  wide.operands = wide.result = DType::f32;
  const std::size_t a_bytes = wide_bytes(wide.rows, wide.depth), b_bytes = wide_bytes(wide.depth, wide.columns);
  const std::size_t y_bytes = args.y.dtype == DType::bf16 ? wide_bytes(wide.rows, wide.columns) : 0;
  try {
    auto& library = device.library<OneDnn>(Library::onednn, [] { return std::make_unique<OneDnn>(); });
    Product& product = library.product(wide);
    auto* scratch =
        static_cast<std::byte*>(device.scratch(Scratch::kernel, product.bytes() + a_bytes + b_bytes + y_bytes));
    std::byte* wide_a = scratch + product.bytes();
    std::byte* wide_b = wide_a + a_bytes;
    std::byte* wide_y = y_bytes == 0 ? static_cast<std::byte*>(args.y.data) : wide_b + b_bytes;
    const Tensor wide_result = {wide_y, DType::f32, args.y.shape};
    convert(device, {wide_a, DType::f32, args.a.shape}, args.a);
    convert(device, {wide_b, DType::f32, args.b.shape}, args.b);
    if (y_bytes != 0 && args.accumulate) convert(device, wide_result, args.y);
    library.run(product, scratch, wide_y, wide_a, wide_b, args.bias.data);
    if (y_bytes != 0) convert(device, args.y, wide_result);
  } catch (const dnnl::error& error) {
    throw Error("oneDNN refused the matrix product " + to_string(wide) + ": " + error.what());
  }
}

}  // namespace filigree
