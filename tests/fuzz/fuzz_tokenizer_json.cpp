// tokenizer.json, and GPT-2's vocab.json and merges.txt: any bytes give a tokenizer or a UserError, and what one
// encodes it decodes. The first byte of an input says what the others are: a whole file; a change to a good one (JSON
// Merge Patch), so that deep parts are reached without 256 entries for the bytes; or merges for a good vocabulary.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "text/byte_level_alphabet.h"
#include "text/tokenizer_json.h"
#include "tokenizer_round_trip.h"

namespace {

using nlohmann::json;

json good_vocabulary() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte)
    vocab[filigree::byte_level_text(std::string(1, static_cast<char>(byte)))] = byte;
  for (const char* token : {"th", "the", "he", "aa", "aaa", "12"}) vocab[token] = vocab.size();
  return vocab;
}

json good_file() {
  return {
      {"added_tokens", {{{"id", 300}, {"content", "<|endoftext|>"}, {"special", true}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"model", {{"type", "BPE"}, {"vocab", good_vocabulary()}, {"merges", {"t h", "th e", "h e", "a a", "aa a"}}}}};
}

void read(const std::string& text) {
  const auto tokenizer = filigree::parse_tokenizer_json(text, "input");
  // A space in front is the one thing that may be added.
  filigree::fuzzing::check_round_trip(*tokenizer, text.find("add_prefix_space") != std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 3 == 0) {
      read(input);
    } else if (data[0] % 3 == 1) {
      const json change = json::parse(input, nullptr, false);
      if (change.is_discarded()) return 0;
      json file = good_file();
      file.merge_patch(change);
      read(file.dump());
    } else {
      read(filigree::gpt2_tokenizer_json(good_vocabulary().dump(), input, "input"));
    }
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
  return 0;
}
