#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace filigree {

double learning_rate(const TrainConfig& train, std::int64_t step) {
  if (step < train.warmup) return train.lr * static_cast<double>(step + 1) / static_cast<double>(train.warmup);
  const double length = static_cast<double>(std::max<std::int64_t>(train.steps - train.warmup, 1));
  const double progress = std::min(1.0, static_cast<double>(step - train.warmup) / length);
  const double floor = train.min_lr;
  if (train.schedule == "constant") return train.lr;
  if (train.schedule == "linear") return train.lr * (1.0 - (1.0 - floor) * progress);
  require(train.schedule == "cosine", "unknown schedule");
  return train.lr * (floor + (1.0 - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

std::int64_t phase_start(const TrainConfig& train, double fraction) {
  return static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(train.steps)));
}

double adapter_learning_rate(const Config& config, std::int64_t start, std::int64_t step) {
  const double length = static_cast<double>(std::max<std::int64_t>(config.train.steps - start, 1));
  const double remaining = 1.0 - static_cast<double>(step - start) / length;
  return config.adapters.rewarm * config.train.lr * std::clamp(remaining, 0.0, 1.0);
}

}  // namespace filigree
