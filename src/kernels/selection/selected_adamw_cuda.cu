#include "kernels/selection/selected_adamw.h"
#include "kernels/selection/selection_cuda.cuh"

// Bound by memory, as adamw_cuda.cu: 24 bytes an entry and the packed gradients of the chosen ones.

namespace filigree::cuda {
namespace {

struct Update {
  __nv_bfloat16* values;  // null where the values are fp32, the master
  float* master;
  const float* gradient;  // null where gradients are packed
  float* m;
  float* v;
  const void* packed;
  const float* extra;
  float* direction;
  Selection chosen;  // bits may be null: all entries
  float clip, beta1, rest1, beta2, rest2, window, rest_window, correction1, correction2, lr, shrink, decay, epsilon;
  float extra_factor;
  bool packed_bf16, extra_in_v;
  OtherEntries others;
};

// One rounding an operation, as on the processor: the compiler must not make FMAs of them.
__device__ __forceinline__ void update_entry(const Update& args, std::int64_t i, bool chosen, float gradient) {
  const float old_m = args.m[i], old_v = args.v[i], old_p = args.master[i];
  const float g = __fmul_rn(gradient, args.clip);
  const float sum = args.extra ? __fadd_rn(g, __fmul_rn(args.extra_factor, args.extra[i])) : g;
  const float in_v = args.extra_in_v ? sum : g;
  const float square = __fmul_rn(in_v, in_v);
  const bool ordinary = chosen || args.others == OtherEntries::decay;
  const bool moves = ordinary || args.others != OtherEntries::frozen;
  const float m = moves ? __fadd_rn(__fmul_rn(args.beta1, old_m), __fmul_rn(args.rest1, sum)) : old_m;
  float v = old_v;
  if (ordinary)
    v = __fadd_rn(__fmul_rn(args.beta2, old_v), __fmul_rn(args.rest2, square));
  else if (args.others == OtherEntries::window)
    v = __fadd_rn(__fmul_rn(args.window, old_v), __fmul_rn(args.rest_window, square));
  const float root = __fadd_rn(__fsqrt_rn(__fdiv_rn(v, args.correction2)), args.epsilon);
  const float mean = __fdiv_rn(m, args.correction1);
  if (moves) {
    float p = __fsub_rn(old_p, __fmul_rn(args.shrink, old_p));
    p = __fsub_rn(p, __fdiv_rn(__fmul_rn(args.lr, mean), root));
    args.m[i] = m;
    args.v[i] = v;
    args.master[i] = p;
    if (args.values) args.values[i] = __float2bfloat16_rn(p);
  }
  if (args.direction) args.direction[i] = __fadd_rn(__fdiv_rn(mean, root), __fmul_rn(args.decay, old_p));
}

__global__ __launch_bounds__(kSelectionThreads) void selected_adamw_kernel(
    const __grid_constant__ Batch<Update> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Update& args = batch.args[place.array];
  if (!args.chosen.bits) {
    for (int word = 0; word < kWordsOfGroup; ++word) {
      const std::int64_t i = place.group * kSelectionGroup + word * 32 + lane_of_thread();
      if (i < args.chosen.count) update_entry(args, i, true, args.gradient[i]);
    }
    return;
  }
  for_group(args.chosen, place.group, [&](std::int64_t i, bool chosen, int at) {
    float gradient = 0.0f;
    if (args.gradient)
      gradient = args.gradient[i];
    else if (chosen)
      gradient = args.packed_bf16 ? to_float(static_cast<const __nv_bfloat16*>(args.packed)[at])
                                  : static_cast<const float*>(args.packed)[at];
    update_entry(args, i, chosen, gradient);
  });
}

}  // namespace

void selected_adamw(Device& device, std::span<const SelectedAdamWArgs> parameters) {
  std::vector<Update> list;
  for (const SelectedAdamWArgs& args : parameters) {
    const AdamWArgs& adamw = args.adamw;
    if (adamw.count == 0) continue;
    Selection chosen = args.chosen;
    chosen.count = adamw.count;
    const bool is_bf16 = adamw.values.dtype == DType::bf16;
    list.push_back({.values = is_bf16 ? static_cast<__nv_bfloat16*>(adamw.values.data) : nullptr,
                    .master = adamw.master,
                    .gradient = args.packed.empty() ? adamw.gradient : nullptr,
                    .m = adamw.m,
                    .v = adamw.v,
                    .packed = args.packed.data,
                    .extra = args.extra,
                    .direction = args.direction,
                    .chosen = chosen,
                    .clip = adamw.step.clip,
                    .beta1 = adamw.beta1,
                    .rest1 = 1.0f - adamw.beta1,
                    .beta2 = adamw.beta2,
                    .rest2 = 1.0f - adamw.beta2,
                    .window = args.beta2_window,
                    .rest_window = 1.0f - args.beta2_window,
                    .correction1 = adamw.step.bias_correction1,
                    .correction2 = adamw.step.bias_correction2,
                    .lr = adamw.step.lr,
                    .shrink = adamw.step.lr * adamw.decay,
                    .decay = adamw.decay,
                    .epsilon = adamw.epsilon,
                    .extra_factor = args.extra_factor,
                    .packed_bf16 = args.packed.dtype == DType::bf16,
                    .extra_in_v = args.extra_in_v,
                    .others = args.others});
  }
  for_batches(
      std::span<const Update>(list), [](const Update& args) { return args.chosen.count; },
      [&](const Batch<Update>& batch, unsigned int blocks) {
        selected_adamw_kernel<<<blocks, kSelectionThreads, 0, device.stream()>>>(batch);
      });
}

}  // namespace filigree::cuda
