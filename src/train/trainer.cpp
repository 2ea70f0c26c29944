#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "comm/agreement.h"
#include "core/interrupt.h"
#include "eval/generate.h"
#include "eval/perplexity.h"
#include "io/atomic_file.h"
#include "io/config_toml.h"
#include "io/model_layers.h"
#include "kernels/elementwise/elementwise.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "report/html_report.h"
#include "train/exchange_state.h"
#include "train/resumption.h"
#include "train/summary.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// With on_nonfinite = "skip", a run that skips this many steps in a row has diverged.
constexpr std::int64_t kSkippedLimit = 10;

std::string describe_model(const Config& config) {
  const ModelConfig& model = config.model;
  return (model.preset.empty() ? model.arch : model.preset + " (" + model.arch + ")") + ", " +
         std::to_string(model.layers) + " layers, width " + std::to_string(model.width) + ", " +
         std::to_string(model.heads) + " heads, vocabulary " + std::to_string(model.vocab) + ", context " +
         std::to_string(model.context);
}

std::string describe_method(const Config& config) {
  std::string text = describe_weights(config.weights);
  if (config.weights.start > 0.0)
    text += " from step " + std::to_string(phase_start(config.train, config.weights.start));
  if (config.adapters.rank > 0)
    text += ", adapters of rank " + std::to_string(config.adapters.rank) + " from step " +
            std::to_string(phase_start(config.train, config.adapters.start));
  return text;
}

}  // namespace

void Trainer::change_phase(std::int64_t step) {
  bool changed = false;
  if (model_->dense_phase() && step >= sparse_start_) {
    sparse_start_ = step;
    model_->start_sparse_phase(*device_);
    plan_products();
    console_.note("step " + std::to_string(step) + ": weights become " + describe_weights(config_.weights));
    changed = true;
  }
  // Adapters join sparse layers: in a dense phase they wait for its end.
  if (config_.adapters.rank > 0 && step >= adapter_start_ && !model_->dense_phase() && !model_->has_adapters()) {
    adapter_start_ = step;
    model_->insert_adapters(*device_);
    console_.note("step " + std::to_string(step) + ": adapters of rank " + std::to_string(config_.adapters.rank) +
                  " inserted");
    changed = true;
  }
  if (!changed) return;
  reported_ = ranks_.traffic();  // sharded state has come together: no part of a step
  runner_.forget();
  if (exchange_) exchange_->attach(*device_, model_->parameters_as_they_get_ready());
  write_summary();
}

TrainOutcome Trainer::run() {
  const std::int64_t steps = config_.train.steps;
  if (first_step_ >= steps && !new_) {
    if (!fs::exists(run_ / "report.html")) finish();  // ended between its last checkpoint and its report
    console_.note(run_.string() + ": finished at step " + std::to_string(first_step_) +
                  "; nothing to do (raise train.steps to go on)");
    return TrainOutcome::already_finished;
  }
  if (ranks_.is_first()) {
    log_ = std::make_unique<RunLog>(run_, config_.log.tensorboard);
    if (first_step_ == 0) log_->text(0, "configuration", write_config(config_));
  }
  write_summary();
  if (announces_ && ranks_.is_first()) announce();
  const std::int64_t checkpoint_every = checkpoint_interval(config_, evaluates());
  for (std::int64_t step = first_step_; step < steps; ++step) {
    change_phase(step);
    train_step(step);
    const std::int64_t done = step + 1;
    const bool last = done == steps;
    if (evaluates() && (last || (config_.eval.every > 0 && done % config_.eval.every == 0))) evaluate(done);
    // The first step of a phase, and the first evaluation, make the workspace as large as it will be.
    if (const std::int64_t bytes = device_->memory().bytes(Purpose::workspace); bytes != workspace_) {
      workspace_ = bytes;
      write_summary();
    }
    const bool stop = should_stop();
    if (last || stop || done % checkpoint_every == 0) save_checkpoint(done);
    if (stop && !last) {
      console_.note("interrupted after step " + std::to_string(done));
      return TrainOutcome::interrupted;
    }
  }
  finish();
  return TrainOutcome::finished;
}

void Trainer::train_step(std::int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t targets = loader_->valid_targets(step * sequences_, sequences_);
  double loss = run_batches(step, targets);
  const double norm =
      exchange_ ? std::sqrt(exchange_->sum_of_squares(*device_)) : gradient_norm(*device_, model_->parameters());
  if (ranks_.size() > 1) loss = agree_on_step(step, loss, norm);
  loss /= static_cast<double>(targets);
  if (std::isfinite(loss) && std::isfinite(norm)) {
    update(step, norm);
    skipped_ = 0;
  } else {
    skip_or_stop(step, std::isfinite(loss));
  }
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  StepMetrics metrics{.step = step + 1,
                      .tokens = (step + 1) * config_.train.batch_tokens,
                      .loss = loss,
                      .lr = learning_rate(config_.train, step),
                      .grad_norm = norm,
                      .step_ms = ms,
                      .tokens_per_s = static_cast<double>(config_.train.batch_tokens) / ms * 1e3};
  if (exchange_) {
    metrics.exchange = exchange_->report();
    metrics.exchange.emplace(metrics.exchange.begin(), "bytes_sent", ranks_.traffic().wire - reported_.wire);
    reported_ = ranks_.traffic();
  }
  if (ranks_.is_first()) log_step(metrics);
}

double Trainer::run_batches(std::int64_t step, std::int64_t targets) {
  const bool refused = !runner_.refusal().empty();
  const GradientReady announce = [&](Parameter& parameter) { exchange_->gradient_ready(*device_, parameter); };
  double loss = 0.0;
  for (std::int64_t first = 0; first < own_sequences_; first += activations_->batch()) {
    ranks_.progress();
    const bool last = first + activations_->batch() == own_sequences_;
    if (last && exchange_) exchange_->begin_step(*device_, {.step = step, .steps = config_.train.steps});
    const bool beside = last && exchange_ && config_.distributed.overlap;
    const BatchFeed::Batch batch = feed_->next();
    runner_.run(*device_, *model_, *activations_, batch.tokens, batch.targets, 1.0f / static_cast<float>(targets),
                first > 0, beside ? announce : GradientReady());
    feed_->advance();
    loss += sum(*device_, activations_->losses(batch.tokens.count()));  // here the host waits for a GPU
  }
  if (exchange_) {
    if (!config_.distributed.overlap)
      for (Parameter* parameter : model_->parameters_as_they_get_ready()) announce(*parameter);
    exchange_->finish(*device_);
  }
  if (!refused && !runner_.refusal().empty())
    console_.note("micro-batches are not launched as CUDA graphs: " + runner_.refusal());
  return loss;
}

// The sum of the losses over the ranks; and whether any of them was asked to stop.
double Trainer::agree_on_step(std::int64_t step, double loss, double norm) {
  struct Word {
    double loss, norm;
    std::int64_t stop;
  };
  const Word mine = {loss, norm, interrupt_requested() ? 1 : 0};
  const std::vector<std::string> all =
      ranks_.all_gather(std::string_view(reinterpret_cast<const char*>(&mine), sizeof mine));
  double total = 0.0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Word theirs{};
    require(all[rank].size() == sizeof theirs, "a rank is in another part of the step");
    std::memcpy(&theirs, all[rank].data(), sizeof theirs);
    total += theirs.loss;
    stop_ = stop_ || theirs.stop != 0;
    // Every rank has the same sum of gradients, and makes the same update of the same weights.
    if (std::isfinite(norm) && theirs.norm != norm)
      throw_once(ranks_, Error("step " + std::to_string(step + 1) + ": rank " + std::to_string(rank) +
                               " has another gradient norm than rank " + std::to_string(ranks_.rank()) +
                               "; the ranks do not train the same model any more. The last checkpoint is as it was"));
  }
  return total;
}

bool Trainer::should_stop() const {
  return ranks_.size() > 1 ? stop_ : interrupt_requested();
}

void Trainer::update(std::int64_t step, double norm) {
  const std::vector<Parameter*> parameters = model_->parameters();
  const double clip = config_.train.clip > 0.0 && norm > config_.train.clip ? config_.train.clip / norm : 1.0;
  const std::vector<ParameterUpdate> updates =
      adamw_updates(parameters, config_.train, {.lr = learning_rate(config_.train, step), .t = step + 1},
                    {.lr = adapter_learning_rate(config_, adapter_start_, step),
                     .t = std::max<std::int64_t>(step - adapter_start_ + 1, 1)},
                    clip);
  if (exchange_)
    exchange_->update(*device_, updates);
  else
    adamw(*device_, updates);
  if (sharding_) gather_values(*device_, ranks_, parameters);
  model_->refresh(*device_);
}

// The loss or the gradient is not finite, on all ranks alike.
void Trainer::skip_or_stop(std::int64_t step, bool loss_is_finite) {
  const std::string what =
      "step " + std::to_string(step + 1) + ": the " + (loss_is_finite ? "gradient" : "loss") + " is not finite";
  const std::string advice = "; a lower train.lr, more train.warmup or a smaller train.clip may help";
  if (config_.train.on_nonfinite == "stop")
    throw_once(ranks_, Diverged(what + ", the run has diverged" + advice + ". The last checkpoint is as it was"));
  if (++skipped_ >= kSkippedLimit)
    throw_once(ranks_, Diverged(what + ", as in the " + std::to_string(kSkippedLimit - 1) +
                                " steps before it: the run has diverged" + advice));
  if (exchange_) exchange_->leave_out(*device_);
  console_.warn(what + "; the step is skipped");
}

void Trainer::log_step(const StepMetrics& metrics) {
  log_->append(metrics);
  add_to_line(metrics.loss, metrics.step_ms);
  const std::int64_t every = config_.log.every, done = metrics.step;
  if ((every > 0 && done % every == 0) || done == config_.train.steps || done == first_step_ + 1) {
    const auto count = static_cast<double>(line_steps_);
    console_.progress({.step = done,
                       .steps = config_.train.steps,
                       .loss = line_loss_ / count,
                       .lr = metrics.lr,
                       .grad_norm = metrics.grad_norm,
                       .step_ms = line_ms_ / count,
                       .tokens_per_s = static_cast<double>(config_.train.batch_tokens) * count / line_ms_ * 1e3});
  }
  if (every == 0 || done % every == 0) {
    line_loss_ = line_ms_ = 0.0;
    line_steps_ = 0;
  }
}

void Trainer::add_to_line(double loss, double ms) {
  line_loss_ += loss;
  line_ms_ += ms;
  ++line_steps_;
}

void Trainer::restore_line() {
  const std::int64_t every = config_.log.every;
  if (every == 0 || first_step_ % every == 0) return;
  for (const StepMetrics& step : read_step_metrics(run_ / "metrics.jsonl"))
    if (step.step > first_step_ / every * every) add_to_line(step.loss, step.step_ms);
}

void Trainer::evaluate(std::int64_t step) {
  const auto add = [&](const EvalMetrics& row) {
    if (!ranks_.is_first()) return;
    log_->append(row);
    console_.evaluation(row);
  };
  const auto progress = [this](std::int64_t, std::int64_t) { ranks_.progress(); };
  if (val_view_) {
    const Perplexity result = perplexity(*device_, *model_, *activations_, *val_view_,
                                         {.batch = activations_->batch(),
                                          .max_tokens = config_.eval.tokens,
                                          .bytes_per_token = data_.val_bytes_per_token,
                                          .part = ranks_.rank(),
                                          .parts = ranks_.size(),
                                          .sum = [this](double value) { return ranks_.sum(value); },
                                          .progress = progress});
    EvalMetrics row{
        .step = step, .task = "perplexity", .values = {{"loss", result.loss}, {"perplexity", result.perplexity}}};
    if (std::isfinite(result.bits_per_byte)) row.values.emplace_back("bits_per_byte", result.bits_per_byte);
    add(row);
  }
  // Each rank scores all of them: none waits for another longer than a step takes.
  if (!tasks_.empty())
    for (const TaskResult& result : score_tasks(*device_, *model_, *activations_, *data_.tokenizer, tasks_, progress))
      add(evaluation_row(result, step));
  if (ranks_.is_first()) log_->weights(step, *device_, *model_);
}

void Trainer::save_checkpoint(std::int64_t step) {
  const auto save_exchange_into = [&](const fs::path& into) {
    if (exchange_) save_exchange(*exchange_, ranks_, *device_, into);
    reported_ = ranks_.traffic();
  };
  if (!ranks_.is_first()) {
    give_to_checkpoint(*device_, *model_);
    return save_exchange_into({});
  }
  // First, so that no checkpoint is ahead of them after a power cut.
  log_->flush_to_disk();
  CheckpointState state{.step = step,
                        .dense_phase = model_->dense_phase(),
                        .adapters = model_->has_adapters(),
                        .sparse_start = sparse_start_,
                        .adapter_start = adapter_start_,
                        .skipped = skipped_,
                        .threads = device_->threads(),
                        .backends = {},
                        .dense_products = matmul_choices(*device_),
                        .tokenizer = tokenizer_identity(),
                        .data = fingerprints()};
  for (const auto& [key, entry] : plans_->entries()) state.backends[key] = to_text(entry);
  write_checkpoint(checkpoint_path(run_, step), *device_, *model_, state, write_config(config_),
                   data_.tokenizer ? data_.tokenizer->serialize() : "",
                   {.more = save_exchange_into, .progress = [this] { ranks_.progress(); }});
  remove_old_checkpoints(run_, config_.checkpoint.keep);
}

void Trainer::write_summary() {
  if (!ranks_.is_first()) return;
  ModelSummary summary = summarize(*device_, *model_, Mode::training, activations_->batch());
  summary.workspace_bytes = workspace_;
  write_file_atomically(run_ / "inspect.json", to_json(summary));
  nlohmann::ordered_json plans = nlohmann::ordered_json::object();
  for (const auto& [key, entry] : plans_->entries())
    plans[key] = {{"backend", name_of(entry.backend)}, {"sparse_ms", entry.sparse_ms}, {"dense_ms", entry.dense_ms}};
  write_file_atomically(run_ / "plans.json", plans.dump(2) + "\n");
}

void Trainer::announce() {
  console_.start({.device = (ranks_.size() > 1
                                 ? std::to_string(ranks_.size()) + " ranks (" + std::string(ranks_.name()) + "), each "
                                 : "") +
                            device_->description(),
                  .precision = std::string(name_of(config_.run.precision)),
                  .model = describe_model(config_),
                  .method = describe_method(config_),
                  .data = std::to_string(train_view_->tokens()) + " training tokens, " +
                          std::to_string(val_view_ ? val_view_->tokens() : 0) + " validation tokens",
                  .run = run_.string(),
                  .steps = config_.train.steps,
                  .batch_tokens = config_.train.batch_tokens,
                  .first_step = first_step_,
                  .summary = summarize(*device_, *model_, Mode::training, activations_->batch())});
}

void Trainer::finish() {
  if (!ranks_.is_first()) return;
  if (data_.tokenizer) {
    // A few lines of the model's own, for the report: the beginning of a document, continued.
    Generator generator(*device_, *model_, data_.vocab());
    const std::int32_t start = data_.tokenizer->end_of_text();
    std::string lines;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const std::vector<std::int32_t> ids = generator.generate(
          {&start, 1}, 96, {.temperature = 0.8, .top_p = 0.95, .seed = seed}, [](std::int32_t) { return false; });
      const std::string text = data_.tokenizer->decode(ids);
      if (log_) log_->text(config_.train.steps, "samples/" + std::to_string(seed), text);
      const nlohmann::ordered_json line = {{"step", config_.train.steps}, {"prompt", ""}, {"text", text}};
      lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    }
    write_file_atomically(run_ / "samples.jsonl", lines);
  }
  log_.reset();
  write_html_report({run_}, run_ / "report.html");
  console_.note("done: " + (run_ / "report.html").string());
}

}  // namespace filigree
