#include "io/shards/token_shards.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/parallel.h"

namespace filigree {
namespace {

constexpr std::size_t kHeaderInts = 256;
constexpr std::size_t kHeaderBytes = kHeaderInts * 4;
constexpr std::int32_t kNarrowMagic = 20240520, kNarrowVersion = 1;
constexpr std::int32_t kWideMagic = 20240801, kWideVersion = 7;
constexpr std::int64_t kNarrowVocab = 65536;  // largest that uint16 holds
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& text) {
  throw UserError(path.string() + ": " + text);
}

// Closes a file descriptor.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

template <typename Id>
Id id_at(const std::byte* ids, std::int64_t index) {
  Id id;
  std::memcpy(&id, ids + static_cast<std::size_t>(index) * sizeof(Id), sizeof(Id));
  return id;
}

// Index of the first id that is not below `vocab`, or `count`. Ranges are scanned for their maximum first, which the
// compiler vectorises: about the speed of memory.
template <typename Id>
std::int64_t first_out_of_range(const std::byte* ids, std::int64_t count, std::int64_t vocab) {
  constexpr std::int64_t kRange = 1 << 16;
  std::atomic<std::int64_t> first{count};
  parallel_for((count + kRange - 1) / kRange, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t range = begin; range < end; ++range) {
      const std::int64_t from = range * kRange, to = std::min(count, from + kRange);
      Id largest = 0;
      for (std::int64_t i = from; i < to; ++i) largest = std::max(largest, id_at<Id>(ids, i));
      if (static_cast<std::int64_t>(largest) < vocab) continue;
      std::int64_t bad = from;
      while (static_cast<std::int64_t>(id_at<Id>(ids, bad)) < vocab) ++bad;
      std::int64_t known = first.load();
      while (bad < known && !first.compare_exchange_weak(known, bad)) {
      }
      return;
    }
  });
  return first;
}

}  // namespace

TokenShard::TokenShard(const std::filesystem::path& path) : path_(path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) fail(path, "cannot open: " + std::generic_category().message(errno));
  struct stat info {};
  if (fstat(file.value, &info) != 0) fail(path, "cannot stat: " + std::generic_category().message(errno));
  if (!S_ISREG(info.st_mode)) fail(path, "not a regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size < kHeaderBytes)
    fail(path, "not a file of tokens: " + std::to_string(size) + " bytes, but the header alone has 1024");
  std::array<std::int32_t, kHeaderInts> header{};
  if (pread(file.value, header.data(), kHeaderBytes, 0) != static_cast<ssize_t>(kHeaderBytes))
    fail(path, "cannot read the header");
  if (header[0] == kNarrowMagic)
    width_ = 2;
  else if (header[0] == kWideMagic)
    width_ = 4;
  else
    fail(path, "not a file of tokens: it begins with " + std::to_string(header[0]) + ", not with 20240520 or 20240801");
  const std::int32_t version = width_ == 2 ? kNarrowVersion : kWideVersion;
  if (header[1] != version)
    fail(path, "version " + std::to_string(header[1]) + " of this token format is not known; " +
                   std::to_string(version) + " is");
  if (header[2] < 0) fail(path, "the header promises " + std::to_string(header[2]) + " tokens");
  const std::size_t expected = kHeaderBytes + static_cast<std::size_t>(header[2]) * width_;
  if (expected != size)
    fail(path, "the header promises " + std::to_string(header[2]) + " tokens, so " + std::to_string(expected) +
                   " bytes, but the file has " + std::to_string(size) + ": it is truncated or damaged");
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.value, 0);
  if (mapped == MAP_FAILED)
    throw Error(path.string() + ": cannot map the file: " + std::generic_category().message(errno));
  mapped_ = static_cast<const std::byte*>(mapped);
  mapped_bytes_ = size;
  tokens_ = header[2];
}

TokenShard::TokenShard(TokenShard&& other) noexcept
    : path_(std::move(other.path_)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      tokens_(other.tokens_),
      width_(other.width_) {}

TokenShard::~TokenShard() {
  if (mapped_ != nullptr) munmap(const_cast<std::byte*>(mapped_), mapped_bytes_);
}

void TokenShard::read(std::int64_t begin, std::span<std::int32_t> ids) const {
  const auto count = static_cast<std::int64_t>(ids.size());
  require(begin >= 0 && begin <= tokens_ && count <= tokens_ - begin, "tokens outside the file");
  const std::byte* const from = mapped_ + kHeaderBytes + static_cast<std::size_t>(begin) * width_;
  if (width_ == 2) {
    for (std::int64_t i = 0; i < count; ++i) ids[static_cast<std::size_t>(i)] = id_at<std::uint16_t>(from, i);
  } else if (count > 0) {
    std::memcpy(ids.data(), from, ids.size_bytes());
  }
}

void TokenShard::check_ids(std::int64_t vocab) const {
  require(vocab > 0 && vocab <= kMostTokens, "vocabulary out of range");
  const std::byte* const ids = mapped_ + kHeaderBytes;
  const std::int64_t bad = width_ == 2 ? first_out_of_range<std::uint16_t>(ids, tokens_, vocab)
                                       : first_out_of_range<std::uint32_t>(ids, tokens_, vocab);
  if (bad == tokens_) return;
  const std::uint32_t id = width_ == 2 ? id_at<std::uint16_t>(ids, bad) : id_at<std::uint32_t>(ids, bad);
  fail(path_, "token " + std::to_string(bad) + " is " + std::to_string(id) + ", but the vocabulary has " +
                  std::to_string(vocab) + " entries: these tokens come from another tokenizer");
}

TokenShardWriter::TokenShardWriter(std::filesystem::path path, std::int64_t vocab)
    : path_(std::move(path)), temporary_(path_.string() + ".partial-" + std::to_string(getpid())), vocab_(vocab) {
  require(vocab > 0 && vocab <= kMostTokens, "vocabulary out of range");
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr) throw Error("cannot write " + path_.string() + ": " + std::generic_category().message(errno));
  const std::array<std::int32_t, kHeaderInts> header{};
  try {
    write(header.data(), kHeaderBytes);
  } catch (...) {  // no destructor runs for a constructor that throws
    std::fclose(file_);
    unlink(temporary_.c_str());
    throw;
  }
}

TokenShardWriter::~TokenShardWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  unlink(temporary_.c_str());
}

void TokenShardWriter::write(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_) != bytes)
    throw Error("cannot write " + path_.string() + ": " + std::generic_category().message(errno));
}

void TokenShardWriter::append(std::span<const std::int32_t> ids) {
  require(file_ != nullptr, "append after finish");
  require(static_cast<std::int64_t>(ids.size()) <= kMostTokens - tokens_, "too many tokens for one file");
  for (const std::int32_t id : ids)
    if (id < 0 || id >= vocab_)
      throw Error("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_));
  if (vocab_ <= kNarrowVocab) {
    narrow_.assign(ids.begin(), ids.end());
    write(narrow_.data(), narrow_.size() * sizeof(std::uint16_t));
  } else {
    write(ids.data(), ids.size_bytes());
  }
  tokens_ += static_cast<std::int64_t>(ids.size());
}

void TokenShardWriter::finish() {
  require(file_ != nullptr, "finish called twice");
  const bool narrow = vocab_ <= kNarrowVocab;
  const std::array<std::int32_t, 3> header = {narrow ? kNarrowMagic : kWideMagic,
                                              narrow ? kNarrowVersion : kWideVersion, static_cast<std::int32_t>(tokens_)};
  // The header goes in last: even a temporary file that a crash left behind is never taken for a whole one.
  const bool written = std::fseek(file_, 0, SEEK_SET) == 0 &&
                       std::fwrite(header.data(), 1, sizeof header, file_) == sizeof header &&
                       std::fflush(file_) == 0 && fsync(fileno(file_)) == 0;
  const int reason = errno;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!written || !closed || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int code = written ? errno : reason;
    unlink(temporary_.c_str());
    throw Error("cannot write " + path_.string() + ": " + std::generic_category().message(code));
  }
}

}  // namespace filigree
