#include "eval/task_line.h"

#include <algorithm>

#include "core/error.h"

namespace filigree {

void TaskLine::fail(const std::string& what) const {
  throw UserError(where_ + ": " + what + "; " + expected_);
}

std::string TaskLine::text(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end() || !found->is_string()) fail("it has no text under \"" + std::string(key) + "\"");
  return found->get<std::string>();
}

std::vector<std::string> TaskLine::texts(const char* key) const {
  const auto found = object_.find(key);
  const bool fits = found != object_.end() && found->is_array() && !found->empty() &&
                    std::all_of(found->begin(), found->end(), [](const auto& each) { return each.is_string(); });
  if (!fits) fail("it has no list of texts under \"" + std::string(key) + "\"");
  return found->get<std::vector<std::string>>();
}

std::int64_t TaskLine::index(const char* key, std::size_t count) const {
  const auto found = object_.find(key);
  std::int64_t value = -1;
  if (found != object_.end() && found->is_number_integer()) value = found->get<std::int64_t>();
  if (found != object_.end() && found->is_string()) {
    const auto digits = found->get<std::string>();
    if (digits.size() == 1 && digits[0] >= '0' && digits[0] <= '9') value = digits[0] - '0';
  }
  if (value < 0 || value >= static_cast<std::int64_t>(count))
    fail("a number from 0 to " + std::to_string(count - 1) + " is needed under \"" + key + "\"" +
         (found == object_.end() ? "" : ", this is " + found->dump()));
  return value;
}

TaskLine TaskLine::inner(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end() || !found->is_object()) fail("it has no object under \"" + std::string(key) + "\"");
  return {*found, where_, expected_};
}

std::int64_t TaskLine::place_of(const std::string& label, const std::vector<std::string>& labels) const {
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (found == labels.end()) fail("the answer \"" + label + "\" is none of the choices");
  return found - labels.begin();
}

}  // namespace filigree
