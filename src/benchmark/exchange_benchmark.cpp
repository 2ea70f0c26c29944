#include "benchmark/exchange_benchmark.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>

#include "benchmark/for_device.h"
#include "benchmark/timing.h"
#include "comm/exchange_bytes.h"
#include "comm/gradient_exchange.h"
#include "core/random.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/random/random_fill.h"
#include "model/batch_runner.h"
#include "optim/optimizer.h"

namespace filigree {
namespace {

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('-', begin), name.size());
    words.emplace_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// A model and its exchange. Steps are numbered as they come in a run, but the ordinary ones between two flushes are
// skipped when enough of them were timed.
class Contestant {
 public:
  Contestant(const ExchangeBenchmark& benchmark, const std::string& method, Communicator& ranks, int threads)
      : ranks_(ranks),
        device_(Device::named(benchmark.config.run.device, threads)),
        config_(configured(benchmark, method, ranks, *device_)),
        model_(*device_, config_, Mode::training, false),
        exchange_(make_gradient_exchange(config_, ranks)),
        batch_(benchmark.batch) {
    device_->set_deterministic(config_.run.deterministic);
    model_.initialize(*device_);
    PlanTable plans(!config_.run.deterministic);
    if (batch_ > 0) {
      activations_ = std::make_unique<Activations>(*device_, config_.model, config_.run.precision, batch_,
                                                   config_.model.context, recompute_named(config_.train.recompute));
      model_.plan(*device_, plans, batch_ * config_.model.context);
      make_batch();
    }
    parameters_ = batch_ > 0 ? model_.parameters_as_they_get_ready() : model_.parameters();
    exchange_->attach(*device_, parameters_);
    if (batch_ == 0) keep_gradients();
  }

  struct Cost {
    double exchange = 0.0, step = 0.0, sent = 0.0;  // ms, ms, bytes
  };
  Cost ordinary() {
    ++step_;
    if (interval() > 1 && step_ % interval() == 0) ++step_;  // flushes are counted by themselves
    return run(step_);
  }
  // The next step that flushes, where the exchange has some.
  Cost flush() {
    step_ = (step_ / interval() + 1) * interval();
    return run(step_);
  }
  std::int64_t interval() const { return config_.gradients.exchange == "radius" ? config_.gradients.interval : 1; }
  Cost first() { return run(step_); }
  const Config& config() const { return config_; }
  const Device& device() const { return *device_; }
  Transformer& model() { return model_; }

 private:
  using Clock = std::chrono::steady_clock;
  static Config configured(const ExchangeBenchmark& benchmark, const std::string& method, const Communicator& ranks,
                           const Device& device) {
    Config config = for_device(with_exchange(benchmark.config, parse_exchange(method).value()), device);
    // Lists of rows have room for a rank's tokens.
    config.train.batch_tokens = std::max<std::int64_t>(benchmark.batch, 1) * config.model.context * ranks.size();
    return config;
  }
  static double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

  void make_batch() {
    for (OwnedTensor* ids : {&tokens_, &targets_})
      *ids = device_->memory().tensor(Purpose::data, DType::i32, {batch_, config_.model.context});
    const Random random(config_.run.seed, RandomPurpose::benchmark, static_cast<std::uint32_t>(ranks_.rank()));
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i <= tokens_.view().count(); ++i)
      ids.push_back(static_cast<std::int32_t>(
          random.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(config_.model.vocab))));
    device_->copy_from_host(tokens_, ids.data());
    device_->copy_from_host(targets_, ids.data() + 1);
  }

  // Without a backward pass every step begins with the same random gradients.
  void keep_gradients() {
    std::uint32_t stream = static_cast<std::uint32_t>(ranks_.rank()) << 16;
    for (const Parameter* parameter : parameters_) {
      OwnedTensor kept = device_->memory().tensor(Purpose::workspace, DType::f32, parameter->gradient().shape);
      if (parameter->count() > 0)
        fill_normal(*device_, kept, Random(config_.run.seed, RandomPurpose::benchmark, ++stream), 1e-3f);
      // As after a backward pass, which sees no more tokens than there are.
      if (const std::int64_t rows = listed_rows(config_, ranks_.size());
          rows > 0 && rows < kept.view().shape[0] && parameter->name() == kListedParameter)
        fill(*device_, kept.view().slice(rows, kept.view().shape[0] - rows), 0.0f);
      gradients_.push_back(std::move(kept));
    }
  }

  Cost run(std::int64_t step) {
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      if (parameters_[i]->count() > 0) device_->copy(parameters_[i]->gradient(), gradients_[i]);
    device_->synchronize();
    ranks_.barrier();
    const double sent = ranks_.traffic().wire;
    const auto start = Clock::now();
    auto exchange_start = start;
    exchange_->begin_step(*device_, {.step = step, .steps = 1 << 30});
    const GradientReady ready = [&](Parameter& parameter) { exchange_->gradient_ready(*device_, parameter); };
    const bool beside = batch_ > 0 && config_.distributed.overlap;
    if (batch_ > 0)
      runner_.run(*device_, model_, *activations_, tokens_, targets_,
                  1.0f / static_cast<float>(tokens_.view().count() * ranks_.size()), false,
                  beside ? ready : GradientReady());
    if (!beside) {
      device_->synchronize();
      exchange_start = Clock::now();
      for (Parameter* parameter : parameters_) ready(*parameter);
    }
    exchange_->finish(*device_);
    device_->synchronize();
    Cost cost{.exchange = ms_since(exchange_start), .step = 0.0, .sent = ranks_.traffic().wire - sent};
    const double norm = std::sqrt(exchange_->sum_of_squares(*device_));
    const GroupStep group{.lr = 1e-4, .t = step + 1};
    exchange_->update(*device_, adamw_updates(parameters_, config_.train, group, group, norm > 1.0 ? 1.0 / norm : 1.0));
    model_.refresh(*device_);
    device_->synchronize();
    cost.step = ms_since(start);
    return cost;
  }

  Communicator& ranks_;
  std::unique_ptr<Device> device_;
  Config config_;
  Transformer model_;
  std::unique_ptr<GradientExchange> exchange_;
  std::int64_t batch_;
  std::unique_ptr<Activations> activations_;
  OwnedTensor tokens_, targets_;
  BatchRunner runner_;
  std::vector<Parameter*> parameters_;
  std::vector<OwnedTensor> gradients_;
  std::int64_t step_ = 0;
};

// Of an interval: one flush and interval - 1 ordinary steps.
Measured mean_of(const Measured& ordinary, const Measured& flush, std::int64_t interval) {
  const double share = 1.0 / static_cast<double>(interval);
  const auto mean = [&](double a, double b) { return (1.0 - share) * a + share * b; };
  return {.median = mean(ordinary.median, flush.median),
          .min = mean(ordinary.min, flush.min),
          .max = mean(ordinary.max, flush.max)};
}

// Bytes of the layers' weights that some method makes sparse, as this one stores them.
double sparse_layers_bytes(Contestant& contestant, const std::vector<std::string>& layers, int ranks) {
  std::vector<TensorSize> sizes;
  for (const Parameter* parameter : contestant.model().parameters())
    for (const std::string& layer : layers)
      if (parameter->name() == layer + ".weight" || parameter->name() == layer + ".weight.values")
        sizes.push_back({.name = parameter->name(), .count = parameter->count()});
  return ring_bytes(exchange_bytes(contestant.config(), sizes, ranks).mean(), ranks);
}

}  // namespace

std::optional<NamedExchange> parse_exchange(std::string_view name) {
  const std::vector<std::string> words = words_of(name);
  std::size_t at = 0;
  NamedExchange method;
  const auto next_is = [&](std::initializer_list<std::string_view> choices) {
    return at < words.size() && std::find(choices.begin(), choices.end(), words[at]) != choices.end();
  };
  if (next_is({"slope", "block"})) method.weights = words[at++];
  if (next_is({"dense", "radius", "topk", "randomk", "powersgd"}))
    method.exchange = words[at++];
  else if (method.weights == "dense")
    return std::nullopt;
  const bool has_density = method.exchange == "radius" || method.exchange == "topk" || method.exchange == "randomk";
  if (has_density && at < words.size() && !next_is({"fp32", "bf16"})) {
    const std::string& text = words[at++];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), method.density);
    if (error != std::errc() || end != text.data() + text.size() || !(method.density > 0.0 && method.density <= 1.0))
      return std::nullopt;
  }
  if (next_is({"fp32", "bf16"})) method.wire = words[at++] == "bf16" ? DType::bf16 : DType::f32;
  if (at != words.size() || (method.exchange == "powersgd" && method.wire == DType::bf16)) return std::nullopt;
  return method;
}

Config with_exchange(Config config, const NamedExchange& method) {
  config.weights.method = method.weights;
  config.gradients.exchange = method.exchange;
  config.gradients.density = method.density;
  config.gradients.wire_dtype = method.wire;
  // From the first step on, and without what is only measured.
  config.gradients.start = 0.0;
  config.gradients.warmup = 0;
  config.gradients.measure = false;
  return config;
}

std::vector<ResultRow> benchmark_exchange(const ExchangeBenchmark& benchmark, Communicator& ranks, int threads) {
  std::vector<std::unique_ptr<Contestant>> contestants;
  std::vector<std::string> sparse;
  for (const std::string& method : benchmark.methods) {
    contestants.push_back(std::make_unique<Contestant>(benchmark, method, ranks, threads));
    if (!sparse.empty()) continue;
    for (const Linear* linear : contestants.back()->model().linears())
      if (linear->weight().spec().method != "dense") sparse.push_back(linear->weight().spec().name);
  }
  struct Samples {
    std::vector<double> exchange, step;
    double sent = 0.0;
    void add(const Contestant::Cost& cost) {
      exchange.push_back(cost.exchange);
      step.push_back(cost.step);
      sent = cost.sent;
    }
  };
  std::vector<Samples> ordinary(contestants.size()), flushes(contestants.size());
  for (const auto& contestant : contestants) {
    contestant->first();
    for (int warm_up = 0; warm_up < 2; ++warm_up) contestant->ordinary();
  }
  for (int repeat = 0; repeat < benchmark.repeats; ++repeat)
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      ordinary[i].add(contestants[i]->ordinary());
      if (contestants[i]->interval() > 1 && repeat % 2 == 0) {
        flushes[i].add(contestants[i]->flush());
        contestants[i]->ordinary();  // the first with the new choice
      }
    }

  std::vector<ResultRow> rows;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    Contestant& contestant = *contestants[i];
    const Config& config = contestant.config();
    const std::int64_t interval = contestant.interval();
    const Samples& flush = interval > 1 ? flushes[i] : ordinary[i];
    const ResultConfig row_config = {.batch = std::max<std::int64_t>(benchmark.batch, 1),
                                     .sequence = config.model.context,
                                     .layers = config.model.layers,
                                     .precision = std::string(name_of(config.run.precision)),
                                     .ranks = ranks.size(),
                                     .seed = config.run.seed,
                                     .vocab = config.model.vocab,
                                     .threads = config_threads(contestant.device())};
    const auto add_row = [&](const std::string& metric, const Measured& value) {
      rows.push_back({.name = benchmark.name,
                      .method = benchmark.methods[i],
                      .config = row_config,
                      .metric = metric,
                      .measured = value,
                      .baseline = "",
                      .ratio = 0.0});
    };
    const auto exact = [](double value) { return Measured{.median = value, .min = value, .max = value}; };
    add_row("bytes_sent", mean_of(exact(ordinary[i].sent), exact(flush.sent), interval));
    if (!sparse.empty())
      add_row("sparse_layers_bytes_sent", exact(sparse_layers_bytes(contestant, sparse, ranks.size())));
    if (benchmark.batch == 0 || !config.distributed.overlap)
      add_row("exchange_ms", mean_of(measured(ordinary[i].exchange), measured(flush.exchange), interval));
    if (benchmark.batch == 0) continue;
    const Measured step = mean_of(measured(ordinary[i].step), measured(flush.step), interval);
    add_row("step_ms", step);
    const double tokens = static_cast<double>(benchmark.batch * config.model.context * ranks.size()) * 1e3;
    add_row("tokens_per_s", {.median = tokens / step.median, .min = tokens / step.max, .max = tokens / step.min});
  }
  compare_with(rows, benchmark.methods.front());
  return rows;
}

}  // namespace filigree
