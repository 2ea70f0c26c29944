// A grid of learning rates: one configuration is trained shortly once a rate, with equal data, model and seed, and the
// lowest validation loss wins.
//
//   OUT/tune.toml   the configuration of all runs, but for train.lr
//   OUT/tune.json   a row a finished rate, and the pick
//   OUT/data/       text of data.train, prepared once
//   OUT/lr-RATE/    the runs
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "io/config.h"
#include "report/console.h"

namespace filigree {

struct TuneOptions {
  std::filesystem::path out;  // goes on where it was made by an earlier call with the same configuration and steps
  std::vector<double> rates;
  std::int64_t steps = 0;  // of each run; 0: default_tune_steps
};

struct TuneRow {
  double rate = 0.0;
  std::int64_t steps = 0;  // done; fewer than asked for where it diverged
  bool diverged = false;
  double training_loss = std::numeric_limits<double>::quiet_NaN();  // mean of the last tenth of the steps, at least one
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  double seconds = 0.0;  // sum of the step times: evaluation and checkpoints are not in it
  std::string run;       // its folder inside OUT
};

struct TuneResult {
  std::int64_t steps = 0;
  std::vector<TuneRow> rows;  // of this call and of those before it, in the order of their rates
  bool interrupted = false;   // by a signal: the run at hand has a checkpoint, and the next call goes on from there
};

// A tenth of the configuration's steps; at least 200, but never more than it has.
std::int64_t default_tune_steps(std::int64_t steps);

// The configuration with so many steps: its warm-up keeps its share of them, at least one step; everything else that
// follows from train.steps is a fraction already. One checkpoint, at the end, unless the configuration says how many.
Config shortened(const Config& config, std::int64_t steps);

// The row with the lowest validation loss; null where all diverged.
const TuneRow* pick(const TuneResult& result);
// What there is to say of the pick: that it lies at the edge of the grid, or that there is none. "" where nothing is. A
// rate that diverged bounds the grid.
std::string remark(const TuneResult& result);

// Trains what is missing, in the order of the rates. Throws UserError where a rate, the configuration or the folder is
// wrong, and then leaves no folder behind that it made. A run that diverges is a row.
TuneResult tune(const Config& config, const TuneOptions& options, Console& console);

// As in folders' names, tables and on the command line: "0.001", "1e-05".
std::string rate_text(double rate);
// tune.json.
std::string to_json(const TuneResult& result);

}  // namespace filigree
