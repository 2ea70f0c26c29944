// Tasks from lines that a test writes.
#pragma once

#include <fstream>
#include <string>

#include "core/error.h"
#include "eval/task.h"
#include "support.h"

namespace filigree::testing {

// Reads `text` as the file NAME.jsonl, or another ending.
inline EvalTask task_of(const std::string& name, const std::string& text, const std::string& ending = ".jsonl") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / (name + ending)) << text;
  const std::string source = folder.path().string();
  return load_task(name, {&source, 1}, true);
}
inline TaskItem item_of(const std::string& name, const std::string& line) {
  return task_of(name, line + "\n").sets.at(0).items.at(0);
}
inline std::string task_refusal(const std::string& name, const std::string& text,
                                const std::string& ending = ".jsonl") {
  try {
    task_of(name, text, ending);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace filigree::testing
