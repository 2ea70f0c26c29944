#include "eval/task.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/error.h"
#include "eval/task_files.h"
#include "eval/task_formats.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// The name before the first dot: "hellaswag" of "data/hellaswag.jsonl.gz".
std::string base_name(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.substr(0, name.find('.'));
}

// NAME, or NAME.jsonl and the like, inside a folder.
std::optional<fs::path> inside(const fs::path& folder, const std::string& name) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return std::nullopt;
  for (const char* ending :
       {".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst", ".tar", ".tar.gz", ".tar.xz", ".tar.zst", ".txt", ""}) {
    const fs::path path = folder / (name + ending);
    if (fs::exists(path, error)) return path;
  }
  return std::nullopt;
}

fs::path source_of(const std::string& name, std::span<const std::string> sources, bool only) {
  for (const std::string& source : sources)
    if (source.starts_with(name + "=")) return source.substr(name.size() + 1);
  for (const std::string& source : sources)
    if (const auto found = inside(source, name)) return *found;
  for (const std::string& source : sources)
    if (base_name(source) == name) return source;
  if (only && sources.size() == 1) return sources.front();
  const bool known = find_task_format(name) != nullptr;
  throw UserError("task " + name + ": " +
                  (known ? "no data for it" : "no task that filigree knows, and no data of that name") + "; give " +
                  name + "=FILE, or a folder that holds " + name + ".jsonl" +
                  (known ? "" : " with questions of your own, or one of the tasks perplexity, " + known_tasks()));
}

bool is_six_lines(const NamedFile& file) {
  return fs::path(file.name).extension() == ".txt";
}

class Loader {
 public:
  explicit Loader(const std::string& name) : format_(find_task_format(name)) {
    task_.name = name;
    if (!format_) return;
    task_.kind = format_->kind;
    task_.normalized = format_->normalized;
    task_.weighted = format_->weighted;
    task_.version = format_->version;
  }

  void read(const NamedFile& file) {
    const std::size_t before = static_cast<std::size_t>(task_.items());
    if (is_six_lines(file)) {
      for (TaskItem& item : read_six_lines(file.bytes, file.name)) set_of({task_.name, "", {}}).items.push_back(item);
    } else {
      for_each_json_line(file, [&](const nlohmann::json& object, const std::string& where) {
        read_line(TaskLine(object, where, std::string(format_ ? format_->expected : kOwnLines)), base_name(file.name));
      });
    }
    require_user(static_cast<std::size_t>(task_.items()) > before,
                 file.name + ": this file has no lines; " + std::string(format_ ? format_->expected : kOwnLines));
  }
  EvalTask finish() && { return std::move(task_); }

 private:
  void read_line(const TaskLine& line, const std::string& file) {
    TaskSet place{task_.name, "", {}};
    TaskItem item;
    if (!format_) {
      TaskKind kind = task_.kind;
      bool normalized = false;
      item = read_own_line(line, kind, normalized);
      if (task_.items() == 0) task_.kind = kind, task_.normalized = normalized;
      if (task_.kind != kind || task_.normalized != normalized) line.fail("it has another form than those before it");
    } else if (format_->place || format_->fits(line)) {
      if (format_->place) format_->place(line, file, place);
      item = format_->read(line);
    } else {
      item = line.has("query") || line.has("continuation") ? read_converted_line(*format_, line) : format_->read(line);
    }
    set_of(std::move(place)).items.push_back(std::move(item));
  }
  // The task's set of that name; lines of one set mostly follow each other.
  TaskSet& set_of(TaskSet set) {
    for (auto known = task_.sets.rbegin(); known != task_.sets.rend(); ++known)
      if (known->name == set.name) return *known;
    return task_.sets.emplace_back(std::move(set));
  }

  const TaskFormat* format_;
  EvalTask task_;
};

}  // namespace

std::int64_t EvalTask::items() const {
  std::int64_t count = 0;
  for (const TaskSet& set : sets) count += static_cast<std::int64_t>(set.items.size());
  return count;
}

EvalTask load_task(const std::string& name, std::span<const std::string> sources, bool only, std::int64_t limit) {
  Loader loader(name);
  for (const NamedFile& file : read_task_files(source_of(name, sources, only), name == "hellaswag" ? ".txt" : ""))
    loader.read(file);
  EvalTask task = std::move(loader).finish();
  if (limit > 0)
    for (TaskSet& set : task.sets) set.items.resize(std::min(set.items.size(), static_cast<std::size_t>(limit)));
  return task;
}

std::vector<EvalTask> load_tasks(std::span<const std::string> names, std::span<const std::string> sources,
                                 std::int64_t limit) {
  std::vector<EvalTask> tasks;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    require_user(seen.insert(name).second, "task " + name + ": named twice");
    tasks.push_back(load_task(name, sources, names.size() == 1, limit));
  }
  return tasks;
}

std::string known_tasks() {
  std::string names;
  for (const TaskFormat& format : task_formats()) names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

}  // namespace filigree
