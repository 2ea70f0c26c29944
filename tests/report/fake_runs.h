// Made-up runs with the files and the shape of real ones: a dense model, the same one trained with SLoPe or with
// blocks.
#pragma once

#include <filesystem>
#include <string>

#include "report/run_data.h"

namespace filigree::testing {

struct FakeRun {
  std::string method = "dense";  // dense | slope | block
  std::int64_t steps = 400;      // written to metrics.jsonl
  std::int64_t planned_steps = 400;
  std::int64_t eval_every = 40;
  bool tasks = false;  // rows of hellaswag and lambada beside perplexity
  std::string sample = "a small house by the sea, and the sea was quiet.";
};

// Writes the run into `folder`, which it makes.
void write_fake_run(const std::filesystem::path& folder, const FakeRun& run);

}  // namespace filigree::testing
