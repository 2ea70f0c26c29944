#include "comm/gradient_exchange.h"

#include <algorithm>

#include "comm/dense_exchange.h"
#include "comm/powersgd_exchange.h"
#include "comm/radius_exchange.h"
#include "comm/randomk_exchange.h"
#include "comm/row_sparse_exchange.h"
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

namespace {

std::unique_ptr<GradientExchange> named_exchange(const Config& config, Communicator& communicator) {
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

}  // namespace

std::int64_t listed_rows(const Config& config, std::int64_t ranks) {
  const ModelConfig& model = config.model;
  if (!config.gradients.sparse_rows || model.tied || ranks == 1) return 0;
  // Sequences are shared out as evenly as can be.
  const std::int64_t sequences = config.train.batch_tokens / model.context;
  const std::int64_t rows = std::min((sequences + ranks - 1) / ranks * model.context, model.vocab);
  return rows_pay(ranks, rows, {model.vocab, model.width}, config.gradients.wire_dtype) ? rows : 0;
}

std::unique_ptr<GradientExchange> make_gradient_exchange(const Config& config, Communicator& communicator) {
  std::unique_ptr<GradientExchange> exchange = named_exchange(config, communicator);
  const std::int64_t rows = listed_rows(config, communicator.size());
  if (rows == 0) return exchange;
  return std::make_unique<RowSparseExchange>(communicator, std::move(exchange), std::string(kListedParameter), rows,
                                             config.gradients.wire_dtype);
}

}  // namespace filigree
