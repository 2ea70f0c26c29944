#include "eval/sampling.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace filigree {

void check_sampling(const SamplingOptions& options) {
  require_user(options.temperature >= 0.0 && std::isfinite(options.temperature),
               "--temperature: " + std::to_string(options.temperature) + "; it must be 0 (most likely token) or more");
  require_user(options.top_k >= 0, "--top-k: " + std::to_string(options.top_k) + "; it must be 0 (all tokens) or more");
  require_user(options.top_p > 0.0 && options.top_p <= 1.0,
               "--top-p: " + std::to_string(options.top_p) + "; it must be above 0 and at most 1");
}

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed, RandomPurpose::sampling) {
  check_sampling(options);
}

std::int32_t Sampler::sample(const Tensor& logits, std::int64_t index) {
  const std::int64_t vocab = logits.count();
  candidates_.resize(static_cast<std::size_t>(vocab));
  with_compute_type(logits.dtype, [&]<typename T>() {
    const T* values = logits.as<T>();
    for (std::int64_t id = 0; id < vocab; ++id)
      candidates_[static_cast<std::size_t>(id)] = {static_cast<float>(values[id]), static_cast<std::int32_t>(id)};
  });
  const auto likelier = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  if (options_.temperature == 0.0) return std::min_element(candidates_.begin(), candidates_.end(), likelier)->second;

  std::size_t count = candidates_.size();
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < count) {
    count = static_cast<std::size_t>(options_.top_k);
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count), candidates_.end(),
                     likelier);
  }
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  std::sort(candidates_.begin(), end, likelier);
  const auto largest = static_cast<double>(candidates_[0].first);
  std::vector<double> weights(count);
  double total = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    weights[i] = std::exp((static_cast<double>(candidates_[i].first) - largest) / options_.temperature);
    total += weights[i];
  }
  if (options_.top_p < 1.0) {
    double kept = 0.0;
    std::size_t size = 0;
    while (size < count && kept < options_.top_p * total) kept += weights[size++];
    count = size;
    total = kept;
  }
  double point = static_cast<double>(random_.u64(static_cast<std::uint64_t>(index)) >> 11) * 0x1p-53 * total;
  for (std::size_t i = 0; i < count; ++i) {
    point -= weights[i];
    if (point < 0.0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace filigree
