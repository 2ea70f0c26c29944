#include "train/resumption.h"

#include <cstdio>
#include <filesystem>

#include "io/config_keys.h"
#include "io/config_toml.h"
#include "io/model_presets.h"
#include "optim/schedule.h"
#include "report/format.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// Whether the value of a key of [model] is the one that it has when it is not given.
bool follows(const std::string& name, const Config& config) {
  Config other = config;
  if (const auto preset = model_preset(config.model.preset); preset && name != "model.preset")
    other.model = *preset;
  else if (name == "model.ffn")
    other.model.ffn = 0;
  else if (name == "model.kv_heads")
    other.model.kv_heads = 0;
  else if (name == "model.tied")
    other.model.tied = other.model.arch != "llama";
  else
    return false;
  resolve_shape(other.model);
  const ConfigKey& key = *find_config_key(name);
  return toml_value(key.get(other)) == toml_value(key.get(config));
}

std::string describe(const std::map<std::string, DataFingerprint>& data, const char* split) {
  const auto found = data.find(split);
  if (found == data.end()) return "none";
  char checksum[16];
  std::snprintf(checksum, sizeof checksum, "%08x", found->second.checksum);
  return std::to_string(found->second.tokens) + " tokens of CRC-32C " + checksum;
}

}  // namespace

std::string forbidden_changes(const Config& saved, const Config& now, const std::set<std::string>& free) {
  std::string text;
  for (const ConfigChange& change : difference(saved, now)) {
    if (change.resumable || free.contains(change.key)) continue;
    if (change.key == "model.init" && fs::path(saved.model.init).filename() == fs::path(now.model.init).filename())
      continue;
    if (change.key.starts_with("model.") && follows(change.key, saved) && follows(change.key, now)) continue;
    text += "\n  " + change.key + ": the run was started with " + change.before + ", now it is " + change.after;
  }
  return text;
}

std::string changed_data(const std::map<std::string, DataFingerprint>& saved,
                         const std::map<std::string, DataFingerprint>& now) {
  std::string text;
  for (const char* split : {"train", "val"}) {
    const std::string before = describe(saved, split), after = describe(now, split);
    if (before != after)
      text += std::string("\n  data.") + split + ": the run was started with " + before + ", now there are " + after;
  }
  return text;
}

std::string rate_change(const Config& saved, const Config& now, std::int64_t step) {
  if (step == 0 || saved.train.steps == now.train.steps) return "";
  const double before = learning_rate(saved.train, step - 1), after = learning_rate(now.train, step - 1);
  if (before == after) return "";
  return "train.steps is " + std::to_string(now.train.steps) + " and was " + std::to_string(saved.train.steps) +
         ", which changes the schedule: the learning rate in step " + std::to_string(step) + " was " +
         format_number(before, 3) + " and would now be " + format_number(after, 3) + ", so it jumps";
}

std::int64_t checkpoint_interval(const Config& config, bool evaluated) {
  if (config.checkpoint.every > 0) return config.checkpoint.every;
  if (evaluated && config.eval.every > 0 && config.eval.every < config.train.steps) return config.eval.every;
  return (config.train.steps + 9) / 10;
}

}  // namespace filigree
