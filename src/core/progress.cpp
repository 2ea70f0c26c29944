#include "core/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace filigree {
namespace {

constexpr double kTerminalInterval = 0.2;  // seconds
constexpr double kPlainInterval = 10.0;
constexpr const char* kEraseLine = "\r\x1b[K";

std::string two_digits(std::int64_t value) {
  std::string digits = std::to_string(value);
  if (value < 10) digits.insert(digits.begin(), '0');
  return digits;
}

// "48 s", "3 min 20 s", "2 h 05 min"
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + two_digits(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + two_digits(whole % 3600 / 60) + " min";
}

}  // namespace

Progress::Progress(std::FILE* stream, std::string label, std::int64_t total)
    : stream_(stream), label_(std::move(label)), total_(total), start_(std::chrono::steady_clock::now()) {
  terminal_ = stream_ != nullptr && isatty(fileno(stream_)) == 1;
  next_ = terminal_ ? kTerminalInterval : kPlainInterval;
}

Progress::~Progress() {
  if (line_open_) std::fputs("\n", stream_);
}

double Progress::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::update(std::int64_t done) {
  if (stream_ == nullptr) return;
  const double now = elapsed();
  if (now < next_) return;
  next_ = now + (terminal_ ? kTerminalInterval : kPlainInterval);
  std::string line = label_ + ": ";
  if (total_ > 0 && done > 0) {
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 1e-9, 1.0);
    line += std::to_string(static_cast<int>(100.0 * share)) + " %, " + duration_text(now / share - now) + " left";
  } else {
    line += duration_text(now);
  }
  std::fprintf(stream_, terminal_ ? "%s%s" : "%.0s%s\n", kEraseLine, line.c_str());
  std::fflush(stream_);
  line_open_ = terminal_;
}

void Progress::finish(const std::string& result) {
  if (stream_ == nullptr) return;
  std::fprintf(stream_, "%s%s: %s (%s)\n", line_open_ ? kEraseLine : "", label_.c_str(), result.c_str(),
               duration_text(elapsed()).c_str());
  std::fflush(stream_);
  line_open_ = false;
}

}  // namespace filigree
