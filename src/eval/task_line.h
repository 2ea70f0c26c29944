// One line of a task's data, and the fields that tasks want of it. Whatever is missing is a UserError that names file
// and line, and says what the task's lines look like.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace filigree {

class TaskLine {
 public:
  TaskLine(const nlohmann::json& object, std::string where, std::string expected)
      : object_(object), where_(std::move(where)), expected_(std::move(expected)) {}

  bool has(const char* key) const { return object_.contains(key); }
  const nlohmann::json& object() const { return object_; }
  std::string text(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  // A number from 0, or its digits as a text, below `count`.
  std::int64_t index(const char* key, std::size_t count) const;
  // An object inside the line: under a key, or any.
  TaskLine inner(const char* key) const;
  TaskLine inside(const nlohmann::json& object) const { return {object, where_, expected_}; }
  // The place of `label` in `labels`.
  std::int64_t place_of(const std::string& label, const std::vector<std::string>& labels) const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  const nlohmann::json& object_;
  std::string where_, expected_;
};

}  // namespace filigree
