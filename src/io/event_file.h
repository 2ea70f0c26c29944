// Event files as TensorBoard reads them: records of a length, its checksum, bytes and their checksum; the bytes are an
// Event in Protocol Buffers' encoding. Only what filigree writes is known here: scalars, texts and histograms.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace filigree {

// A histogram with `counts[i]` values above limits[i - 1] and at most limits[i].
struct EventHistogram {
  double minimum = 0.0, maximum = 0.0, sum = 0.0, sum_of_squares = 0.0;
  std::int64_t count = 0;
  std::vector<double> limits, counts;
};
// Of finite values, in equal steps from the least to the largest; values that are not finite are left out.
EventHistogram histogram_of(const std::vector<float>& values);

// Appends to a file, and hands each event to the system before the call returns. A torn last record is cut off when
// the file is opened; a new file gets the event that names the format. Throws Error where it cannot be written.
class EventWriter {
 public:
  explicit EventWriter(const std::filesystem::path& file);

  void scalar(std::int64_t step, const std::string& tag, double value);
  void text(std::int64_t step, const std::string& tag, const std::string& markdown);
  void histogram(std::int64_t step, const std::string& tag, const EventHistogram& histogram);
  void flush_to_disk();

 private:
  void write_value(std::int64_t step, const std::string& value);
  void write(const std::string& event);

  std::filesystem::path file_;
  std::ofstream stream_;
};

// What was written, for tests and for truncate_events_after.
struct Event {
  double wall_time = 0.0;
  std::int64_t step = 0;
  std::string version;  // of the first event
  std::string tag;
  double scalar = 0.0;
  std::string text;
  EventHistogram histogram;
  std::uintmax_t end = 0;  // of its record in the file, in bytes
};
// Of an Event's encoding; none where that is damaged.
std::optional<Event> parse_event(std::string_view bytes);
// The whole records of a file, none where there is no file. A torn last one is left out; any other damage is a
// UserError that names the file.
std::vector<Event> read_events(const std::filesystem::path& file);

// As truncate_after of metrics.h: what a resumed run will write again is cut off.
void truncate_events_after(const std::filesystem::path& file, std::int64_t step);

}  // namespace filigree
