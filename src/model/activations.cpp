#include "model/activations.h"

#include <algorithm>

namespace filigree {

std::int64_t qkv_width(const ModelConfig& model) {
  return (model.heads + 2 * model.kv_heads) * (model.width / model.heads);
}

std::int64_t up_width(const ModelConfig& model) {
  return model.arch == "llama" ? 2 * model.ffn : model.ffn;
}

Recompute recompute_named(std::string_view name) {
  if (name == "norm") return Recompute::norm;
  if (name == "activation") return Recompute::activation;
  if (name == "block") return Recompute::block;
  require(name == "none", "unknown recompute mode");
  return Recompute::none;
}

Activations::Activations(Device& device, const ModelConfig& model, DType dtype, std::int64_t batch,
                         std::int64_t sequence, Recompute recompute)
    : batch_(batch),
      sequence_(sequence),
      width_(model.width),
      heads_(model.heads),
      dtype_(dtype),
      recompute_(recompute) {
  Memory& memory = device.memory();
  const std::int64_t tokens = batch * sequence;
  const bool backward = recompute != Recompute::inference;
  const bool keep_all = recompute == Recompute::none;
  const bool keep_most = keep_all || recompute == Recompute::norm || recompute == Recompute::activation;
  const bool relu = model.arch == "opt";
  planes_.resize(kMembers);
  const auto plane = [&](Member which, std::int64_t width, DType type, bool kept) {
    const std::int64_t copies = kept ? model.layers : 1;
    planes_[which] = {memory.tensor(Purpose::activations, type, {copies, tokens, width}), width, copies};
  };
  plane(kSum1, model.width, dtype, backward);
  plane(kNormed1, model.width, dtype, keep_all);
  plane(kQkv, qkv_width(model), dtype, keep_most);
  plane(kAttended, model.width, dtype, keep_most);
  plane(kSum2, model.width, dtype, keep_most);
  plane(kNormed2, model.width, dtype, keep_all);
  if (!relu) plane(kUp, up_width(model), dtype, keep_most);
  plane(kHidden, model.ffn, dtype, keep_most && (relu || recompute != Recompute::activation));
  branch_ = memory.tensor(Purpose::activations, dtype, {tokens, model.width});
  final_sum_ = memory.tensor(Purpose::activations, dtype, {tokens, model.width});
  final_normed_ = memory.tensor(Purpose::activations, dtype, {tokens, model.width});
  losses_ = memory.tensor(Purpose::activations, DType::f32, {tokens});
  if (!backward) return;
  for (const Member statistic : {kMean1, kRstd1, kMean2, kRstd2}) plane(statistic, 1, DType::f32, keep_most);
  plane(kLogsumexp, model.heads, DType::f32, keep_most);
  final_mean_ = memory.tensor(Purpose::activations, DType::f32, {tokens});
  final_rstd_ = memory.tensor(Purpose::activations, DType::f32, {tokens});
  dsum_ = memory.tensor(Purpose::activations, dtype, {tokens, model.width});
  narrow_ = memory.tensor(Purpose::activations, dtype, {tokens, model.width});
}

Tensor Activations::wide_gradient(Device& device, std::int64_t tokens, std::int64_t columns) const {
  const Shape shape{tokens, columns};
  return {device.scratch(Scratch::caller, static_cast<std::size_t>(shape.count()) * size_of(dtype_)), dtype_, shape};
}

Tensor Activations::rows(const OwnedTensor& owner, std::int64_t tokens, std::int64_t columns) {
  if (owner.empty()) return {};
  Tensor view = owner.view();
  view.shape = columns == 0 ? Shape{tokens} : Shape{tokens, columns};
  require(view.count() <= owner.view().count(), "more tokens than the activations were planned for");
  return view;
}

Tensor Activations::member(Member which, std::int64_t block, std::int64_t tokens) const {
  const Plane& plane = planes_[which];
  if (plane.data.empty()) return {};
  Tensor view = plane.data.view().slice(plane.copies == 1 ? 0 : block, 1);
  view.shape = plane.width == 1 ? Shape{tokens} : Shape{tokens, plane.width};
  return view;
}

BlockActivations Activations::block(std::int64_t index, std::int64_t batch, std::int64_t sequence) const {
  const std::int64_t tokens = batch * sequence;
  require(tokens <= batch_ * sequence_, "more tokens than the activations were planned for");
  Tensor logsumexp = member(kLogsumexp, index, tokens);
  if (!logsumexp.empty()) logsumexp.shape = {batch, heads_, sequence};
  return {.sum1 = member(kSum1, index, tokens),
          .normed1 = member(kNormed1, index, tokens),
          .mean1 = member(kMean1, index, tokens),
          .rstd1 = member(kRstd1, index, tokens),
          .qkv = member(kQkv, index, tokens),
          .attended = member(kAttended, index, tokens),
          .logsumexp = logsumexp,
          .sum2 = member(kSum2, index, tokens),
          .normed2 = member(kNormed2, index, tokens),
          .mean2 = member(kMean2, index, tokens),
          .rstd2 = member(kRstd2, index, tokens),
          .up = member(kUp, index, tokens),
          .hidden = member(kHidden, index, tokens)};
}

}  // namespace filigree
