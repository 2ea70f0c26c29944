// Evaluation tasks: questions whose answers are scored by their log-probability. What is asked, word by word, and how
// it is scored follow lm-evaluation-harness (github.com/EleutherAI/lm-evaluation-harness), so that scores can stand
// beside those that others publish.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace filigree {

struct TaskRequest {
  std::string context, continuation;  // the continuation's probability behind the context
};

struct TaskItem {
  std::vector<TaskRequest> requests;      // one a choice; a TaskKind::continuation has one
  std::int64_t gold = 0;                  // the right choice
  std::vector<std::string> choices = {};  // whose lengths normalize; empty: nothing is normalized
};

// A part of a task with a score of its own: a subject of MMLU, a paradigm of BLiMP. Other tasks have one.
struct TaskSet {
  std::string name;   // "mmlu_anatomy"
  std::string group;  // "mmlu_stem"; "" for none
  std::vector<TaskItem> items;
};

enum class TaskKind : std::uint8_t {
  choices,      // acc: the most probable choice is the right one
  continuation  // acc: every token was the most probable one; perplexity of the continuations
};

struct EvalTask {
  std::string name;
  TaskKind kind = TaskKind::choices;
  bool normalized = false;      // acc_norm and acc_bytes as well: log-probability by length
  bool weighted = false;        // mean over all items; else the mean of the sets' means
  std::string version = "1.0";  // of the harness's task
  std::vector<TaskSet> sets;

  std::int64_t items() const;
};

// Reads a task. `sources` are the user's: PATH or NAME=PATH, a folder, a .jsonl file (also compressed) or a tar archive
// of them. A task takes what is named for it; else NAME.jsonl, NAME.tar.* or NAME/ inside a folder that is given, else
// a file that is called so; else, where `only` says that no other task shares the sources, the one source that there
// is. Names that filigree does not know are tasks of the user's own: see docs/evaluation.md for all formats.
// limit: at most so many items of each set; 0: all. Throws UserError.
EvalTask load_task(const std::string& name, std::span<const std::string> sources, bool only, std::int64_t limit = 0);

// All tasks, each once.
std::vector<EvalTask> load_tasks(std::span<const std::string> names, std::span<const std::string> sources,
                                 std::int64_t limit = 0);

// "lambada, hellaswag, ...": those whose published formats are known.
std::string known_tasks();

}  // namespace filigree
