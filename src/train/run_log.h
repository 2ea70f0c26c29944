// What a run writes down while it trains: metrics.jsonl, eval.jsonl and, where log.tensorboard asks for it, the events
// in tensorboard/.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "io/event_file.h"
#include "model/transformer.h"
#include "report/metrics.h"

namespace filigree {

class RunLog {
 public:
  RunLog(const std::filesystem::path& run, bool tensorboard);

  // Cuts off what a run that goes on from `step` will write again.
  static void truncate_after(const std::filesystem::path& run, std::int64_t step);

  void append(const StepMetrics& metrics);
  void append(const EvalMetrics& metrics);
  // For TensorBoard alone; nothing without it. The weights' copy on the host lives only while it is drawn.
  void weights(std::int64_t step, Device& device, const Transformer& model);
  void text(std::int64_t step, const std::string& name, const std::string& text);
  // What was appended outlives a power cut from here on.
  void flush_to_disk();

 private:
  MetricsWriter metrics_, evaluations_;
  std::optional<EventWriter> events_;
};

}  // namespace filigree
