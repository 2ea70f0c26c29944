#include "kernels/matmul/matmul_onednn.h"

#include <array>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

namespace filigree {
namespace {

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

// A row-major matrix, read as its transpose when `transposed`.
dnnl::memory::desc layout(std::int64_t rows, std::int64_t columns, DType dtype, bool transposed) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

// A primitive with its memory objects; their pointers are set at each call.
struct Product {
  Product(const dnnl::engine& engine, const MatmulDescription& what) {
    const auto y_layout = layout(what.rows, what.columns, what.result, false);
    const auto a_layout = layout(what.rows, what.depth, what.operands, what.transpose_a);
    const auto b_layout = layout(what.depth, what.columns, what.operands, what.transpose_b);
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
    primitive = dnnl::matmul(plan);
    scratch_bytes = plan.scratchpad_desc().get_size();
    const auto slot = [&](int index, const dnnl::memory::desc& desc) {
      memories[used] = dnnl::memory(desc, engine, DNNL_MEMORY_NONE);
      arguments[used] = {index, memories[used].get()};
      ++used;
    };
    slot(DNNL_ARG_DST, y_layout);
    slot(DNNL_ARG_SRC, a_layout);
    slot(DNNL_ARG_WEIGHTS, b_layout);
    slot(DNNL_ARG_SCRATCHPAD, plan.scratchpad_desc());
    if (what.bias)
      slot(late_bias ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(what.accumulate ? 1 : 0) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS,
           bias_layout);
  }

  dnnl::matmul primitive;
  std::array<dnnl::memory, 5> memories;        // y, a, b, scratch, bias
  std::array<dnnl_exec_arg_t, 5> arguments{};  // the same, as the C interface takes them: no allocation at a call
  std::size_t used = 0;
  std::size_t scratch_bytes = 0;
};

class OneDnn : public LibraryState {
 public:
  OneDnn() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  Product& product(const MatmulDescription& what) {
    const auto found = products_.find(what);
    if (found != products_.end()) return found->second;
    return products_.try_emplace(what, engine_, what).first->second;
  }
  void run(Product& product) {
    dnnl::error::wrap_c_api(dnnl_primitive_execute(product.primitive.get(), stream_.get(),
                                                   static_cast<int>(product.used), product.arguments.data()),
                            "could not execute a matrix product");
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<MatmulDescription, Product, Hash> products_;
};

std::string to_string(const MatmulDescription& what) {
  return std::to_string(what.rows) + " x " + std::to_string(what.columns) + " x " + std::to_string(what.depth) + " " +
         std::string(name_of(what.operands)) + " to " + std::string(name_of(what.result));
}

}  // namespace

void onednn_matmul(Device& device, const MatmulDescription& what, void* y, const void* a, const void* b,
                   const float* bias) {
  try {
    auto& library = device.library<OneDnn>(Library::onednn, [] { return std::make_unique<OneDnn>(); });
    Product& product = library.product(what);
    product.memories[0].set_data_handle(y);
    product.memories[1].set_data_handle(const_cast<void*>(a));
    product.memories[2].set_data_handle(const_cast<void*>(b));
    product.memories[3].set_data_handle(device.scratch(Scratch::kernel, product.scratch_bytes));
    if (what.bias) product.memories[4].set_data_handle(const_cast<float*>(bias));
    library.run(product);
  } catch (const dnnl::error& error) {
    throw Error("oneDNN refused the matrix product " + to_string(what) + ": " + error.what());
  }
}

}  // namespace filigree
