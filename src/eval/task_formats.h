// The tasks that filigree knows, with the prompts of lm-evaluation-harness 0.4.13 and the formats in which their data
// is published.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "eval/task.h"
#include "eval/task_line.h"

namespace filigree {

struct TaskFormat {
  std::string_view name;
  TaskKind kind = TaskKind::choices;
  bool normalized = false;
  bool weighted = false;
  std::string_view version;
  std::string_view expected;  // what its lines have, for messages
  // Whether the line has this form. Lines of none are read as the user's own form, see read_own_line.
  bool (*fits)(const TaskLine& line) = nullptr;
  TaskItem (*read)(const TaskLine& line) = nullptr;
  // Set and group of a line, where a task has several: `file` is the file's name without endings.
  void (*place)(const TaskLine& line, const std::string& file, TaskSet& set) = nullptr;
};

std::span<const TaskFormat> task_formats();
const TaskFormat* find_task_format(std::string_view name);

inline constexpr std::string_view kOwnLines =
    "a line has query, choices and gold (the right choice's place, from 0); or context_options, continuation and gold; "
    "or context and continuation";
// A line of the user's own task; `kind` and `normalized` are set to what it is.
TaskItem read_own_line(const TaskLine& line, TaskKind& kind, bool& normalized);

// The same for a task that has a published form: what the harness asks before the answer stands in place of what the
// line's query has around the question.
TaskItem read_converted_line(const TaskFormat& format, const TaskLine& line);

// HellaSwag as text: six lines an item, its context, the right ending's place, four endings.
std::vector<TaskItem> read_six_lines(const std::string& text, const std::string& file);

TaskItem race_item(const TaskLine& line);  // race.cpp

}  // namespace filigree
