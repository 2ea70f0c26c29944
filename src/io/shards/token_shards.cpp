#include "io/shards/token_shards.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "io/checksum.h"

namespace filigree {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written as they lie in memory");

constexpr std::size_t kHeaderInts = 256;
constexpr std::size_t kHeaderBytes = kHeaderInts * 4;
constexpr std::int32_t kNarrowMagic = 20240520, kNarrowVersion = 1;
constexpr std::int32_t kWideMagic = 20240801, kWideVersion = 7;
constexpr std::int64_t kNarrowVocab = 65536;  // largest that uint16 holds
constexpr std::size_t kPendingBytes = 1 << 20;
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& text) {
  throw UserError(path.string() + ": " + text);
}

template <typename Id>
Id id_at(const std::byte* ids, std::int64_t index) {
  Id id;
  std::memcpy(&id, ids + static_cast<std::size_t>(index) * sizeof(Id), sizeof(Id));
  return id;
}

// Index of the first id that is not below `vocab`, or `count`. Scanned for the maximum first, which the compiler
// vectorises: about the speed of memory, so that more threads would gain little.
template <typename Id>
std::int64_t first_out_of_range(const std::byte* ids, std::int64_t count, std::int64_t vocab) {
  Id largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, id_at<Id>(ids, i));
  if (static_cast<std::int64_t>(largest) < vocab) return count;
  std::int64_t first = 0;
  while (static_cast<std::int64_t>(id_at<Id>(ids, first)) < vocab) ++first;
  return first;
}

}  // namespace

TokenShard::TokenShard(const std::filesystem::path& path) : file_(path) {
  const std::size_t size = file_.bytes().size();
  if (size < kHeaderBytes)
    fail(path, "not a file of tokens: " + std::to_string(size) + " bytes, but the header alone has 1024");
  std::array<std::int32_t, kHeaderInts> header{};
  std::memcpy(header.data(), file_.bytes().data(), kHeaderBytes);
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
  tokens_ = header[2];
}

const std::byte* TokenShard::ids() const {
  return file_.bytes().data() + kHeaderBytes;
}

void TokenShard::read(std::int64_t begin, std::span<std::int32_t> into) const {
  const auto count = static_cast<std::int64_t>(into.size());
  require(begin >= 0 && begin <= tokens_ && count <= tokens_ - begin, "tokens outside the file");
  const std::byte* const from = ids() + static_cast<std::size_t>(begin) * width_;
  if (width_ == 2) {
    for (std::int64_t i = 0; i < count; ++i) into[static_cast<std::size_t>(i)] = id_at<std::uint16_t>(from, i);
  } else if (count > 0) {
    std::memcpy(into.data(), from, into.size_bytes());
  }
}

std::uint32_t TokenShard::check_ids(std::int64_t vocab, std::uint32_t previous) const {
  require(vocab > 0 && vocab <= kMostTokens, "vocabulary out of range");
  // Range by range, so that the checksum finds in the cache what the check has read.
  constexpr std::int64_t kRange = 1 << 16;
  for (std::int64_t from = 0; from < tokens_; from += kRange) {
    const std::int64_t count = std::min(tokens_ - from, kRange);
    const std::byte* const range = ids() + static_cast<std::size_t>(from) * width_;
    const std::int64_t bad = width_ == 2 ? first_out_of_range<std::uint16_t>(range, count, vocab)
                                         : first_out_of_range<std::uint32_t>(range, count, vocab);
    if (bad < count) {
      const std::uint32_t id = width_ == 2 ? id_at<std::uint16_t>(range, bad) : id_at<std::uint32_t>(range, bad);
      fail(path(), "token " + std::to_string(from + bad) + " is " + std::to_string(id) + ", but the vocabulary has " +
                       std::to_string(vocab) + " entries: these tokens come from another tokenizer");
    }
    previous = crc32c(range, static_cast<std::size_t>(count) * width_, previous);
  }
  return previous;
}

TokenShardWriter::TokenShardWriter(const std::filesystem::path& path, std::int64_t vocab) : file_(path), vocab_(vocab) {
  require(vocab > 0 && vocab <= kMostTokens, "vocabulary out of range");
  pending_.resize(kHeaderBytes);  // zeros: an unfinished file is never taken for a whole one
}

void TokenShardWriter::append(std::span<const std::int32_t> ids) {
  require(static_cast<std::int64_t>(ids.size()) <= kMostTokens - tokens_, "too many tokens for one file");
  const std::size_t width = vocab_ <= kNarrowVocab ? 2 : 4;
  const std::size_t before = pending_.size();
  pending_.resize(before + ids.size() * width);
  std::byte* into = pending_.data() + before;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_)
      throw Error("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_));
    std::memcpy(into, &id, width);  // little endian: the low bytes come first
    into += width;
  }
  tokens_ += static_cast<std::int64_t>(ids.size());
  if (pending_.size() >= kPendingBytes) flush();
}

void TokenShardWriter::flush() {
  file_.append(pending_.data(), pending_.size());
  pending_.clear();
}

void TokenShardWriter::finish() {
  flush();
  const bool narrow = vocab_ <= kNarrowVocab;
  const std::array<std::int32_t, 3> header = {
      narrow ? kNarrowMagic : kWideMagic, narrow ? kNarrowVersion : kWideVersion, static_cast<std::int32_t>(tokens_)};
  file_.write_at(0, header.data(), sizeof header);
  file_.commit();
}

}  // namespace filigree
