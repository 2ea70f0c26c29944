#include "comm/exchange_bytes.h"

#include <algorithm>

#include "comm/exchange_state.h"
#include "comm/radius_exchange.h"
#include "comm/topk_exchange.h"

namespace filigree {
namespace {

// What a range adds to its centres depends on where they lie; here none overlap, the most that it can be.
std::int64_t sent_by_radius(const GradientsConfig& gradients, const TensorSize& tensor) {
  if (is_bias(tensor.name)) return tensor.count;
  return std::min(tensor.count, chosen_entries(gradients.density, tensor.count) * (2 * gradients.range + 1));
}

}  // namespace

StepBytes ExchangeBytes::mean() const {
  const double flushes = 1.0 / static_cast<double>(interval);
  return {.summed = (1.0 - flushes) * ordinary.summed + flushes * flush.summed,
          .gathered = (1.0 - flushes) * ordinary.gathered + flushes * flush.gathered,
          .shared = (1.0 - flushes) * ordinary.shared + flushes * flush.shared};
}

ExchangeBytes exchange_bytes(const Config& config, const std::vector<TensorSize>& tensors, std::int64_t ranks) {
  const GradientsConfig& gradients = config.gradients;
  const auto value = static_cast<double>(size_of(gradients.wire_dtype));
  ExchangeBytes bytes;
  // Values come back in the run's type, whatever exchange has carried the gradients.
  const bool sharded = config.distributed.zero == 1;
  const std::int64_t rows = listed_rows(config, ranks);
  const auto listed = [&](const TensorSize& tensor) { return rows > 0 && tensor.name == kListedParameter; };
  double values = 0.0, lists = 0.0;
  for (const TensorSize& tensor : tensors) {
    const auto count = static_cast<double>(tensor.count), shared = sharded ? static_cast<double>(tensor.shared) : 0.0;
    values += static_cast<double>(size_of(config.run.precision)) * shared;
    if (listed(tensor)) {
      lists = static_cast<double>(rows) * (4.0 + value * static_cast<double>(tensor.columns));
      continue;
    }
    const bool scattered = gradients.exchange == "dense";
    bytes.whole.summed += value * (scattered ? count - shared : count);
    bytes.whole.shared += value * (scattered ? shared : 0.0);
  }
  bytes.whole.shared += values;
  bytes.whole.gathered = lists;
  bytes.flush = bytes.ordinary = bytes.whole;
  if (gradients.exchange == "dense") return bytes;
  bytes.ordinary = {.gathered = lists, .shared = values};
  for (const TensorSize& tensor : tensors) {
    if (tensor.count == 0 || listed(tensor)) continue;
    const auto keep = static_cast<double>(chosen_entries(gradients.density, tensor.count));
    if (gradients.exchange == "radius") {
      const std::int64_t sent = sent_by_radius(gradients, tensor);
      bytes.ordinary.summed += value * static_cast<double>(sent);
      // With a flush at each step nothing waits.
      if (radius_flushes_apart(radius_settings(config)) && sent < tensor.count && gradients.interval > 1)
        bytes.flush.summed += 4.0 * static_cast<double>(tensor.count);
    } else if (gradients.exchange == "randomk") {
      bytes.ordinary.summed += value * keep;
    } else if (gradients.exchange == "topk") {
      bytes.ordinary.gathered +=
          static_cast<double>(topk_list_bytes(static_cast<std::int64_t>(keep), gradients.wire_dtype));
    } else {
      const double factors = static_cast<double>(gradients.rank * (tensor.rows + tensor.columns));
      const bool factored = tensor.rows > 0 && factors < static_cast<double>(tensor.count);
      bytes.ordinary.summed += value * (factored ? factors : static_cast<double>(tensor.count));
    }
  }
  if (gradients.exchange == "radius")
    bytes.interval = gradients.interval;
  else
    bytes.flush = bytes.ordinary;
  return bytes;
}

double ring_bytes(const StepBytes& bytes, std::int64_t ranks) {
  const auto p = static_cast<double>(ranks);
  return (p - 1.0) / p * (2.0 * bytes.summed + bytes.shared) + (p - 1.0) * bytes.gathered;
}

}  // namespace filigree
