#include "benchmark/exchange_plan.h"

#include <fmt/core.h>

#include "comm/exchange_bytes.h"
#include "comm/gradient_exchange.h"
#include "model/transformer.h"

namespace filigree {
namespace {

// A communicator that is only asked how many ranks there are.
class PlannedRanks final : public Communicator {
 public:
  explicit PlannedRanks(std::int64_t size) : size_(static_cast<int>(size)) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::string_view name() const override { return "planned"; }
  using Communicator::all_gather;
  std::vector<std::string> all_gather(std::string_view) override { throw Error("planned ranks exchange nothing"); }
  void give_up() noexcept override {}

 protected:
  std::uint64_t start_all_reduce(Device&, std::span<const Tensor>) override { return 0; }
  std::uint64_t start_reduce_scatter(Device&, const Tensor&, const Tensor&) override { return 0; }
  std::uint64_t start_all_gather(Device&, const Tensor&, const Tensor&) override { return 0; }
  std::uint64_t start_broadcast(Device&, const Tensor&, int) override { return 0; }
  void wait(Device&, std::uint64_t) override {}

 private:
  int size_;
};

bool has_sparse_layers(const Transformer& model) {
  for (const Linear* linear : model.linears())
    if (linear->weight().spec().method != "dense") return true;
  return false;
}

std::vector<TensorSize> sizes_of(Transformer& model) {
  std::vector<TensorSize> sizes;
  for (const Parameter* parameter : model.parameters()) {
    TensorSize size{.name = parameter->name(), .count = parameter->count(), .shared = parameter->shard().rest_begin};
    if (const Shape& shape = parameter->options().shape; shape.rank() == 2 && !size.name.ends_with(".weight.values")) {
      size.rows = shape[0];
      size.columns = shape[1];
    }
    sizes.push_back(size);
  }
  return sizes;
}

double exchange_seconds(const Network& network, std::int64_t ranks, const ExchangeBytes& bytes) {
  const auto seconds = [&](const StepBytes& step) {
    const double part = step.shared / static_cast<double>(ranks);
    return all_reduce_seconds(network, ranks, step.summed) + all_gather_seconds(network, ranks, step.gathered) +
           all_gather_seconds(network, ranks, part);
  };
  const double flushes = 1.0 / static_cast<double>(bytes.interval);
  return (1.0 - flushes) * seconds(bytes.ordinary) + flushes * seconds(bytes.flush);
}

// The configuration's exchange and those that it is compared with, each on fp32 and bf16 wires.
std::vector<std::pair<std::string, Config>> contestants(const Config& config, bool compressed) {
  std::vector<std::pair<std::string, Config>> all;
  const auto with = [&](const std::string& exchange, double density) {
    for (const DType wire : {DType::f32, DType::bf16}) {
      if (exchange == "powersgd" && wire == DType::bf16) continue;
      Config other = config;
      other.gradients.exchange = exchange;
      other.gradients.density = density;
      other.gradients.wire_dtype = wire;
      if (exchange == "radius") other.distributed.zero = 0;  // it cannot
      std::string name = exchange;
      if (exchange == "powersgd")
        name += fmt::format("-{}", config.gradients.rank);
      else if (exchange != "dense")
        name += fmt::format("-{}", density);
      all.emplace_back(name + "-" + std::string(name_of(wire)), other);
    }
  };
  const std::string& own = config.gradients.exchange;
  const double density = own == "radius" || own == "randomk" ? config.gradients.density : 0.4;
  with("dense", 1.0);
  with("radius", density);
  with("topk", own == "topk" ? config.gradients.density : 0.01);
  with("randomk", density);
  if (!compressed) with("powersgd", 1.0);
  return all;
}

}  // namespace

ExchangePlan plan_exchanges(const PlanSettings& settings) {
  const auto device = Device::plan();
  const Config& config = settings.config;
  const PlannedSharding sharding(config.distributed.zero == 1 ? settings.ranks : 1);
  Transformer model(*device, config, Mode::training, false, &sharding);
  const std::int64_t sequences =
      config.train.micro_batch > 0
          ? config.train.micro_batch
          : std::max<std::int64_t>(config.train.batch_tokens / config.model.context / settings.ranks, 1);
  const Activations activations(*device, config.model, config.run.precision, sequences, config.model.context,
                                recompute_named(config.train.recompute));
  PlannedRanks ranks(settings.ranks);
  const auto exchange = make_gradient_exchange(config, ranks);
  exchange->attach(*device, model.parameters());

  ExchangePlan plan;
  for (int purpose = 0; purpose < kPurposeCount; ++purpose)
    if (const std::int64_t bytes = device->memory().bytes(static_cast<Purpose>(purpose)); bytes > 0)
      plan.memory.emplace_back(name_of(static_cast<Purpose>(purpose)), bytes);
  const std::vector<TensorSize> sizes = sizes_of(model);
  for (const TensorSize& size : sizes) plan.parameters += size.count;

  const auto all = contestants(config, has_sparse_layers(model));
  for (const auto& [name, other] : all) {
    const ExchangeBytes bytes = exchange_bytes(other, sizes, settings.ranks);
    const StepBytes mean = bytes.mean();
    ExchangeForecast forecast{.exchange = name,
                              .payload = mean.handed_over(),
                              .sent = ring_bytes(mean, settings.ranks),
                              .seconds = exchange_seconds(settings.network, settings.ranks, bytes)};
    if (settings.compute > 0.0) {
      const double buckets = std::max(1.0, mean.handed_over() / (config.distributed.bucket_mb * 0x1p20));
      const StepCost cost = {.compute = settings.compute,
                             .overhead = other.gradients.exchange == "radius" ? settings.overhead : 0.0,
                             .first_bucket = 1.0 / buckets};
      forecast.step = step_seconds(cost, forecast.seconds, false);
      forecast.overlapped = step_seconds(cost, forecast.seconds, true);
    }
    plan.forecasts.push_back(forecast);
  }
  for (std::int64_t count = 2; count <= 10240; count = count == 8192 ? 10240 : 2 * count) {
    std::vector<double> seconds;
    for (const auto& [name, other] : all)
      seconds.push_back(exchange_seconds(settings.network, count, exchange_bytes(other, sizes, count)));
    plan.by_ranks.emplace_back(count, std::move(seconds));
  }
  return plan;
}

PaperForecast forecast_paper() {
  constexpr double kParameters = 2019640320.0;
  constexpr double kDenseShare = 0.2;  // of the steps: the switch is at 60,000 of 300,000
  const Network network = network_named("slingshot-11");
  const StepCost dense = {.compute = 0.75};                      // fitted to the published step times
  const StepCost radius = {.compute = 0.75, .overhead = 0.295};  // its own passes, as published
  PaperForecast forecast;
  forecast.dense = step_seconds(dense, all_reduce_seconds(network, 64, 4.0 * kParameters), false);
  forecast.radius =
      step_seconds(radius, radius_seconds(network, 64, 0.4 * 4.0 * kParameters, 4.0 * kParameters, 200), false);
  forecast.overlapped_bf16 = step_seconds(dense, all_reduce_seconds(network, 64, 2.0 * kParameters), true);
  forecast.step_saving = 1.0 - forecast.radius / forecast.dense;
  forecast.total_saving = (1.0 - kDenseShare) * forecast.step_saving;
  forecast.total_speedup = 1.0 / (1.0 - forecast.total_saving);
  return forecast;
}

}  // namespace filigree
