// The trainer's set-up: everything that can be refused is refused here, before any work.
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/agreement.h"
#include "core/interrupt.h"
#include "io/atomic_file.h"
#include "io/config_toml.h"
#include "io/model_layers.h"
#include "io/model_presets.h"
#include "optim/schedule.h"
#include "train/environment.h"
#include "train/exchange_state.h"
#include "train/hub_source.h"
#include "train/model_loading.h"
#include "train/rank_agreement.h"
#include "train/resumption.h"
#include "train/summary.h"
#include "train/trainer.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPlansLimit = 64 << 20;  // bytes of plans.json that are read

}  // namespace

Trainer::Trainer(Config config, const TrainOptions& options, Console& console)
    : config_(std::move(config)),
      console_(console),
      announces_(options.announce),
      ranks_(options.ranks ? *options.ranks : alone_) {
  together(ranks_, [&] {
    if (ranks_.is_first()) folder_.emplace(options.run, options.resume);
    open_device(options);
  });
  run_ = ranks_.broadcast(folder_ ? folder_->path().string() : "");
  new_ = ranks_.broadcast(folder_ && folder_->is_new() ? "new" : "") == "new";
  // Text is prepared by the first; the others find it.
  together(ranks_, [&] {
    choose_block();
    if (ranks_.is_first()) open_data();
  });
  together(ranks_, [&] {
    if (!ranks_.is_first()) open_data();
    share_batch();
  });
  require_equal_ranks(ranks_, config_, *device_);
  open_run(options.resume);
}

void Trainer::open_device(const TrainOptions& options) {
  device_ = Device::named(config_.run.device, config_.run.threads > 0 ? config_.run.threads : options.threads,
                          options.local_rank);
  device_->set_deterministic(config_.run.deterministic);
  device_->memory().set_advice("a smaller train.micro_batch, or train.recompute = \"block\", needs less");
  if (const auto processors = static_cast<int>(std::thread::hardware_concurrency());
      processors > 0 && config_.run.threads > processors)
    console_.warn("run.threads is " + std::to_string(config_.run.threads) + ", but this process may use " +
                  std::to_string(processors) + " processors: more threads make it slower");
}

void Trainer::open_run(bool resume_wanted) {
  std::optional<Config> saved;
  std::optional<CheckpointReader> checkpoint;
  together(ranks_, [&] {
    if (!new_) {
      if (const auto newest = newest_checkpoint(run_)) checkpoint.emplace(*newest);
      saved = read_config(run_ / "config.toml");
      check_unchanged(*saved, checkpoint ? &checkpoint->state() : nullptr);
    } else if (resume_wanted) {
      console_.warn(run_.string() + ": there is no run here yet, a new one starts");
    }
    build_model(checkpoint ? &checkpoint->state() : nullptr);
    if (checkpoint)
      resume(*checkpoint);
    else
      start_model();
    feed_.emplace(*device_, *loader_,
                  BatchShare{.sequences = activations_->batch(),
                             .first = first_step_ * sequences_ + ranks_.rank() * own_sequences_,
                             .own = own_sequences_,
                             .all = sequences_});
  });
  plan_products();
  open_exchange(checkpoint ? checkpoint->folder() : fs::path());
  together(ranks_, [&] {
    require_sparse();
    if (interrupt_requested())
      throw Interrupted(run_.string() + ": interrupted during set-up; " +
                        (new_ ? "nothing of it was kept" : "the run is as it was"));
  });
  if (ranks_.is_first()) begin_files(saved, checkpoint.has_value());
}

// All that could be refused has been: now the run's own files may change.
void Trainer::begin_files(const std::optional<Config>& saved, bool from_checkpoint) {
  if (!new_) {
    if (!from_checkpoint) console_.note(run_.string() + ": no checkpoint yet, the run starts again");
    RunLog::truncate_after(run_, first_step_);
    remove_unfinished_checkpoints(run_);
    if (const std::string change = rate_change(*saved, config_, first_step_); !change.empty()) console_.warn(change);
    restore_line();
  }
  write_file_atomically(run_ / "config.toml", write_config(config_));
  if (!origin_.empty())
    keep_hub_files(origin_, run_ / kKeptHubFolder,
                   tokenizer_identity().empty() || tokenizer_identity() == origin_tokenizer_);
  if (data_.tokenizer) data_.tokenizer->save(run_ / kTokenizerFile);
  write_file_atomically(run_ / "environment.json", environment_json(*device_));
  folder_->keep();
}

void Trainer::choose_block() {
  BlockShape& block = config_.weights.block;
  if (block.chosen()) return;
  // A run keeps its blocks wherever it goes on.
  block = new_ ? default_block(device_->is_cuda()) : read_config(run_ / "config.toml").weights.block;
}

void Trainer::open_data() {
  data_ = find_training_data(config_.data, {.run_folder = run_,
                                            .progress = stderr,
                                            .stop = interrupt_requested,
                                            .may_prepare = ranks_.is_first(),
                                            .prepared = [this](const fs::path& text) { folder_->made(text); }});
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
}

void Trainer::share_batch() {
  sequences_ = config_.train.batch_tokens / config_.model.context;
  own_sequences_ = sequences_ / ranks_.size();
  const std::int64_t at_once = std::max<std::int64_t>(config_.train.micro_batch, 1);
  const std::int64_t unit = ranks_.size() * at_once * config_.model.context;
  require_user(config_.train.batch_tokens % unit == 0,
               "train.batch_tokens: found " + std::to_string(config_.train.batch_tokens) + ", which " +
                   std::to_string(ranks_.size()) + " ranks cannot share; expected a multiple of " +
                   std::to_string(unit) + " (ranks x train.micro_batch x model.context)");
}

void Trainer::build_model(const CheckpointState* state) {
  sparse_start_ = phase_start(config_.train, config_.weights.start);
  adapter_start_ = phase_start(config_.train, config_.adapters.start);
  // In the phase of the checkpoint, whatever another train.steps makes of the phases' beginnings: run() goes on to the
  // next one.
  const bool dense_phase = state ? state->dense_phase : sparse_start_ > 0;
  if (config_.distributed.zero == 1 && ranks_.size() > 1) sharding_.emplace(ranks_);
  model_ =
      std::make_unique<Transformer>(*device_, config_, Mode::training, dense_phase, sharding_ ? &*sharding_ : nullptr);
  activations_ = std::make_unique<Activations>(*device_, config_.model, config_.run.precision,
                                               std::min(sequences_at_once(config_), own_sequences_),
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
    console_.note(run_.string() +
                  ": its checkpoint does not say which tokens it was trained on; those that "
                  "data.train and data.val name are taken to be the same");
  std::string problems = comparable ? changed_data(state->data, fingerprints()) : "";
  std::set<std::string> free;
  if (!state || (comparable && problems.empty())) free = {"data.train", "data.val"};
  if (!state || state->tokenizer == tokenizer_identity()) free.insert("data.tokenizer");
  problems += forbidden_changes(saved, config_, free);
  require_user(
      problems.empty(),
      run_.string() +
          ": --resume with other data or a changed configuration; restore this or start a new run:" + problems);
}

std::string Trainer::tokenizer_identity() const {
  return data_.tokenizer ? data_.tokenizer->identity() : "";
}

void Trainer::resume(const CheckpointReader& checkpoint) {
  const CheckpointState& state = checkpoint.state();
  check_tokenizer(state, run_.string());
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
  const fs::path file = run_ / "plans.json";
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

void Trainer::plan_products() {
  const std::int64_t tokens = activations_->batch() * config_.model.context;
  together(ranks_, [&] {
    if (ranks_.is_first()) model_->plan(*device_, *plans_, tokens);
  });
  if (ranks_.size() == 1) return;
  plans_->restore(shared_plans(ranks_, plans_->entries()));
  together(ranks_, [&] {
    if (!ranks_.is_first()) model_->plan(*device_, *plans_, tokens);
  });
}

void Trainer::open_exchange(const fs::path& checkpoint) {
  if (ranks_.size() == 1 && config_.gradients.exchange == "dense") return;
  together(ranks_, [&] {
    exchange_ = make_gradient_exchange(config_, ranks_);
    exchange_->attach(*device_, model_->parameters_as_they_get_ready());
    if (!checkpoint.empty()) exchange_->load(*device_, ExchangeReader(checkpoint, ranks_));
  });
}

void Trainer::require_sparse() const {
  if (!config_.run.require_sparse) return;
  const std::string dense = dense_choices(plans_->entries());
  require_user(dense.empty(), "run.require_sparse: these products would run dense:" + dense);
}

}  // namespace filigree
