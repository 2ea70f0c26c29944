#include "io/event_file.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "io/atomic_file.h"
#include "io/checksum.h"

namespace filigree {
namespace {

static_assert(std::endian::native == std::endian::little, "records and numbers are little-endian");

constexpr std::size_t kBuckets = 64;
constexpr std::size_t kHeader = 12, kFooter = 4;  // length and its checksum; the bytes' checksum
constexpr std::uint64_t kLongestRecord = 64u << 20;

// The checksum as the format has it: rotated and moved, so that a checksum of checksums is no trivial one.
std::uint32_t masked_crc(const void* data, std::size_t bytes) {
  const std::uint32_t crc = crc32c(data, bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Protocol Buffers: a field is its number and its kind, then a variable-length integer, eight or four bytes, or a
// length and bytes.
enum Wire : std::uint64_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };

void put_varint(std::string& bytes, std::uint64_t value) {
  for (; value >= 0x80u; value >>= 7) bytes += static_cast<char>(value | 0x80u);
  bytes += static_cast<char>(value);
}
void put_key(std::string& bytes, std::uint64_t field, Wire wire) {
  put_varint(bytes, field << 3 | wire);
}
void put_integer(std::string& bytes, std::uint64_t field, std::int64_t value) {
  put_key(bytes, field, kVarint);
  put_varint(bytes, static_cast<std::uint64_t>(value));
}
void put_double(std::string& bytes, std::uint64_t field, double value) {
  put_key(bytes, field, kEight);
  put(bytes, value);
}
void put_bytes(std::string& bytes, std::uint64_t field, std::string_view value) {
  put_key(bytes, field, kBytes);
  put_varint(bytes, value.size());
  bytes += value;
}
void put_doubles(std::string& bytes, std::uint64_t field, const std::vector<double>& values) {
  put_bytes(bytes, field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
}

// Field numbers of tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto.
namespace field {
constexpr std::uint64_t kWallTime = 1, kStep = 2, kVersion = 3, kSummary = 5;               // Event
constexpr std::uint64_t kValue = 1;                                                         // Summary
constexpr std::uint64_t kTag = 1, kSimple = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;  // Summary.Value
constexpr std::uint64_t kPluginData = 1, kPluginName = 1;                                   // SummaryMetadata
constexpr std::uint64_t kType = 1, kShape = 2, kText = 8;                                   // TensorProto
constexpr std::uint64_t kDimension = 2, kSize = 1;                                          // TensorShapeProto
constexpr std::uint64_t kMinimum = 1, kMaximum = 2, kCount = 3, kSum = 4, kSquares = 5, kLimits = 6, kCounts = 7;
}  // namespace field
constexpr std::int64_t kStringType = 7;
constexpr double kLargestCount = 9007199254740992.0;  // to which a double holds every integer

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Walks the fields of a message; ends at its end or where it is damaged.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field_ = key >> 3;
    wire_ = key & 7u;
    if (wire_ == kVarint) {
      integer_ = varint();
    } else {
      const std::uint64_t size = wire_ == kEight   ? 8
                                 : wire_ == kFour  ? 4
                                 : wire_ == kBytes ? varint()
                                                   : rest_.size() + 1;
      if (size > rest_.size()) whole_ = false;
      if (!whole_) return false;
      bytes_ = rest_.substr(0, size);
      rest_.remove_prefix(size);
    }
    return whole_;
  }
  bool whole() const { return whole_; }
  bool is(std::uint64_t field, Wire wire) const { return field_ == field && wire_ == wire; }
  std::int64_t integer() const { return static_cast<std::int64_t>(integer_); }
  std::string_view bytes() const { return bytes_; }
  template <typename T>
  T number() const {
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7Fu) << shift;
      if (byte < 0x80u) return value;
    }
    whole_ = false;
    return 0;
  }

  std::string_view rest_, bytes_;
  std::uint64_t field_ = 0, wire_ = 0, integer_ = 0;
  bool whole_ = true;
};

std::vector<double> doubles(std::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
  return values;
}

bool parse_histogram(std::string_view bytes, EventHistogram& histogram) {
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.is(field::kMinimum, kEight)) histogram.minimum = fields.number<double>();
    if (fields.is(field::kMaximum, kEight)) histogram.maximum = fields.number<double>();
    if (fields.is(field::kCount, kEight)) {
      const auto count = fields.number<double>();
      if (!(count >= 0.0 && count <= kLargestCount)) return false;
      histogram.count = static_cast<std::int64_t>(count);
    }
    if (fields.is(field::kSum, kEight)) histogram.sum = fields.number<double>();
    if (fields.is(field::kSquares, kEight)) histogram.sum_of_squares = fields.number<double>();
    if (fields.is(field::kLimits, kBytes)) histogram.limits = doubles(fields.bytes());
    if (fields.is(field::kCounts, kBytes)) histogram.counts = doubles(fields.bytes());
  }
  return fields.whole();
}

bool parse_value(std::string_view bytes, Event& event) {
  bool whole = true;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.is(field::kTag, kBytes)) event.tag = fields.bytes();
    if (fields.is(field::kSimple, kFour)) event.scalar = static_cast<double>(fields.number<float>());
    if (fields.is(field::kHistogram, kBytes)) whole = parse_histogram(fields.bytes(), event.histogram) && whole;
    if (!fields.is(field::kTensor, kBytes)) continue;
    Fields tensor(fields.bytes());
    while (tensor.next())
      if (tensor.is(field::kText, kBytes)) event.text = tensor.bytes();
    whole = tensor.whole() && whole;
  }
  return whole && fields.whole();
}

}  // namespace

EventHistogram histogram_of(const std::vector<float>& values) {
  EventHistogram histogram{.minimum = std::numeric_limits<double>::infinity(),
                           .maximum = -std::numeric_limits<double>::infinity(),
                           .limits = {},
                           .counts = {}};
  for (const float each : values) {
    if (!std::isfinite(each)) continue;
    const auto value = static_cast<double>(each);
    histogram.minimum = std::min(histogram.minimum, value);
    histogram.maximum = std::max(histogram.maximum, value);
    histogram.sum += value;
    histogram.sum_of_squares += value * value;
    ++histogram.count;
  }
  if (histogram.count == 0) return {};
  const double range = histogram.maximum - histogram.minimum;
  const std::size_t buckets = range > 0.0 ? kBuckets : 1;
  histogram.counts.resize(buckets);
  for (std::size_t i = 1; i < buckets; ++i)
    histogram.limits.push_back(histogram.minimum + range * static_cast<double>(i) / static_cast<double>(buckets));
  histogram.limits.push_back(histogram.maximum);
  for (const float each : values) {
    if (!std::isfinite(each)) continue;
    const auto bucket =
        std::lower_bound(histogram.limits.begin(), histogram.limits.end() - 1, static_cast<double>(each));
    histogram.counts[static_cast<std::size_t>(bucket - histogram.limits.begin())] += 1.0;
  }
  return histogram;
}

EventWriter::EventWriter(const std::filesystem::path& file) : file_(file) {
  std::filesystem::create_directories(file.parent_path());
  truncate_events_after(file, std::numeric_limits<std::int64_t>::max());
  const bool is_new = !std::filesystem::exists(file) || std::filesystem::file_size(file) == 0;
  stream_.open(file, std::ios::binary | std::ios::app);
  require(stream_.good(), "cannot open " + file.string() + " for writing");
  if (!is_new) return;
  std::string event;
  put_double(event, field::kWallTime, now());
  put_bytes(event, field::kVersion, "brain.Event:2");
  write(event);
}

void EventWriter::scalar(std::int64_t step, const std::string& tag, double number) {
  std::string value;
  put_bytes(value, field::kTag, tag);
  put_key(value, field::kSimple, kFour);
  put(value, static_cast<float>(number));
  write_value(step, value);
}

void EventWriter::text(std::int64_t step, const std::string& tag, const std::string& markdown) {
  std::string dimension, shape, tensor, plugin, metadata, value;
  put_integer(dimension, field::kSize, 1);
  put_bytes(shape, field::kDimension, dimension);
  put_integer(tensor, field::kType, kStringType);
  put_bytes(tensor, field::kShape, shape);
  put_bytes(tensor, field::kText, markdown);
  put_bytes(plugin, field::kPluginName, "text");
  put_bytes(metadata, field::kPluginData, plugin);
  put_bytes(value, field::kTag, tag);
  put_bytes(value, field::kTensor, tensor);
  put_bytes(value, field::kMetadata, metadata);
  write_value(step, value);
}

void EventWriter::histogram(std::int64_t step, const std::string& tag, const EventHistogram& histogram) {
  std::string bytes, value;
  put_double(bytes, field::kMinimum, histogram.minimum);
  put_double(bytes, field::kMaximum, histogram.maximum);
  put_double(bytes, field::kCount, static_cast<double>(histogram.count));
  put_double(bytes, field::kSum, histogram.sum);
  put_double(bytes, field::kSquares, histogram.sum_of_squares);
  put_doubles(bytes, field::kLimits, histogram.limits);
  put_doubles(bytes, field::kCounts, histogram.counts);
  put_bytes(value, field::kTag, tag);
  put_bytes(value, field::kHistogram, bytes);
  write_value(step, value);
}

void EventWriter::write_value(std::int64_t step, const std::string& value) {
  std::string summary, event;
  put_bytes(summary, field::kValue, value);
  put_double(event, field::kWallTime, now());
  put_integer(event, field::kStep, step);
  put_bytes(event, field::kSummary, summary);
  write(event);
}

void EventWriter::write(const std::string& event) {
  std::string record;
  put(record, static_cast<std::uint64_t>(event.size()));
  put(record, masked_crc(record.data(), sizeof(std::uint64_t)));
  record += event;
  put(record, masked_crc(event.data(), event.size()));
  stream_.write(record.data(), static_cast<std::streamsize>(record.size()));
  stream_.flush();
  require(stream_.good(), "cannot write to " + file_.string() + "; is the disk full?");
}

void EventWriter::flush_to_disk() {
  filigree::flush_to_disk(file_);
}

std::optional<Event> parse_event(std::string_view bytes) {
  Event event;
  bool whole = true;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.is(field::kWallTime, kEight)) event.wall_time = fields.number<double>();
    if (fields.is(field::kStep, kVarint)) event.step = fields.integer();
    if (fields.is(field::kVersion, kBytes)) event.version = fields.bytes();
    if (!fields.is(field::kSummary, kBytes)) continue;
    Fields summary(fields.bytes());
    while (summary.next())
      if (summary.is(field::kValue, kBytes)) whole = parse_value(summary.bytes(), event) && whole;
    whole = summary.whole() && whole;
  }
  return whole && fields.whole() ? std::optional(event) : std::nullopt;
}

std::vector<Event> read_events(const std::filesystem::path& file) {
  std::vector<Event> events;
  std::ifstream stream(file, std::ios::binary);
  require(stream.good() || !std::filesystem::exists(file), "cannot read " + file.string());
  std::uintmax_t end = 0;
  const auto damaged = [&](const char* what) {
    return UserError(file.string() + ": damaged at byte " + std::to_string(end) + " (" + what + "); remove this file");
  };
  for (std::string header(kHeader, '\0'), bytes; stream.read(header.data(), kHeader);) {
    std::uint64_t length = 0;
    std::uint32_t crc = 0;
    std::memcpy(&length, header.data(), sizeof length);
    std::memcpy(&crc, header.data() + sizeof length, sizeof crc);
    if (crc != masked_crc(header.data(), sizeof length) || length > kLongestRecord)
      throw damaged("a record's length is not what its checksum says");
    bytes.resize(length + kFooter);
    if (!stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) break;
    std::memcpy(&crc, bytes.data() + length, sizeof crc);
    if (crc != masked_crc(bytes.data(), length)) throw damaged("a record is not what its checksum says");
    std::optional<Event> event = parse_event(std::string_view(bytes).substr(0, length));
    if (!event) throw damaged("a record is no event");
    end += kHeader + bytes.size();
    event->end = end;
    events.push_back(*std::move(event));
  }
  return events;
}

void truncate_events_after(const std::filesystem::path& file, std::int64_t step) {
  if (!std::filesystem::exists(file)) return;
  std::uintmax_t length = 0;
  for (const Event& event : read_events(file)) {
    if (event.step > step) break;
    length = event.end;
  }
  std::error_code error;
  if (std::filesystem::file_size(file, error) != length && !error) std::filesystem::resize_file(file, length, error);
  require(!error, "cannot truncate " + file.string() + ": " + error.message());
}

}  // namespace filigree
