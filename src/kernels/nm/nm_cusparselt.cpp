#include "kernels/nm/nm_cusparselt.h"

#include <map>
#include <memory>

#include "kernels/matmul/matmul_bias_cuda.h"
#include "kernels/nm/nm_cusparselt_packing.h"
#include "kernels/nm/nm_cusparselt_plan.h"

namespace filigree::cuda {
namespace {

struct Plans {
  std::unique_ptr<CusparseltPlan> plain;   // null: refused
  std::unique_ptr<CusparseltPlan> biased;  // null: not asked for, or the library has none that is right
  bool bias_asked = false;
  std::string refusal;
};

class State final : public LibraryState {
 public:
  State() : library(load_cusparselt()), refusal(library.refusal) {
    if (!refusal.empty()) return;
    const cusparseStatus_t status = library.init(&handle);
    if (status != CUSPARSE_STATUS_SUCCESS) refusal = std::string("cuSPARSELt: ") + library.get_error_string(status);
    packing = std::make_unique<CusparseltPacking>(library, handle);
  }
  ~State() override {
    if (!refusal.empty()) return;
    plans.clear();
    packing.reset();
    library.destroy(&handle);
  }

  CusparseltLibrary library;
  std::string refusal;
  cusparseLtHandle_t handle{};
  std::unique_ptr<CusparseltPacking> packing;  // null: refused
  std::map<CusparseltShape, Plans> plans;
};

State& state_of(Device& device) {
  return device.library<State>(Library::cusparselt, [] { return std::make_unique<State>(); });
}

}  // namespace

std::string cusparselt_refuses(Device& device, std::int64_t rows, std::int64_t columns, Pattern pattern, DType dtype) {
  if (pattern != Pattern{2, 4} || dtype != DType::bf16) return "sparse products on a GPU are those of 2:4 in bf16";
  if (rows % 64 != 0 || columns % 64 != 0) return "sparse products on a GPU need extents that are multiples of 64";
  if (const State& state = state_of(device); !state.refusal.empty()) return state.refusal;
  return state_of(device).packing->shape(device, rows, columns).refusal;
}

std::string cusparselt_order_unknown(Device& device, std::int64_t rows, std::int64_t columns) {
  return state_of(device).packing->shape(device, rows, columns).order_unknown;
}

std::int64_t cusparselt_metadata_bytes(Device& device, std::int64_t rows, std::int64_t columns) {
  return static_cast<std::int64_t>(state_of(device).packing->shape(device, rows, columns).metadata);
}

void cusparselt_pack(Device& device, const NmMatrix& matrix, bool by_library) {
  state_of(device).packing->pack(device, matrix, by_library);
}

CusparseltPlanned cusparselt_planned(Device& device, const CusparseltShape& shape) {
  const State& state = state_of(device);
  const auto found = state.plans.find(shape);
  if (found == state.plans.end()) return {.refusal = "no plan was made"};
  const Plans& plans = found->second;
  return {.algorithm = plans.plain ? plans.plain->algorithm() : -1,
          .refusal = plans.refusal,
          .asked = true,
          .bias_asked = plans.bias_asked};
}

CusparseltPlanned cusparselt_plan(Device& device, const NmMatmulArgs& args, int algorithm) {
  State& state = state_of(device);
  require(!args.weight.metadata.empty(), "cusparselt_plan: the matrix has no metadata");
  const auto find = [&](const NmMatmulArgs& of, int which, std::string& refusal) {
    return find_cusparselt_plan(device, state.library, state.handle, of, which, refusal);
  };
  const auto [found, fresh] = state.plans.try_emplace(shape_of(args));
  Plans& plans = found->second;
  if (fresh) {
    NmMatmulArgs plain = args;
    plain.bias = {};
    plans.plain = find(plain, algorithm, plans.refusal);
  }
  if (!args.bias.empty() && !plans.bias_asked) {
    std::string ignored;  // the bias is written first, then
    if (plans.plain) plans.biased = find(args, plans.plain->algorithm(), ignored);
    plans.bias_asked = true;
  }
  return cusparselt_planned(device, shape_of(args));
}

void cusparselt_matmul(Device& device, const NmMatmulArgs& args) {
  const State& state = state_of(device);
  const auto found = state.plans.find(shape_of(args));
  require(!args.weight.metadata.empty() && found != state.plans.end() && found->second.plain,
          "cusparselt_matmul: a product of this shape needs metadata and a plan (cusparselt_plan)");
  const Tensor& values = args.weight.values;
  require(
      static_cast<std::byte*>(values.data) + values.bytes() == args.weight.metadata.data && args.y.dtype == DType::bf16,
      "cusparselt_matmul: the metadata must lie behind the values, and y be bf16");
  const Plans& plans = found->second;
  NmMatmulArgs rest = args;
  if (!args.bias.empty() && !plans.biased) {
    write_bias(device, args.y, args.bias, args.accumulate);
    rest.bias = {};
    rest.accumulate = true;
  }
  state.library.check((rest.bias.empty() ? plans.plain : plans.biased)->run(device, rest));
}

}  // namespace filigree::cuda
