// A run that takes a second: a tiny model on a text of our own making.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "io/config_toml.h"
#include "support.h"
#include "train/trainer.h"

namespace filigree::testing {

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream bytes;
  bytes << stream.rdbuf();
  return bytes.str();
}

inline void write_text(const std::filesystem::path& path) {
  std::ofstream stream(path);
  const char* things[] = {"the river", "a lantern", "the mill", "an old road", "the heron"};
  const char* doings[] = {"waits for rain", "turns before dawn", "remembers the snow", "keeps its own time"};
  for (int i = 0; i < 400; ++i)
    stream << "In year " << i % 37 << " " << things[i * 7 % 5] << " " << doings[i * 3 % 4] << ".\n";
}

// keys: "key=value" lines on top of a tiny SLoPe run in `folder`.
inline Config tiny_run_config(const std::filesystem::path& folder, const std::vector<std::string>& keys = {}) {
  const std::filesystem::path text = folder / "text.txt";
  if (!std::filesystem::exists(text)) write_text(text);
  const std::string toml =
      "[model]\narch = \"gpt2\"\nlayers = 2\nwidth = 32\nheads = 2\ncontext = 32\n"
      "[data]\ntrain = \"text.txt\"\ntokenizer = \"bytes\"\n"
      "[train]\nsteps = 8\nbatch_tokens = 256\nmicro_batch = 4\nlr = 3e-3\nwarmup = 2\n"
      "[weights]\nmethod = \"slope\"\n"
      "[run]\ndeterministic = true\ndevice = \"" FILIGREE_TEST_DEVICE
      "\"\n"
      "[eval]\nevery = 4\ntokens = 256\n";
  return parse_config(toml, "tiny.toml", folder, keys);
}

// Trains into folder/name; what the console says goes to `said` when it is not null.
inline TrainOutcome train_tiny(const Config& config, const std::filesystem::path& run, bool resume = false,
                               std::string* said = nullptr) {
  std::ostringstream out;
  Console console(out, false);
  Trainer trainer(config, {.run = run, .resume = resume}, console);
  const TrainOutcome outcome = trainer.run();
  if (said) *said = out.str();
  return outcome;
}

}  // namespace filigree::testing
