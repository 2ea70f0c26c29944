// The training loop of one run: data in, checkpoints, metrics and evaluations out.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/gradient_exchange.h"
#include "comm/rank_sharding.h"
#include "core/error.h"
#include "data/batch_feed.h"
#include "data/training_data.h"
#include "model/batch_runner.h"
#include "model/transformer.h"
#include "report/console.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "train/task_evaluation.h"

namespace filigree {

struct TrainOptions {
  std::filesystem::path run;  // the run's folder
  bool resume = false;        // without it, an existing folder is refused
  bool announce = true;       // print the start-up block
  // The ranks that train together; null: this one alone. All see the run's folder; the first writes it, the console of
  // the others should be silent. It must outlive the trainer.
  Communicator* ranks = nullptr;
  int local_rank = 0;  // among those of this machine: which of its GPUs is this rank's
  int threads = 0;     // where run.threads is 0; 0: all processors that the process may use
};

// Loss or gradient are not finite and stay so: the run is lost, but nothing else is wrong.
class Diverged : public Error {
 public:
  using Error::Error;
};

enum class TrainOutcome { finished, already_finished, interrupted };

class Trainer {
 public:
  // Checks everything that can be checked before any work: the folder, the configuration against that of a resumed run,
  // the data, the tokenizer. Throws UserError, or Interrupted, and then leaves no folder behind that it made. With
  // several ranks, where one of them throws so do all, the others FailedElsewhere.
  Trainer(Config config, const TrainOptions& options, Console& console);

  // Runs to train.steps, or until a signal asks to stop: then the step is finished and a checkpoint written. Throws
  // Diverged when the loss or a gradient is not finite (train.on_nonfinite = "stop"); the last checkpoint stays as it
  // was. Where a rank fails, the others' calls throw RankLost.
  TrainOutcome run();

  const Device& device() const { return *device_; }

 private:
  void open_device(const TrainOptions& options);
  // weights.block, where it is left to the device.
  void choose_block();
  void open_data();
  void share_batch();
  void open_run(bool resume);
  void begin_files(const std::optional<Config>& saved, bool from_checkpoint);
  void build_model(const CheckpointState* state);  // of the checkpoint that the run goes on from; null: it starts
  void start_model();
  void start_from_hub();
  void resume(const CheckpointReader& checkpoint);
  void check_unchanged(const Config& saved, const CheckpointState* state);
  std::map<std::string, DataFingerprint> fingerprints() const;
  std::string tokenizer_identity() const;  // "" without one
  // The times of plans.json, which checkpoints do not have, for choices that stand in both.
  void restore_times(std::map<std::string, PlanEntry>& entries) const;
  void check_tokenizer(const CheckpointState& state, const std::string& what) const;
  void require_sparse() const;
  void plan_products();
  // Gradients go through an exchange where there are several ranks, or one that keeps gradients back.
  void open_exchange(const std::filesystem::path& checkpoint);  // to go on from; empty: none
  void change_phase(std::int64_t step);
  void train_step(std::int64_t step);
  double run_batches(std::int64_t step, std::int64_t targets);  // this rank's sum of losses
  double agree_on_step(std::int64_t step, double loss, double norm);
  void update(std::int64_t step, double norm);
  void skip_or_stop(std::int64_t step, bool loss_is_finite);
  void log_step(const StepMetrics& metrics);
  bool should_stop() const;
  void add_to_line(double loss, double ms);
  void restore_line();
  bool evaluates() const { return val_view_.has_value() || !tasks_.empty(); }
  void evaluate(std::int64_t step);
  void save_checkpoint(std::int64_t step);
  void write_summary();  // inspect.json, plans.json
  void finish();
  void announce();

  Config config_;
  Console& console_;
  bool announces_;
  SingleRank alone_;
  Communicator& ranks_;
  std::filesystem::path run_;
  std::optional<RunFolder> folder_;  // the first rank's
  bool new_ = true;                  // there was no run in the folder
  std::int64_t first_step_ = 0;
  std::int64_t sparse_start_ = 0, adapter_start_ = 0;  // steps at which the phases begin, or began
  std::int64_t sequences_ = 0;                         // of a batch
  std::int64_t own_sequences_ = 0;                     // of them this rank's
  std::int64_t skipped_ = 0;                           // steps in a row without an update
  std::int64_t workspace_ = 0;                         // bytes of it after the last step; 0 before the first
  std::filesystem::path origin_;                       // files that model.init brought along, for an export of this run
  std::string origin_tokenizer_;                       // identity of its tokenizer

  std::unique_ptr<Device> device_;
  TrainingData data_;
  std::optional<DatasetView> train_view_, val_view_;
  std::optional<Loader> loader_;
  std::optional<RankSharding> sharding_;  // distributed.zero, where there are several ranks
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<Activations> activations_;
  std::optional<PlanTable> plans_;
  std::optional<BatchFeed> feed_;
  BatchRunner runner_;
  std::vector<EvalTask> tasks_;
  std::unique_ptr<RunLog> log_;  // the first rank's
  std::unique_ptr<GradientExchange> exchange_;
  Traffic reported_;   // up to the last step
  bool stop_ = false;  // several ranks: a signal to one of them, as all learnt in the last step

  // Of the console line's window, the steps since the last multiple of log.every: a resumed run takes those before its
  // checkpoint from metrics.jsonl, so that its lines are those of the uninterrupted run.
  double line_loss_ = 0.0, line_ms_ = 0.0;
  std::int64_t line_steps_ = 0;
};

}  // namespace filigree
