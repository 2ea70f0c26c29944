#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/interrupt.h"
#include "eval/generate.h"
#include "eval/perplexity.h"
#include "io/atomic_file.h"
#include "io/config_toml.h"
#include "io/model_layers.h"
#include "io/model_presets.h"
#include "kernels/elementwise/elementwise.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "report/html_report.h"
#include "train/environment.h"
#include "train/hub_source.h"
#include "train/model_loading.h"
#include "train/resumption.h"
#include "train/summary.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// With on_nonfinite = "skip", a run that skips this many steps in a row has diverged.
constexpr std::int64_t kSkippedLimit = 10;

constexpr std::uint64_t kPlansLimit = 64 << 20;  // bytes of plans.json that are read

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

Trainer::Trainer(Config config, const TrainOptions& options, Console& console)
    : config_(std::move(config)),
      console_(console),
      announces_(options.announce),
      folder_(options.run, options.resume) {
  device_ = Device::named(config_.run.device, config_.run.threads);
  device_->set_deterministic(config_.run.deterministic);
  device_->memory().set_advice("a smaller train.micro_batch, or train.recompute = \"block\", needs less");
  if (const auto processors = static_cast<int>(std::thread::hardware_concurrency());
      processors > 0 && config_.run.threads > processors)
    console_.warn("run.threads is " + std::to_string(config_.run.threads) + ", but this process may use " +
                  std::to_string(processors) + " processors: more threads make it slower");
  choose_block();
  open_data();
  std::optional<Config> saved;
  std::optional<CheckpointReader> checkpoint;
  if (!folder_.is_new()) {
    if (const auto newest = newest_checkpoint(folder_.path())) checkpoint.emplace(*newest);
    saved = read_config(folder_.path() / "config.toml");
    check_unchanged(*saved, checkpoint ? &checkpoint->state() : nullptr);
  } else if (options.resume) {
    console_.warn(folder_.path().string() + ": there is no run here yet, a new one starts");
  }
  build_model(checkpoint ? &checkpoint->state() : nullptr);
  if (checkpoint)
    resume(*checkpoint);
  else
    start_model();
  feed_.emplace(*device_, *loader_, activations_->batch(), first_step_ * sequences_);
  model_->plan(*device_, *plans_, activations_->batch() * config_.model.context);
  require_sparse();
  if (interrupt_requested())
    throw Interrupted(folder_.path().string() + ": interrupted during set-up; " +
                      (folder_.is_new() ? "nothing of it was kept" : "the run is as it was"));
  if (!folder_.is_new()) {
    // All that could be refused has been: now the run's own files may change.
    if (!checkpoint) console_.note(folder_.path().string() + ": no checkpoint yet, the run starts again");
    RunLog::truncate_after(folder_.path(), first_step_);
    remove_unfinished_checkpoints(folder_.path());
    if (const std::string change = rate_change(*saved, config_, first_step_); !change.empty()) console_.warn(change);
    restore_line();
  }
  write_file_atomically(folder_.path() / "config.toml", write_config(config_));
  if (!origin_.empty())
    keep_hub_files(origin_, folder_.path() / kKeptHubFolder,
                   tokenizer_identity().empty() || tokenizer_identity() == origin_tokenizer_);
  if (data_.tokenizer) data_.tokenizer->save(folder_.path() / kTokenizerFile);
  write_file_atomically(folder_.path() / "environment.json", environment_json(*device_));
  folder_.keep();
}

void Trainer::choose_block() {
  BlockShape& block = config_.weights.block;
  if (block.chosen()) return;
  // A run keeps its blocks wherever it goes on.
  block =
      folder_.is_new() ? default_block(device_->is_cuda()) : read_config(folder_.path() / "config.toml").weights.block;
}

void Trainer::open_data() {
  data_ = find_training_data(config_.data, {.run_folder = folder_.path(),
                                            .progress = stderr,
                                            .stop = interrupt_requested,
                                            .prepared = [this](const fs::path& text) { folder_.made(text); }});
  std::int64_t& vocab = config_.model.vocab;
  require_user(vocab > 0 || data_.vocab() > 0,
               "model.vocab: missing; the shards of data.train do not say which tokenizer made them: give its number "
               "of entries");
  require_user(vocab == 0 || vocab >= data_.vocab(),
               "model.vocab: " + std::to_string(vocab) + ", but the data's tokenizer has " +
                   std::to_string(data_.vocab()) +
                   " entries; leave the key out to use its number, from 1024 on rounded up to a multiple of 64");
  if (vocab == 0) vocab = padded_vocab(data_.vocab());
  check_config(config_);  // a sparse head's outputs are known only now
  train_view_.emplace(data_.train, vocab);
  if (!data_.val.empty()) val_view_.emplace(data_.val, vocab);
  tasks_ = evaluation_tasks(config_.eval, data_.tokenizer.get());
  loader_.emplace(*train_view_, config_.model.context, SampleOrder::shuffled, config_.run.seed);
  sequences_ = config_.train.batch_tokens / config_.model.context;
}

void Trainer::build_model(const CheckpointState* state) {
  sparse_start_ = phase_start(config_.train, config_.weights.start);
  adapter_start_ = phase_start(config_.train, config_.adapters.start);
  // In the phase of the checkpoint, whatever another train.steps makes of the phases' beginnings: run() goes on to the
  // next one.
  const bool dense_phase = state ? state->dense_phase : sparse_start_ > 0;
  model_ = std::make_unique<Transformer>(*device_, config_, Mode::training, dense_phase);
  activations_ =
      std::make_unique<Activations>(*device_, config_.model, config_.run.precision, sequences_at_once(config_),
                                    config_.model.context, recompute_named(config_.train.recompute));
  plans_.emplace(!config_.run.deterministic);
}

void Trainer::start_model() {
  if (config_.model.init.empty()) {
    model_->initialize(*device_);
    return;
  }
  if (is_hub_folder(config_.model.init)) {
    start_from_hub();
    return;
  }
  const CheckpointReader source(find_checkpoint(config_.model.init));
  check_tokenizer(source.state(), "model.init: " + config_.model.init);
  model_->load_initial(*device_, source, checkpoint_config(source.folder(), {}), source.state().adapters);
  origin_ = kept_hub_files(source.folder());
  origin_tokenizer_ = source.state().tokenizer;
}

void Trainer::start_from_hub() {
  const fs::path from = config_.model.init;
  std::optional<HubSource> opened;
  try {
    opened.emplace(from, config_.model.context);
  } catch (const UserError& error) {
    throw UserError(std::string("model.init: ") + error.what());
  }
  const HubSource& source = *opened;
  for (const std::string& key : source.weights().model().unknown_keys)
    console_.warn((from / kHubConfigFile).string() + ": " + key + " is no key that filigree knows; it is passed over");
  const HubTokenizer found = find_hub_tokenizer(from, config_.model.vocab);
  CheckpointState state;
  if (found.tokenizer)
    state.tokenizer = found.tokenizer->identity();
  else
    console_.warn("whether the data was made with the tokenizer of " + from.string() +
                  " cannot be checked: " + found.why_not);
  check_tokenizer(state, "model.init: " + from.string());
  model_->load_initial(*device_, source, source.config(), false);
  origin_ = from;
  origin_tokenizer_ = state.tokenizer;
}

void Trainer::check_tokenizer(const CheckpointState& state, const std::string& what) const {
  const std::string ours = tokenizer_identity();
  require_user(state.tokenizer.empty() || ours.empty() || state.tokenizer == ours,
               what + ": was trained with tokenizer " + state.tokenizer + ", but the data has " + ours);
}

std::map<std::string, DataFingerprint> Trainer::fingerprints() const {
  std::map<std::string, DataFingerprint> data = {{"train", train_view_->fingerprint()}};
  if (val_view_) data["val"] = val_view_->fingerprint();
  return data;
}

void Trainer::check_unchanged(const Config& saved, const CheckpointState* state) {
  // Tokens are compared themselves, not the paths to them: a run and its data may move. Without a checkpoint nothing
  // was learnt from them yet.
  const bool comparable = state && !state->data.empty();
  if (state && !comparable)
    console_.note(folder_.path().string() +
                  ": its checkpoint does not say which tokens it was trained on; those that "
                  "data.train and data.val name are taken to be the same");
  std::string problems = comparable ? changed_data(state->data, fingerprints()) : "";
  std::set<std::string> free;
  if (!state || (comparable && problems.empty())) free = {"data.train", "data.val"};
  if (!state || state->tokenizer == tokenizer_identity()) free.insert("data.tokenizer");
  problems += forbidden_changes(saved, config_, free);
  require_user(
      problems.empty(),
      folder_.path().string() +
          ": --resume with other data or a changed configuration; restore this or start a new run:" + problems);
}

std::string Trainer::tokenizer_identity() const {
  return data_.tokenizer ? data_.tokenizer->identity() : "";
}

void Trainer::resume(const CheckpointReader& checkpoint) {
  const CheckpointState& state = checkpoint.state();
  check_tokenizer(state, folder_.path().string());
  if (state.threads != device_->threads())
    console_.warn("the run had " + std::to_string(state.threads) + " threads and goes on with " +
                  std::to_string(device_->threads()) + ": its numbers may differ in the last bits");
  first_step_ = state.step;
  skipped_ = state.skipped;
  // A phase that has begun keeps its first step; one that has not follows the configuration, and begins at once where
  // that step is past.
  if (!state.dense_phase) sparse_start_ = state.sparse_start;
  if (state.adapters) {
    model_->insert_adapters(*device_);
    adapter_start_ = state.adapter_start;
  }
  model_->load(*device_, checkpoint, true);
  std::map<std::string, PlanEntry> entries = checkpoint.plans();
  restore_times(entries);
  plans_->restore(std::move(entries));
  if (const std::string note = restore_matmul_choices(*device_, state.dense_products); !note.empty())
    console_.note(note);
}

void Trainer::restore_times(std::map<std::string, PlanEntry>& entries) const {
  // For people to read: a file that is missing or damaged is written anew, without the figures.
  const fs::path file = folder_.path() / "plans.json";
  if (!fs::exists(file)) return;
  const auto plans = nlohmann::json::parse(read_file(file, kPlansLimit), nullptr, false);
  for (auto& [key, entry] : entries) {
    const auto plan = plans.find(key);
    if (plan == plans.end() || !plan->is_object() || plan->value("backend", nlohmann::json()) != name_of(entry.backend))
      continue;
    const auto ms = [&](const char* name) {
      const auto value = plan->find(name);
      return value != plan->end() && value->is_number() ? value->get<double>() : 0.0;
    };
    entry.sparse_ms = ms("sparse_ms");
    entry.dense_ms = ms("dense_ms");
  }
}

void Trainer::require_sparse() const {
  if (!config_.run.require_sparse) return;
  const std::string dense = dense_choices(plans_->entries());
  require_user(dense.empty(), "run.require_sparse: these products would run dense:" + dense);
}

void Trainer::change_phase(std::int64_t step) {
  bool changed = false;
  if (model_->dense_phase() && step >= sparse_start_) {
    sparse_start_ = step;
    model_->start_sparse_phase(*device_);
    model_->plan(*device_, *plans_, activations_->batch() * config_.model.context);
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
  runner_.forget();
  write_summary();
}

TrainOutcome Trainer::run() {
  const std::int64_t steps = config_.train.steps;
  if (first_step_ >= steps && !folder_.is_new()) {
    if (!fs::exists(folder_.path() / "report.html")) finish();  // ended between its last checkpoint and its report
    console_.note(folder_.path().string() + ": finished at step " + std::to_string(first_step_) +
                  "; nothing to do (raise train.steps to go on)");
    return TrainOutcome::already_finished;
  }
  log_ = std::make_unique<RunLog>(folder_.path(), config_.log.tensorboard);
  if (first_step_ == 0) log_->text(0, "configuration", write_config(config_));
  write_summary();
  if (announces_) announce();
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
    const bool stop = interrupt_requested();
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
  const bool refused = !runner_.refusal().empty();
  double loss = 0.0;
  for (std::int64_t first = 0; first < sequences_; first += activations_->batch()) {
    const BatchFeed::Batch batch = feed_->next();
    runner_.run(*device_, *model_, *activations_, batch.tokens, batch.targets, 1.0f / static_cast<float>(targets),
                first > 0);
    feed_->advance();
    loss += sum(*device_, activations_->losses(batch.tokens.count()));  // here the host waits for a GPU
  }
  loss /= static_cast<double>(targets);
  if (!refused && !runner_.refusal().empty())
    console_.note("micro-batches are not launched as CUDA graphs: " + runner_.refusal());

  const std::vector<Parameter*> parameters = model_->parameters();
  const double norm = gradient_norm(*device_, parameters);
  const double lr = learning_rate(config_.train, step);
  const bool finite = std::isfinite(loss) && std::isfinite(norm);
  if (finite) {
    const double clip = config_.train.clip > 0.0 && norm > config_.train.clip ? config_.train.clip / norm : 1.0;
    adamw_step(*device_, parameters, config_.train, {.lr = lr, .t = step + 1},
               {.lr = adapter_learning_rate(config_, adapter_start_, step),
                .t = std::max<std::int64_t>(step - adapter_start_ + 1, 1)},
               clip);
    model_->refresh(*device_);
    skipped_ = 0;
  } else {
    const std::string what =
        "step " + std::to_string(step + 1) + ": the " + (std::isfinite(loss) ? "gradient" : "loss") + " is not finite";
    const std::string advice = "; a lower train.lr, more train.warmup or a smaller train.clip may help";
    if (config_.train.on_nonfinite == "stop")
      throw Diverged(what + ", the run has diverged" + advice + ". The last checkpoint is as it was");
    if (++skipped_ >= kSkippedLimit)
      throw Diverged(what + ", as in the " + std::to_string(kSkippedLimit - 1) +
                     " steps before it: the run has diverged" + advice);
    console_.warn(what + "; the step is skipped");
  }

  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const std::int64_t done = step + 1;
  log_->append(StepMetrics{.step = done,
                           .tokens = done * config_.train.batch_tokens,
                           .loss = loss,
                           .lr = lr,
                           .grad_norm = norm,
                           .step_ms = ms,
                           .tokens_per_s = static_cast<double>(config_.train.batch_tokens) / ms * 1e3});
  add_to_line(loss, ms);
  const std::int64_t every = config_.log.every;
  if ((every > 0 && done % every == 0) || done == config_.train.steps || done == first_step_ + 1) {
    const auto count = static_cast<double>(line_steps_);
    console_.progress({.step = done,
                       .steps = config_.train.steps,
                       .loss = line_loss_ / count,
                       .lr = lr,
                       .grad_norm = norm,
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
  for (const StepMetrics& step : read_step_metrics(folder_.path() / "metrics.jsonl"))
    if (step.step > first_step_ / every * every) add_to_line(step.loss, step.step_ms);
}

void Trainer::evaluate(std::int64_t step) {
  const auto add = [&](const EvalMetrics& row) {
    log_->append(row);
    console_.evaluation(row);
  };
  if (val_view_) {
    const Perplexity result = perplexity(*device_, *model_, *activations_, *val_view_,
                                         {.batch = activations_->batch(),
                                          .max_tokens = config_.eval.tokens,
                                          .bytes_per_token = data_.val_bytes_per_token});
    EvalMetrics row{
        .step = step, .task = "perplexity", .values = {{"loss", result.loss}, {"perplexity", result.perplexity}}};
    if (std::isfinite(result.bits_per_byte)) row.values.emplace_back("bits_per_byte", result.bits_per_byte);
    add(row);
  }
  if (!tasks_.empty())
    for (const TaskResult& result : score_tasks(*device_, *model_, *activations_, *data_.tokenizer, tasks_))
      add(evaluation_row(result, step));
  log_->weights(step, *device_, *model_);
}

void Trainer::save_checkpoint(std::int64_t step) {
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
  write_checkpoint(checkpoint_path(folder_.path(), step), *device_, *model_, state, write_config(config_),
                   data_.tokenizer ? data_.tokenizer->serialize() : "");
  remove_old_checkpoints(folder_.path(), config_.checkpoint.keep);
}

void Trainer::write_summary() {
  ModelSummary summary = summarize(*device_, *model_, Mode::training, activations_->batch());
  summary.workspace_bytes = workspace_;
  write_file_atomically(folder_.path() / "inspect.json", to_json(summary));
  nlohmann::ordered_json plans = nlohmann::ordered_json::object();
  for (const auto& [key, entry] : plans_->entries())
    plans[key] = {{"backend", name_of(entry.backend)}, {"sparse_ms", entry.sparse_ms}, {"dense_ms", entry.dense_ms}};
  write_file_atomically(folder_.path() / "plans.json", plans.dump(2) + "\n");
}

void Trainer::announce() {
  console_.start({.device = device_->description(),
                  .precision = std::string(name_of(config_.run.precision)),
                  .model = describe_model(config_),
                  .method = describe_method(config_),
                  .data = std::to_string(train_view_->tokens()) + " training tokens, " +
                          std::to_string(val_view_ ? val_view_->tokens() : 0) + " validation tokens",
                  .run = folder_.path().string(),
                  .steps = config_.train.steps,
                  .batch_tokens = config_.train.batch_tokens,
                  .first_step = first_step_,
                  .summary = summarize(*device_, *model_, Mode::training, activations_->batch())});
}

void Trainer::finish() {
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
    write_file_atomically(folder_.path() / "samples.jsonl", lines);
  }
  log_.reset();
  write_html_report({folder_.path()}, folder_.path() / "report.html");
  console_.note("done: " + (folder_.path() / "report.html").string());
}

}  // namespace filigree
