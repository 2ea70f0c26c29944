// cuda::matmul: one plan a shape, kept in the Device.
#include <map>

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul_bias_cuda.h"
#include "kernels/matmul/matmul_cublaslt_plan.h"

namespace filigree::cuda {
namespace {

class CublasLt : public LibraryState {
 public:
  CublasLt() {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle));
    handle_.reset(handle);
  }
  cublasLtHandle_t handle() const { return handle_.get(); }

  const MatmulPlan& plan(Device& device, const MatmulArgs& args) {
    const MatmulShape shape = matmul_shape(device, args);
    auto known = plans_.find(shape);
    // Planning an epilogue may plan its plain product on the way: a map's entries stay where they are.
    if (known == plans_.end()) known = plans_.emplace(shape, make_plan(device, shape, args)).first;
    return known->second;
  }

  std::map<std::string, MatmulChoice> choices() const {
    std::map<std::string, MatmulChoice> all = restored_;
    for (const auto& [shape, plan] : plans_)
      if (!shape.deterministic) all.insert_or_assign(to_text(shape), plan.choice());
    return all;
  }
  void restore(const std::string& shape, const MatmulChoice& choice) { restored_.insert_or_assign(shape, choice); }
  std::int64_t searches() const { return searches_; }

 private:
  MatmulPlan make_plan(Device& device, const MatmulShape& shape, const MatmulArgs& args) {
    if (!shape.deterministic) {
      if (const auto kept = restored_.find(to_text(shape)); kept != restored_.end())
        if (std::optional<MatmulPlan> plan = plan_chosen(device, handle(), shape, args, kept->second))
          return std::move(*plan);
      ++searches_;
    }
    return plan_matmul(device, handle(), shape, args);
  }

  CublasLtHandle handle_;
  std::map<MatmulShape, MatmulPlan> plans_;
  std::map<std::string, MatmulChoice> restored_;  // by the text of a shape
  std::int64_t searches_ = 0;
};

CublasLt& library_of(Device& device) {
  return device.library<CublasLt>(Library::cublaslt, [] { return std::make_unique<CublasLt>(); });
}

// Whose choices are whose: an algorithm means something to one version of the library alone, and is fast on one GPU.
std::string maker(const Device& device) {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", " + device.gpu().name;
}

}  // namespace

void matmul(Device& device, const MatmulArgs& args) {
  CublasLt& library = library_of(device);
  const MatmulPlan& plan = library.plan(device, args);
  if (plan.separate) return matmul_then_activation(device, args);
  const std::size_t bias_bytes = plan.bias_bytes(args);
  auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, bias_bytes + plan.workspace));
  const void* bias = args.bias.data;
  if (bias_bytes != 0) {
    filigree::convert(device, Tensor{scratch, args.y.dtype, args.bias.shape}, args.bias);
    bias = scratch;
  }
  if (plan.bias == BiasForm::before) write_bias(device, args.y, args.bias, args.accumulate);
  check(launch_matmul(library.handle(), plan, plan.algorithm, args, args.y.data, bias, scratch + bias_bytes,
                      plan.workspace, device.stream()));
}

bool matmul_fuses(Device& device, const MatmulArgs& args) {
  return args.epilogue != Epilogue::none && !library_of(device).plan(device, args).separate;
}

MatmulChoices matmul_choices(Device& device) {
  MatmulChoices result;
  for (const auto& [shape, choice] : library_of(device).choices()) result.entries[shape] = to_text(choice);
  if (!result.entries.empty()) result.made_by = maker(device);
  return result;
}

std::string restore_matmul_choices(Device& device, const MatmulChoices& choices) {
  if (choices.entries.empty()) return {};
  if (const std::string ours = maker(device); choices.made_by != ours)
    return "the dense products' algorithms were chosen by " + choices.made_by + " and are chosen again by " + ours +
           ": numbers may differ in the last bits";
  int damaged = 0;
  for (const auto& [shape, text] : choices.entries) {
    if (const std::optional<MatmulChoice> choice = matmul_choice_of(text))
      library_of(device).restore(shape, *choice);
    else
      ++damaged;
  }
  if (damaged == 0) return {};
  return std::to_string(damaged) + " of " + std::to_string(choices.entries.size()) +
         " stored algorithms of dense products are damaged and are chosen again";
}

std::int64_t matmul_searches(Device& device) {
  return library_of(device).searches();
}

}  // namespace filigree::cuda
