// A line of any task's data: an item with a right answer among its choices, or a UserError. The first byte chooses the
// task; the rest is the line. Python's literals and HellaSwag's text form as well.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "eval/python_literal.h"
#include "eval/task_formats.h"

namespace {

void check(const filigree::TaskItem& item, filigree::TaskKind kind) {
  if (item.requests.empty()) std::abort();
  if (kind == filigree::TaskKind::choices &&
      (item.gold < 0 || item.gold >= static_cast<std::int64_t>(item.requests.size())))
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  filigree::parse_python_literal(text);
  try {
    for (const filigree::TaskItem& item : filigree::read_six_lines(text, "hellaswag.txt"))
      check(item, filigree::TaskKind::choices);
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return 0;
  const filigree::TaskLine line(object, "line 1", "expected");
  const auto formats = filigree::task_formats();
  const std::size_t chosen = data[0] % (formats.size() + 1);
  try {
    if (chosen < formats.size()) {
      const filigree::TaskFormat& format = formats[chosen];
      filigree::TaskSet set;
      if (format.place) format.place(line, "file", set);
      check(format.read(line), format.kind);
    } else {
      filigree::TaskKind kind = filigree::TaskKind::choices;
      bool normalized = false;
      check(filigree::read_own_line(line, kind, normalized), kind);
    }
  } catch (const filigree::UserError&) {
  }
  return 0;
}
