// What a training run prints. It takes plain numbers and knows nothing of the loop.
//
// A terminal gets colour; anything else gets the same text without escape sequences. Every call writes whole lines and
// flushes, so that a log file is complete up to the moment in which a run was killed.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "report/metrics.h"
#include "report/model_summary.h"

namespace filigree {

struct StartInfo {
  std::string device;     // Device::description()
  std::string precision;  // "fp32", "bf16"
  std::string model;      // e.g. "gpt2, 12 layers, width 768, 12 heads, context 1024"
  std::string method;     // e.g. "slope 2:4, adapters of rank 16 from step 1980"
  std::string data;       // e.g. "2.1M training tokens, 110k validation tokens"; "" leaves the line out
  std::string run;        // the run's folder; "" leaves the line out
  std::int64_t steps = 0;
  std::int64_t batch_tokens = 0;
  std::int64_t first_step = 0;  // above 0: resumed after this step
  ModelSummary summary;
};

struct ProgressLine {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double loss = 0.0;  // mean of the steps since the last multiple of log.every
  double lr = 0.0;
  double grad_norm = 0.0;
  double step_ms = 0.0;  // likewise
  double tokens_per_s = 0.0;
};

class Console {
 public:
  // `colour`: the stream ends at a terminal.
  Console(std::ostream& out, bool colour) : out_(out), colour_(colour) {}
  // On std::cout, coloured if that is a terminal.
  static Console standard_output();

  void start(const StartInfo& info);
  // "step  120/2000    6.0 %  loss 3.4213  lr 9.8e-04  grad 0.812  41.2k tok/s  ETA 12 min 03 s". The remaining time is
  // that of the remaining steps at an exponential average of step_ms.
  void progress(const ProgressLine& line);
  // "eval  step 120   perplexity  loss 3.5012  perplexity 33.2  bits_per_byte 1.214".
  void evaluation(const EvalMetrics& metrics);
  // One line, for what is worth knowing: a checkpoint written, adapters inserted, the run's end.
  void note(const std::string& text);
  // As note, but marked as a warning: a step skipped, a layer that runs dense.
  void warn(const std::string& text);

 private:
  std::string styled(const char* style, const std::string& text) const;

  std::ostream& out_;
  bool colour_;
  double step_ms_ = 0.0;  // exponential average over lines; 0 before the first
};

}  // namespace filigree
