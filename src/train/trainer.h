// The training loop of one run: data in, checkpoints, metrics and evaluations out.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  // the data, the tokenizer. Throws UserError, or Interrupted, and then leaves no folder behind that it made.
  Trainer(Config config, const TrainOptions& options, Console& console);

  // Runs to train.steps, or until a signal asks to stop: then the step is finished and a checkpoint written. Throws
  // Diverged when the loss or a gradient is not finite (train.on_nonfinite = "stop"); the last checkpoint stays as it
  // was.
  TrainOutcome run();

  const Device& device() const { return *device_; }

 private:
  // weights.block, where it is left to the device.
  void choose_block();
  void open_data();
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
  void change_phase(std::int64_t step);
  void train_step(std::int64_t step);
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
  RunFolder folder_;
  std::int64_t first_step_ = 0;
  std::int64_t sparse_start_ = 0, adapter_start_ = 0;  // steps at which the phases begin, or began
  std::int64_t sequences_ = 0;                         // of a batch
  std::int64_t skipped_ = 0;                           // steps in a row without an update
  std::int64_t workspace_ = 0;                         // bytes of it after the last step; 0 before the first
  std::filesystem::path origin_;                       // files that model.init brought along, for an export of this run
  std::string origin_tokenizer_;                       // identity of its tokenizer

  std::unique_ptr<Device> device_;
  TrainingData data_;
  std::optional<DatasetView> train_view_, val_view_;
  std::optional<Loader> loader_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<Activations> activations_;
  std::optional<PlanTable> plans_;
  std::optional<BatchFeed> feed_;
  BatchRunner runner_;
  std::vector<EvalTask> tasks_;
  std::unique_ptr<RunLog> log_;

  // Of the console line's window, the steps since the last multiple of log.every: a resumed run takes those before its
  // checkpoint from metrics.jsonl, so that its lines are those of the uninterrupted run.
  double line_loss_ = 0.0, line_ms_ = 0.0;
  std::int64_t line_steps_ = 0;
};

}  // namespace filigree
