// AdamW where only chosen entries have a gradient that all ranks know, fused with the scatter of the packed ones. The
// operations are those of adamw.h, one rounding each, in its order: with every entry chosen it gives adamw's bits.
//
//   g  = clip · (packed gradient where chosen, else 0; or the whole gradient where there is one)
//   e  = extra_factor · extra                                        what enters m beside the gradient; 0 without
//   m  = beta1 m + (1 - beta1) (g + e)
//   v  = beta2 v + (1 - beta2) g²                                    chosen, or rule `decay`;  (g + e)² if extra_in_v
//   v  = v                                                           not chosen, rule `hold`
//   v  = beta2_window v + (1 - beta2_window) g²                      not chosen, rule `window`
//   p  as AdamW's; not chosen under rule `frozen`: m, v and p stay as they are
//   direction = (m / correction1) / (sqrt(v / correction2) + epsilon) + decay · p, with p before the step
#pragma once

#include <span>

#include "kernels/adamw/adamw.h"
#include "kernels/selection/selection.h"

namespace filigree {

enum class OtherEntries : std::uint8_t { decay, hold, window, frozen };

struct SelectedAdamWArgs {
  AdamWArgs adamw;               // its gradient is the whole one where `packed` is empty, else unused
  Selection chosen = {};         // empty: every entry counts as chosen
  Tensor packed = {};            // (chosen entries) fp32 or bf16
  const float* extra = nullptr;  // (count)
  float extra_factor = 1.0f;     // clipping of its own included
  bool extra_in_v = false;
  OtherEntries others = OtherEntries::decay;
  float beta2_window = 1.0f;   // beta2^T, of rule `window`
  float* direction = nullptr;  // (count), written; may be the gradient's array
};
// Parameters must not overlap. On a GPU with the processor's bits.
void selected_adamw(Device& device, std::span<const SelectedAdamWArgs> parameters);

namespace cuda {
void selected_adamw(Device& device, std::span<const SelectedAdamWArgs> parameters);
}  // namespace cuda

}  // namespace filigree
