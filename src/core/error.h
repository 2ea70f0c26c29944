// Errors of the whole engine. Three kinds, because the program's exit code depends on who has to act:
//   Error      the run failed (out of memory, a full disk, a library refused): exit code 1
//   UserError  the user's input is wrong: exit code 2, one message, no source location
//   Interrupted  the user stopped the program: exit code 3
// A UserError says what is wrong, where (file, line, key), the value found and what would be right.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace filigree {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class UserError : public Error {
 public:
  using Error::Error;
};

// The user stopped the program (SIGINT, SIGTERM) and nothing is lost: exit code 3.
class Interrupted : public Error {
 public:
  using Error::Error;
};

inline std::string located(const std::string& text, std::source_location at) {
  return std::string(at.file_name()) + ":" + std::to_string(at.line()) + ": " + text;
}

// Throws Error with the caller's file and line unless `ok`. The text is built even when the check passes: keep it out
// of inner loops, or pass a literal.
inline void require(bool ok, const char* text, std::source_location at = std::source_location::current()) {
  if (!ok) throw Error(located(text, at));
}
inline void require(bool ok, const std::string& text, std::source_location at = std::source_location::current()) {
  if (!ok) throw Error(located(text, at));
}

// Throws UserError unless `ok`.
inline void require_user(bool ok, const std::string& text) {
  if (!ok) throw UserError(text);
}

}  // namespace filigree
