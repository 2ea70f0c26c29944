#include "comm/gradient_exchange.h"

#include "comm/dense_exchange.h"
#include "comm/powersgd_exchange.h"
#include "comm/radius_exchange.h"
#include "comm/randomk_exchange.h"
#include "comm/topk_exchange.h"
#include "kernels/elementwise/elementwise.h"

namespace filigree {

double GradientExchange::sum_of_squares(Device& device) {
  std::vector<Tensor> gradients;
  for (const Parameter* parameter : parameters_) gradients.push_back(parameter->gradient());
  return filigree::sum_of_squares(device, gradients);
}

void GradientExchange::update(Device& device, std::span<const ParameterUpdate> updates) {
  std::vector<AdamWArgs> plain;
  for (const ParameterUpdate& update : updates) plain.push_back(update.args);
  adamw(device, plain);
}

std::unique_ptr<GradientExchange> make_gradient_exchange(const Config& config, Communicator& communicator) {
  const auto bucket = static_cast<std::int64_t>(config.distributed.bucket_mb * 0x1p20);
  const GradientsConfig& gradients = config.gradients;
  const WireOptions wire = {.dtype = gradients.wire_dtype, .bucket_bytes = bucket};
  if (gradients.exchange == "radius") return std::make_unique<RadiusExchange>(communicator, radius_settings(config));
  if (gradients.exchange == "topk")
    return std::make_unique<TopkExchange>(
        communicator,
        TopkSettings{.density = gradients.density, .start = gradients.start, .warmup = gradients.warmup, .wire = wire});
  if (gradients.exchange == "randomk")
    return std::make_unique<RandomkExchange>(
        communicator,
        RandomkSettings{.density = gradients.density, .start = gradients.start, .seed = config.run.seed, .wire = wire});
  if (gradients.exchange == "powersgd")
    return std::make_unique<PowerSgdExchange>(
        communicator,
        PowerSgdSettings{
            .rank = gradients.rank, .start = gradients.start, .seed = config.run.seed, .bucket_bytes = bucket});
  require(gradients.exchange == "dense", "there is no such exchange: " + gradients.exchange);
  return std::make_unique<DenseExchange>(communicator, config.gradients.wire_dtype, bucket);
}

}  // namespace filigree
