#include "io/event_file.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "support.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream bytes;
  bytes << stream.rdbuf();
  return bytes.str();
}

TEST(Histogram, CountsEachFiniteValueOnce) {
  const EventHistogram histogram = histogram_of({-1.0f, 0.0f, 0.25f, 3.0f, NAN, INFINITY});
  EXPECT_EQ(histogram.count, 4);
  EXPECT_EQ(histogram.minimum, -1.0);
  EXPECT_EQ(histogram.maximum, 3.0);
  EXPECT_EQ(histogram.sum, 2.25);
  EXPECT_EQ(histogram.sum_of_squares, 10.0625);
  ASSERT_EQ(histogram.limits.size(), histogram.counts.size());
  EXPECT_EQ(histogram.limits.back(), 3.0);
  double total = 0.0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    total += histogram.counts[i];
    EXPECT_TRUE(i == 0 || histogram.limits[i] > histogram.limits[i - 1]);
  }
  EXPECT_EQ(total, 4.0);
  EXPECT_EQ(histogram.counts.front(), 1.0);
  EXPECT_EQ(histogram.counts.back(), 1.0);
  EXPECT_EQ(histogram_of({2.0f, 2.0f}).counts, (std::vector<double>{2.0}));
  EXPECT_EQ(histogram_of({NAN}).count, 0);
}

TEST(EventFile, ReadsBackWhatWasWritten) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "tensorboard" / "events.out.tfevents.test";
  {
    EventWriter writer(file);
    writer.scalar(1, "train/loss", 2.5);
    writer.text(2, "samples/1", "    a\n    b \xC3\xA9");
    writer.histogram(300, "weights/head", histogram_of({1.0f, 2.0f}));
  }
  const std::vector<Event> events = read_events(file);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].tag, "train/loss");
  EXPECT_EQ(events[1].scalar, 2.5);
  EXPECT_GT(events[1].wall_time, 1e9);
  EXPECT_EQ(events[2].text, "    a\n    b \xC3\xA9");
  EXPECT_EQ(events[3].step, 300);
  EXPECT_EQ(events[3].histogram.count, 2);
  EXPECT_EQ(events[3].histogram.limits, histogram_of({1.0f, 2.0f}).limits);
  EXPECT_EQ(events[3].end, fs::file_size(file));
}

// The bytes of one record, as TensorBoard 2.21 writes and reads it: scripts/tensorboard/check.py.
TEST(EventFile, HasTheFormatsBytes) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "events";
  { EventWriter writer(file); }
  const std::string bytes = bytes_of(file);
  ASSERT_EQ(bytes.size(), 12u + 24u + 4u);
  // Length 24 and its masked checksum.
  EXPECT_EQ(bytes.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xA3\x7F\x4B\x22", 12));
  EXPECT_EQ(bytes[12], '\x09') << "field 1, eight bytes";
  EXPECT_EQ(bytes.substr(21, 15),
            "\x1A\x0D"
            "brain.Event:2");
}

TEST(EventFile, IsCutBehindAStepAndGoesOn) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "events";
  truncate_events_after(file, 3);
  EXPECT_FALSE(fs::exists(file));
  {
    EventWriter writer(file);
    for (std::int64_t step = 1; step <= 5; ++step) writer.scalar(step, "loss", static_cast<double>(step));
  }
  std::ofstream(file, std::ios::binary | std::ios::app) << "torn";
  truncate_events_after(file, 3);
  EXPECT_EQ(read_events(file).back().step, 3);
  std::ofstream(file, std::ios::binary | std::ios::app) << std::string("\x18\0\0\0\0\0\0\0\xA3", 9);
  {
    EventWriter writer(file);
    writer.scalar(4, "loss", 40.0);
  }
  const std::vector<Event> events = read_events(file);
  ASSERT_EQ(events.size(), 5u) << "the format is named once";
  EXPECT_EQ(events.back().scalar, 40.0);
}

TEST(EventFile, DamageIsNamed) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "events";
  {
    EventWriter writer(file);
    writer.scalar(1, "loss", 1.0);
  }
  const std::string whole = bytes_of(file);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(file, std::ios::binary) << damaged;
    try {
      read_events(file);
      FAIL() << "byte " << at;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("damaged at byte"));
    }
  }
}

}  // namespace
}  // namespace filigree
