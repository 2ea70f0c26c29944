// Tiktoken's rank files: any bytes give a tokenizer or a UserError, what one encodes it decodes, and what is exported
// reads as a tokenizer.json. The first byte of an input says whether it is a whole file or goes on behind good ranks of
// the bytes, and which encoding it is of.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "text/tiktoken_tokenizer.h"
#include "text/tokenizer_json.h"
#include "tokenizer_round_trip.h"

namespace {

std::string ranks_of_bytes() {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    text += kDigits[byte >> 2];
    text += kDigits[(byte & 3) << 4];
    text += "== " + std::to_string(byte) + "\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::array<const char*, 4> kNames = {"r50k_base", "p50k_base", "cl100k_base", "o200k_base"};
  static const std::string bytes = ranks_of_bytes();
  try {
    if (data[0] % 5 == 4) {
      filigree::fuzzing::check_round_trip(*filigree::parse_tiktoken(input, "input"), false);
      return 0;
    }
    const auto tokenizer =
        filigree::parse_tiktoken(filigree::named_tiktoken(bytes + input, kNames[data[0] % 5], "input"), "input");
    filigree::fuzzing::check_round_trip(*tokenizer, false);
    const std::string json = tokenizer->huggingface_files().at("tokenizer.json");
    const auto exported = filigree::parse_tokenizer_json(json, "exported");
    if (exported->vocab_size() != tokenizer->vocab_size()) std::abort();
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
  return 0;
}
