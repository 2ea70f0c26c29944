// Byte-level vocabularies for tests, made here: the bytes, then what is asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/byte_level_alphabet.h"
#include "text/tokenizer.h"
#include "text_support.h"

namespace filigree::testing {

// A tokenizer.json whose ids are the bytes' values, and from 256 on those of what `merges` make, in their order.
inline nlohmann::json byte_level_json(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[byte_level_text(std::string(1, static_cast<char>(byte)))] = byte;
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    vocab[byte_level_text(left + right)] = 256 + pairs.size();
    pairs.push_back(byte_level_text(left) + " " + byte_level_text(right));
  }
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

inline nlohmann::json added_token(int id, const std::string& content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}};
}

inline std::unique_ptr<Tokenizer> tokenizer_of(const nlohmann::json& json) {
  return parse_tokenizer(json.dump(), "t.json");
}

// Every byte, and sequences that are cut or no UTF-8.
inline std::string any_bytes() {
  std::string text = "It's the caf\xC3\xA9, \xE2\x82 \xF0\x9F\x98\x80!  1234\n\n";
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  return text + std::string(300, 'a') + "\xFF\xC0\x80";
}

}  // namespace filigree::testing
