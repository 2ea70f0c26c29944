// eval --task perplexity: the run's validation data, or other data for the same tokenizer.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/interrupt.h"
#include "core/progress.h"
#include "data/data_info.h"
#include "data/training_data.h"
#include "eval/perplexity.h"
#include "eval_tasks.h"

namespace filigree {
namespace {

// Throws unless --data names tokens: its mistakes would else be those of data.train, which the user has not given.
void check_data(const std::vector<std::string>& data) {
  constexpr const char* kExpected = "; give token shards (.bin) or a folder made by filigree prepare";
  for (const std::string& pattern : data) {
    const std::vector<std::filesystem::path> paths = expand_glob(pattern);
    require_user(!paths.empty(), "--data: nothing matches \"" + pattern + "\"" + kExpected);
    for (const std::filesystem::path& path : paths)
      require_user(path.extension() == ".bin" || std::filesystem::exists(path / kDataInfoFile),
                   "--data: " + path.string() + " holds no tokens" + kExpected);
  }
}

// The run's validation data, or other data for the same tokenizer.
TrainingData find_data(const EvalOptions& options, const LoadedModel& loaded) {
  check_data(options.data);
  DataConfig config = loaded.config.data;
  require_user(!options.data.empty() || !config.train.empty(),
               "an imported model has no data of its own; name some with --data");
  if (!options.data.empty()) {
    config.train = options.data;
    config.val = options.data;
    config.tokenizer = "";
  }
  // Text that was prepared into the run lies beside its checkpoints; scoring never prepares any.
  const TrainingData data = find_training_data(config, {.run_folder = loaded.checkpoint.parent_path().parent_path(),
                                                        .progress = nullptr,
                                                        .stop = {},
                                                        .may_prepare = false});
  require_user(!data.val.empty(), "the run has no validation data; name some with --data");
  require_user(!data.tokenizer || !loaded.tokenizer || data.tokenizer->identity() == loaded.tokenizer->identity(),
               "--data: made with tokenizer " + (data.tokenizer ? data.tokenizer->identity() : "") +
                   ", but the model was trained with " + (loaded.tokenizer ? loaded.tokenizer->identity() : ""));
  return data;
}

}  // namespace

PerplexityResult eval_perplexity(const EvalOptions& options, Device& device, const LoadedModel& loaded,
                                 Activations& activations) {
  const TrainingData data = find_data(options, loaded);
  const DatasetView view(data.val, loaded.config.model.vocab);
  Progress progress(options.json ? nullptr : stderr, "perplexity",
                    options.tokens > 0 ? std::min(options.tokens, view.tokens() - 1) : view.tokens() - 1);
  const Perplexity result = perplexity(device, *loaded.model, activations, view,
                                       {.batch = options.batch,
                                        .max_tokens = options.tokens,
                                        .bytes_per_token = data.val_bytes_per_token,
                                        .progress = [&](std::int64_t done, std::int64_t) {
                                          progress.update(done);
                                          if (interrupt_requested()) throw Interrupted("interrupted");
                                        }});
  progress.finish(std::to_string(result.targets) + " tokens");
  return {result, data.val_unigram_entropy};
}

}  // namespace filigree
