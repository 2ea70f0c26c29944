// Bytes to token ids: a hash table made once and then read by many threads. The bytes stay with the caller.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace filigree {

class TokenTable {
 public:
  // Room for `count` tokens of `tokens`, which stays as it is as long as the table is used.
  TokenTable(const std::vector<std::string>& tokens, std::size_t count)
      : tokens_(tokens),
        slots_(std::size_t{1} << std::bit_width(2 * count)),
        shift_(static_cast<unsigned>(64 - std::bit_width(2 * count))) {}

  // Tokens of equal bytes must not be added, nor more than there is room for.
  void add(std::int32_t id) {
    const std::uint64_t hash = hash_of(tokens_[static_cast<std::size_t>(id)]);
    std::size_t at = hash >> shift_;
    while (slots_[at].id >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {static_cast<std::uint32_t>(hash), id};
  }

  // -1 where there is none.
  std::int32_t find(std::string_view bytes) const {
    const std::uint64_t hash = hash_of(bytes);
    for (std::size_t at = hash >> shift_; slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].check == static_cast<std::uint32_t>(hash) &&
          tokens_[static_cast<std::size_t>(slots_[at].id)] == bytes)
        return slots_[at].id;
    return -1;
  }

 private:
  struct Slot {
    std::uint32_t check = 0;  // the hash's low bits
    std::int32_t id = -1;
  };

  static std::uint64_t hash_of(std::string_view bytes) {
    std::uint64_t hash = bytes.size();
    const auto mix = [&](std::uint64_t word) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    };
    for (; bytes.size() > sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof word);
      mix(word);
    }
    std::uint64_t rest = 0;
    std::memcpy(&rest, bytes.data(), bytes.size());
    mix(rest);
    return hash * 0x9E3779B97F4A7C15u;
  }

  const std::vector<std::string>& tokens_;
  std::vector<Slot> slots_;
  unsigned shift_;
};

}  // namespace filigree
