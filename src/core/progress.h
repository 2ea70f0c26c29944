// Progress of a long task with a known total: one line that is rewritten on a terminal (share done, time left), plain
// lines now and then elsewhere, so that a log stays readable. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace filigree {

class Progress {
 public:
  // Writes to `stream`, or nowhere when it is null. `total` <= 0: unknown, only the label and the time are shown.
  Progress(std::FILE* stream, std::string label, std::int64_t total);
  ~Progress();  // ends an unfinished terminal line, so that an error message starts on its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total`. Cheap enough to call often: it prints at most every 0.2 s on a terminal, every 10 s elsewhere.
  void update(std::int64_t done);
  // Replaces the line by a last one: label, `result`, and the time that it took.
  void finish(const std::string& result);

 private:
  double elapsed() const;

  std::FILE* stream_;
  std::string label_;
  std::int64_t total_;
  std::chrono::steady_clock::time_point start_;
  double next_ = 0.0;  // seconds after start_ at which the next line is due
  bool terminal_ = false;
  bool line_open_ = false;
};

}  // namespace filigree
