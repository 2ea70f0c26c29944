#include "benchmark/step_benchmark.h"

#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "benchmark/for_device.h"
#include "benchmark/named_method.h"
#include "benchmark/timing.h"
#include "core/random.h"
#include "kernels/elementwise/elementwise.h"
#include "model/batch_runner.h"
#include "optim/optimizer.h"

namespace filigree {
namespace {

// A model that trains on one random batch again and again. It has a device of its own, so that its memory is counted
// alone.
class Contestant {
 public:
  Contestant(Config config, std::int64_t batch)
      : device_(Device::named(config.run.device, config.run.threads)),
        config_(for_device(std::move(config), *device_)),
        model_(*device_, config_, Mode::training, false),
        activations_(*device_, config_.model, config_.run.precision, batch, config_.model.context,
                     recompute_named(config_.train.recompute)),
        tokens_(device_->memory().tensor(Purpose::data, DType::i32, {batch, config_.model.context})),
        targets_(device_->memory().tensor(Purpose::data, DType::i32, {batch, config_.model.context})) {
    device_->set_deterministic(config_.run.deterministic);
    model_.initialize(*device_);
    if (config_.adapters.rank > 0) model_.insert_adapters(*device_);
    PlanTable plans(!config_.run.deterministic);
    model_.plan(*device_, plans, batch * config_.model.context);
    const Random random(config_.run.seed, RandomPurpose::benchmark);
    const auto vocab = static_cast<std::uint32_t>(config_.model.vocab);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens_.view().count()) + 1);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(random.below(i, vocab));
    device_->copy_from_host(tokens_, ids.data());
    device_->copy_from_host(targets_, ids.data() + 1);
  }

  void step() {
    const std::int64_t count = tokens_.view().count();
    runner_.run(*device_, model_, activations_, tokens_, targets_, 1.0f / static_cast<float>(count), false);
    sum(*device_, activations_.losses(count));  // as a run reads it
    const std::vector<Parameter*> parameters = model_.parameters();
    const double norm = gradient_norm(*device_, parameters);
    const GroupStep group{.lr = 1e-4, .t = ++t_};
    adamw_step(*device_, parameters, config_.train, group, group, norm > 1.0 ? 1.0 / norm : 1.0);
    model_.refresh(*device_);
    device_->synchronize();
  }
  // A GPU's second step may find scratch memory in another place, and the third is the one that is recorded.
  void settle() {
    for (int steps = 0; device_->is_cuda() && steps < 3; ++steps) step();
  }
  const std::string& refusal() const { return runner_.refusal(); }
  std::int64_t bytes() const { return device_->memory().peak(); }
  const Device& device() const { return *device_; }

 private:
  std::unique_ptr<Device> device_;
  Config config_;
  Transformer model_;
  Activations activations_;
  OwnedTensor tokens_, targets_;
  BatchRunner runner_;
  std::int64_t t_ = 0;
};

// Of the dense model: 6 for each weight of a linear layer, the head included, and causal attention's two products,
// which see half of all pairs, three times.
double training_operations_per_token(const ModelConfig& model) {
  const auto width = static_cast<double>(model.width);
  const double block = width * (static_cast<double>(qkv_width(model)) + width + static_cast<double>(up_width(model)) +
                                static_cast<double>(model.ffn));
  const auto layers = static_cast<double>(model.layers);
  return 6.0 * (layers * block + width * static_cast<double>(model.vocab)) +
         6.0 * layers * width * static_cast<double>(model.context);
}

// Seconds since this process began, to a hundredth.
double process_seconds() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text;
  std::getline(stat, text);
  // The name, in parentheses, may hold spaces; the start is the 20th field behind it, in clock ticks since the boot.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  for (int skipped = 0; skipped < 19; ++skipped) fields >> text;
  double ticks = 0.0, now = 0.0;
  fields >> ticks;
  uptime >> now;
  return now - ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

std::vector<ResultRow> benchmark_step(const StepBenchmark& benchmark) {
  std::vector<std::unique_ptr<Contestant>> contestants;
  std::vector<std::function<void()>> runs;
  double first_step = 0.0;
  for (const std::string& method : benchmark.methods) {
    const Config config = with_method(benchmark.config, parse_method(method).value());
    contestants.push_back(std::make_unique<Contestant>(config, benchmark.batch));
    runs.push_back([contestant = contestants.back().get()] { contestant->step(); });
    if (contestants.size() == 1) {
      runs.back()();
      first_step = process_seconds();
    }
    contestants.back()->settle();
    if (const std::string& refusal = contestants.back()->refusal(); !refusal.empty() && benchmark.note)
      benchmark.note(method + ": micro-batches are not launched as CUDA graphs: " + refusal);
  }
  const std::vector<Measured> times = time_in_turn(runs, benchmark.repeats);

  const Config& config = benchmark.config;
  const double tokens = static_cast<double>(benchmark.batch * config.model.context);
  const std::string suffix =
      (config.train.recompute == "none" ? std::string() : std::string("-recompute-").append(config.train.recompute)) +
      (config.run.deterministic ? "-deterministic" : "");
  const Device& device = contestants.front()->device();
  std::vector<ResultRow> rows;
  for (std::size_t i = 0; i < times.size(); ++i) {
    ResultRow row{.name = benchmark.name,
                  .method = row_method(benchmark.methods[i], config.weights, device.is_cuda()) + suffix,
                  .config = {.batch = benchmark.batch,
                             .sequence = config.model.context,
                             .layers = config.model.layers,
                             .precision = std::string(name_of(config.run.precision)),
                             .seed = config.run.seed,
                             .vocab = config.model.vocab,
                             .threads = config_threads(device)},
                  .metric = "step_ms",
                  .measured = times[i],
                  .baseline = ""};
    rows.push_back(row);
    row.metric = "tokens_per_s";
    row.measured = {tokens / times[i].median * 1e3, tokens / times[i].max * 1e3, tokens / times[i].min * 1e3};
    rows.push_back(row);
    row.metric = "model_tflops";
    const double scale = training_operations_per_token(config.model) / 1e12;
    row.measured = {row.measured.median * scale, row.measured.min * scale, row.measured.max * scale};
    rows.push_back(row);
    const auto bytes = static_cast<double>(contestants[i]->bytes());
    row.metric = "peak_bytes";
    row.measured = {bytes, bytes, bytes};
    rows.push_back(row);
    if (i > 0) continue;
    row.metric = "first_step_s";
    row.measured = {first_step, first_step, first_step};
    rows.push_back(row);
  }
  compare_with(rows, "dense" + suffix);
  return rows;
}

}  // namespace filigree
