// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace filigree {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most likely token
  std::int64_t top_k = 0;    // only the k most likely; 0: all
  double top_p = 1.0;        // only the most likely that together have this probability
  std::uint64_t seed = 1;
};

// Throws UserError naming the option when one is out of range.
void check_sampling(const SamplingOptions& options);

// A token for logits (V), fp32 or bf16. `index` is the token's place in the text: the same seed, index and logits give
// the same token. Ties are broken by the smaller id.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  std::int32_t sample(const Tensor& logits, std::int64_t index);

 private:
  SamplingOptions options_;
  Random random_;
  std::vector<std::pair<float, std::int32_t>> candidates_;  // reused
};

}  // namespace filigree
