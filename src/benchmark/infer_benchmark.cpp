#include "benchmark/infer_benchmark.h"

#include <algorithm>
#include <memory>

#include "benchmark/for_device.h"
#include "benchmark/named_method.h"
#include "benchmark/timing.h"
#include "model/transformer.h"

namespace filigree {
namespace {

class Contestant {
 public:
  Contestant(Config config, std::int64_t batch, std::int64_t prompt)
      : device_(Device::named(config.run.device, config.run.threads)),
        config_(for_device(std::move(config), *device_)),
        model_(*device_, config_, Mode::inference, false),
        activations_(*device_, config_.model, config_.run.precision, batch, prompt, Recompute::inference),
        cache_(model_.make_cache(*device_, batch, config_.model.context)),
        tokens_(device_->memory().tensor(Purpose::data, DType::i32, {batch, prompt})),
        logits_(device_->memory().tensor(Purpose::activations, config_.run.precision, {batch, config_.model.vocab})) {
    device_->set_deterministic(config_.run.deterministic);
    model_.initialize(*device_);
    if (config_.adapters.rank > 0) model_.insert_adapters(*device_);
    PlanTable plans(!config_.run.deterministic);
    if (batch * prompt > 16) model_.plan(*device_, plans, batch * prompt);
  }

  // One pass over `count` tokens of each sequence; which ones does not matter.
  void read(std::int64_t count) {
    Tensor view = tokens_;
    view.shape = {tokens_.view().shape[0], count};
    model_.forward_cached(*device_, activations_, view, cache_, logits_);
  }
  void prefill() {
    cache_.length = 0;
    read(tokens_.view().shape[1]);
    device_->synchronize();
  }
  void decode(std::int64_t count) {
    cache_.length = tokens_.view().shape[1];
    for (std::int64_t i = 0; i < count; ++i) read(1);
    device_->synchronize();
  }
  const Device& device() const { return *device_; }
  std::int64_t bytes() const {
    return device_->memory().bytes(Purpose::weights) + device_->memory().bytes(Purpose::metadata);
  }

 private:
  std::unique_ptr<Device> device_;
  Config config_;
  Transformer model_;
  Activations activations_;
  KeyValueCache cache_;
  OwnedTensor tokens_, logits_;
};

}  // namespace

std::vector<ResultRow> benchmark_infer(const InferBenchmark& benchmark) {
  const Config& config = benchmark.config;
  require_user(benchmark.batch >= 1 && benchmark.prompt >= 1 && benchmark.tokens >= 1 &&
                   benchmark.prompt + benchmark.tokens <= config.model.context,
               "--prompt " + std::to_string(benchmark.prompt) + " and --tokens " + std::to_string(benchmark.tokens) +
                   ": together at most the model's context, " + std::to_string(config.model.context));
  std::vector<std::unique_ptr<Contestant>> contestants;
  std::vector<std::function<void()>> prefills, decodes;
  for (const std::string& method : benchmark.methods) {
    contestants.push_back(std::make_unique<Contestant>(with_method(config, parse_method(method).value()),
                                                       benchmark.batch, benchmark.prompt));
    prefills.push_back([contestant = contestants.back().get()] { contestant->prefill(); });
    decodes.push_back([contestant = contestants.back().get(), &benchmark] { contestant->decode(benchmark.tokens); });
  }
  const Device& device = contestants.front()->device();
  const std::vector<Measured> prefill = time_in_turn(prefills, benchmark.repeats);
  const std::vector<Measured> decode = time_in_turn(decodes, benchmark.repeats);

  std::vector<ResultRow> rows;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    ResultRow row{.name = benchmark.name,
                  .method = row_method(benchmark.methods[i], config.weights, device.is_cuda()),
                  .config = {.batch = benchmark.batch,
                             .sequence = benchmark.prompt,
                             .layers = config.model.layers,
                             .precision = std::string(name_of(config.run.precision)),
                             .seed = config.run.seed,
                             .vocab = config.model.vocab,
                             .threads = config_threads(device)},
                  .metric = "prefill_ms",
                  .measured = prefill[i],
                  .baseline = ""};
    rows.push_back(row);
    const double tokens = static_cast<double>(benchmark.batch * benchmark.tokens) * 1e3;
    row.metric = "decode_tokens_per_s";
    row.measured = {tokens / decode[i].median, tokens / decode[i].max, tokens / decode[i].min};
    rows.push_back(row);
    const auto bytes = static_cast<double>(contestants[i]->bytes());
    row.metric = "infer_bytes";
    row.measured = {bytes, bytes, bytes};
    rows.push_back(row);
  }
  compare_with(rows, "dense");
  return rows;
}

}  // namespace filigree
