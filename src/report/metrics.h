// metrics.jsonl and eval.jsonl: one JSON object a line, appended while a run trains.
//
// Keys stand in a fixed order and numbers are the shortest text that reads back to the same double, so that equal
// values give equal bytes. step_ms and tokens_per_s are timings; a caller that resumes must reproduce everything else
// bit for bit. JSON has no infinities: a value that is not finite is written as null and read back as NaN.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace filigree {

// Numbers by name: written in this order, read back in the order of their names.
using NamedValues = std::vector<std::pair<std::string, double>>;

std::optional<double> find_value(const NamedValues& values, std::string_view name);

// One line of metrics.jsonl. A field that a line does not have is NaN (`step` and `tokens`: 0).
struct StepMetrics {
  std::int64_t step = 0;    // 1 after the first optimizer step
  std::int64_t tokens = 0;  // trained on so far
  double loss = std::numeric_limits<double>::quiet_NaN();
  double lr = std::numeric_limits<double>::quiet_NaN();
  double grad_norm = std::numeric_limits<double>::quiet_NaN();     // before clipping
  double step_ms = std::numeric_limits<double>::quiet_NaN();       // timing
  double tokens_per_s = std::numeric_limits<double>::quiet_NaN();  // timing
  NamedValues exchange = {};  // of several ranks: bytes_sent by each, and what the exchange of gradients reports
};

// One line of eval.jsonl.
struct EvalMetrics {
  std::int64_t step = 0;
  std::string task;    // e.g. "perplexity"
  NamedValues values;  // loss, perplexity, bits_per_byte; or accuracy, stderr
};

// Appends lines; each is handed to the system before append returns. A torn last line that a killed process left behind
// is cut off when the file is opened. Throws Error naming the file when it cannot be written.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::filesystem::path& file);

  // Names in `values` must not repeat a key that the line already has.
  void append(const StepMetrics& metrics);
  void append(const EvalMetrics& metrics);
  // What was appended outlives a power cut from here on.
  void flush_to_disk();

 private:
  void write(std::string line);

  std::filesystem::path file_;
  std::ofstream stream_;
};

// All lines of a file, in order; none when there is no file. A torn last line (no newline at its end) is left out.
// Throws UserError naming file and line when any other line is not an object of the expected form.
std::vector<StepMetrics> read_step_metrics(const std::filesystem::path& file);
std::vector<EvalMetrics> read_eval_metrics(const std::filesystem::path& file);

// Cuts off the first line whose `step` is above `step` and everything behind it, and a torn last line: what a resumed
// run will write again. A damaged line is cut off likewise behind the line of `step` itself, and a UserError before it.
// One truncation of the file, so that a crash leaves either the old or the new contents. Serves both files; nothing to
// do when there is no file. No MetricsWriter may have the file open.
void truncate_after(const std::filesystem::path& file, std::int64_t step);

}  // namespace filigree
