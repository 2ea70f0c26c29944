// cuDNN's flash attention, through its frontend: the only source that knows either. cuDNN is loaded when the first bf16
// attention asks for it, so that a program also runs where it is missing; then and for all that cuDNN does not take,
// attention_gpu.cpp goes to our own kernels.
//
// A graph is built once a shape and kept in the Device. Its tensors are views: of the packed projection, whose heads
// lie side by side in a token's row, and of our (B, H, S) log-sum-exp, which is what cuDNN calls statistics: natural
// logarithm, of the scaled scores.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <compare>
#include <map>

#include "kernels/attention/attention_cuda.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // declared by the frontend: where it looks cuDNN's functions up
}

namespace filigree::cuda {
namespace {

namespace graph = cudnn_frontend::graph;
using cudnn_frontend::DataType_t;

// Names of the tensors in a call, in no particular order.
enum Name : std::int64_t { kQuery = 1, kKeys, kValues, kOut, kStatistics, kDout, kDquery, kDkeys, kDvalues };
using Pointers = std::unordered_map<std::int64_t, void*>;

struct PlanShape {
  std::int64_t sequences = 0, positions = 0, heads = 0, kv_heads = 0, size = 0;
  bool backward = false;
  bool statistics = false;     // forward keeps them
  bool deterministic = false;  // backward adds in a fixed order

  friend auto operator<=>(const PlanShape&, const PlanShape&) = default;
};

struct Plan {
  std::shared_ptr<graph::Graph> built = {};
  std::size_t workspace = 0;
  std::string refusal = {};  // why there is none
};

// The frontend answers with an error object, or throws; both become an exception.
void check(cudnn_frontend::error_t status) {
  if (status.is_bad()) throw Error(status.get_message());
}

// Extents (B, heads, S, D) of heads that lie side by side in rows of `row` entries.
graph::Tensor_attributes heads_in_rows(Name name, const PlanShape& shape, std::int64_t heads, std::int64_t row) {
  return graph::Tensor_attributes()
      .set_uid(name)
      .set_data_type(DataType_t::BFLOAT16)
      .set_dim({shape.sequences, heads, shape.positions, shape.size})
      .set_stride({shape.positions * row, shape.size, row, 1});
}

graph::Tensor_attributes statistics(const PlanShape& shape) {
  return graph::Tensor_attributes()
      .set_uid(kStatistics)
      .set_data_type(DataType_t::FLOAT)
      .set_dim({shape.sequences, shape.heads, shape.positions, 1})
      .set_stride({shape.heads * shape.positions, shape.positions, 1, 1});
}

// Makes a tensor that the graph returned an output of the described layout.
void output(const std::shared_ptr<graph::Tensor_attributes>& tensor, const graph::Tensor_attributes& layout) {
  tensor->set_output(true)
      .set_uid(layout.get_uid())
      .set_data_type(layout.get_data_type())
      .set_dim(layout.get_dim())
      .set_stride(layout.get_stride());
}

std::shared_ptr<graph::Graph> describe(const PlanShape& shape, int capability) {
  auto result = std::make_shared<graph::Graph>();
  result->set_io_data_type(DataType_t::BFLOAT16)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT)
      .set_sm_version(capability);
  const std::int64_t row = (shape.heads + 2 * shape.kv_heads) * shape.size, out_row = shape.heads * shape.size;
  const auto query = result->tensor(heads_in_rows(kQuery, shape, shape.heads, row));
  const auto keys = result->tensor(heads_in_rows(kKeys, shape, shape.kv_heads, row));
  const auto values = result->tensor(heads_in_rows(kValues, shape, shape.kv_heads, row));
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.size));
  if (!shape.backward) {
    auto options = graph::SDPA_attributes().set_name("attention");
    options.set_attn_scale(scale)
        .set_generate_stats(shape.statistics)
        .set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    const auto [out, kept] = result->sdpa(query, keys, values, options);
    output(out, heads_in_rows(kOut, shape, shape.heads, out_row));
    if (shape.statistics) output(kept, statistics(shape));
    return result;
  }
  const auto out = result->tensor(heads_in_rows(kOut, shape, shape.heads, out_row));
  const auto dout = result->tensor(heads_in_rows(kDout, shape, shape.heads, out_row));
  const auto kept = result->tensor(statistics(shape));
  auto options = graph::SDPA_backward_attributes().set_name("attention_backward");
  options.set_attn_scale(scale)
      .set_deterministic_algorithm(shape.deterministic)
      .set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  const auto [dquery, dkeys, dvalues] = result->sdpa_backward(query, keys, values, out, dout, kept, options);
  output(dquery, heads_in_rows(kDquery, shape, shape.heads, row));
  output(dkeys, heads_in_rows(kDkeys, shape, shape.kv_heads, row));
  output(dvalues, heads_in_rows(kDvalues, shape, shape.kv_heads, row));
  return result;
}

// Why cuDNN cannot be loaded; empty when it has been.
std::string load() {
  if (cudnn_frontend::cudnn_dlhandle != nullptr) return {};
  cudnn_frontend::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);
  if (cudnn_frontend::cudnn_dlhandle != nullptr) return {};
  const char* reason = dlerror();
  return std::string("cuDNN cannot be loaded: ") + (reason ? reason : "libcudnn.so.9");
}

class Cudnn : public LibraryState {
 public:
  explicit Cudnn(CUstream_st* stream) : refusal_(load()) {
    if (!refusal_.empty()) return;
    namespace backend = cudnn_frontend::detail;
    cudnnStatus_t status = backend::create_handle(&handle_);
    if (status == CUDNN_STATUS_SUCCESS) status = backend::set_stream(handle_, stream);
    if (status != CUDNN_STATUS_SUCCESS)
      refusal_ = std::string("cuDNN does not start: ") + backend::get_error_string(status);
  }
  ~Cudnn() override {
    plans_.clear();  // before the handle that they were built with
    if (handle_) cudnn_frontend::detail::destroy_handle(handle_);
  }

  const Plan& plan(Device& device, const PlanShape& shape) {
    auto known = plans_.find(shape);
    if (known == plans_.end()) known = plans_.emplace(shape, build(device, shape)).first;
    return known->second;
  }

  void run(Device& device, const Plan& plan, Pointers pointers) {
    void* workspace = device.scratch(Scratch::kernel, plan.workspace);
    check(plan.built->execute(handle_, pointers, workspace));
  }

 private:
  Plan build(Device& device, const PlanShape& shape) {
    if (!refusal_.empty()) return {.refusal = refusal_};
    Plan plan;
    try {
      plan.built = describe(shape, device.gpu().capability);
      check(plan.built->build(handle_, {cudnn_frontend::HeurMode_t::A}));
      std::int64_t bytes = 0;
      check(plan.built->get_workspace_size(bytes));
      plan.workspace = static_cast<std::size_t>(bytes);
    } catch (const std::exception& error) {
      return {.refusal = cudnn_name(device) + ": " + error.what()};
    }
    return plan;
  }

  std::string refusal_;
  cudnnHandle_t handle_ = nullptr;
  std::map<PlanShape, Plan> plans_;
};

Cudnn& library(Device& device) {
  return device.library<Cudnn>(Library::cudnn, [&] { return std::make_unique<Cudnn>(device.stream()); });
}

PlanShape plan_shape(const Tensor& qkv, int heads, int kv_heads) {
  const AttentionShape shape = attention_shape(qkv, heads, kv_heads);
  return {.sequences = shape.sequences,
          .positions = shape.positions,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .size = shape.size};
}

PlanShape plan_shape(const Device&, const AttentionForwardArgs& args) {
  PlanShape shape = plan_shape(args.qkv, args.heads, args.kv_heads);
  shape.statistics = !args.logsumexp.empty();
  return shape;
}

PlanShape plan_shape(const Device& device, const AttentionBackwardArgs& args) {
  PlanShape shape = plan_shape(args.qkv, args.heads, args.kv_heads);
  shape.backward = true;
  shape.deterministic = device.deterministic();
  return shape;
}

// What needs no plan to be refused: cuDNN reads 16 bytes at once.
std::string plain_refusal(const PlanShape& shape, std::initializer_list<Tensor> tensors) {
  if (tensors.begin()->dtype != DType::bf16) return "cuDNN's attention is for bf16";
  if (shape.size % 8 != 0) return "cuDNN takes head sizes that are multiples of 8";
  for (const Tensor& tensor : tensors)
    if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0)
      return "cuDNN takes addresses that are multiples of 16";
  return {};
}

std::string plain_refusal(const PlanShape& shape, const AttentionForwardArgs& args) {
  return plain_refusal(shape, {args.qkv, args.out, args.logsumexp});
}

std::string plain_refusal(const PlanShape& shape, const AttentionBackwardArgs& args) {
  return plain_refusal(shape, {args.qkv, args.out, args.logsumexp, args.dout, args.dqkv});
}

template <typename Args>
std::string refusal(Device& device, const Args& args) {
  const PlanShape shape = plan_shape(device, args);
  std::string plain = plain_refusal(shape, args);
  return plain.empty() ? library(device).plan(device, shape).refusal : plain;
}

// The plan of a call, or null when cuDNN refuses it.
template <typename Args>
const Plan* plan_for(Device& device, const Args& args) {
  const PlanShape shape = plan_shape(device, args);
  if (!plain_refusal(shape, args).empty()) return nullptr;
  const Plan& plan = library(device).plan(device, shape);
  return plan.refusal.empty() ? &plan : nullptr;
}

// Places of the three parts of a packed projection (or of its gradient).
void place(Pointers& pointers, const Tensor& packed, const PlanShape& shape, Name query, Name keys, Name values) {
  bf16* const data = packed.as<bf16>();
  pointers[query] = data;
  pointers[keys] = data + shape.heads * shape.size;
  pointers[values] = data + (shape.heads + shape.kv_heads) * shape.size;
}

}  // namespace

std::string cudnn_name(Device& device) {
  library(device);
  if (cudnn_frontend::cudnn_dlhandle == nullptr) return "cuDNN";
  const auto version = cudnn_frontend::detail::get_backend_version();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string cudnn_refusal(Device& device, const AttentionForwardArgs& args) {
  return refusal(device, args);
}

std::string cudnn_refusal(Device& device, const AttentionBackwardArgs& args) {
  return refusal(device, args);
}

bool attention_forward_cudnn(Device& device, const AttentionForwardArgs& args) {
  const Plan* plan = plan_for(device, args);
  if (plan == nullptr) return false;
  Pointers pointers = {{kOut, args.out.data}};
  if (!args.logsumexp.empty()) pointers[kStatistics] = args.logsumexp.data;
  place(pointers, args.qkv, plan_shape(device, args), kQuery, kKeys, kValues);
  library(device).run(device, *plan, std::move(pointers));
  return true;
}

bool attention_backward_cudnn(Device& device, const AttentionBackwardArgs& args) {
  const Plan* plan = plan_for(device, args);
  if (plan == nullptr) return false;
  Pointers pointers = {{kOut, args.out.data}, {kDout, args.dout.data}, {kStatistics, args.logsumexp.data}};
  place(pointers, args.qkv, plan_shape(device, args), kQuery, kKeys, kValues);
  place(pointers, args.dqkv, plan_shape(device, args), kDquery, kDkeys, kDvalues);
  library(device).run(device, *plan, std::move(pointers));
  return true;
}

}  // namespace filigree::cuda
