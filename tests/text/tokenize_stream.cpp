// For tests/text/compare_tokenizers.py: encodes texts from the standard input, each a little-endian uint32 number of
// bytes and the bytes, and writes their ids to the standard output, each a uint32 number of ids and the ids as int32.
// With a folder as second argument it writes the tokenizer's Hugging Face files there in place of that. Fails where a
// text does not decode to itself; says on the standard error how fast encoding was.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace {

bool read_exactly(void* data, std::size_t bytes) {
  return std::fread(data, 1, bytes, stdin) == bytes;
}

void encode_stream(const filigree::Tokenizer& tokenizer) {
  std::clock_t ticks = 0;  // of the processor: other programs do not count
  std::size_t all_bytes = 0;
  std::string text;
  for (std::uint32_t size = 0; read_exactly(&size, sizeof size); all_bytes += size) {
    text.resize(size);
    if (!read_exactly(text.data(), size)) throw std::runtime_error("the last text is incomplete");
    const std::clock_t begin = std::clock();
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    ticks += std::clock() - begin;
    if (tokenizer.decode(ids) != text) throw std::runtime_error("a text does not decode to itself: " + text);
    const auto count = static_cast<std::uint32_t>(ids.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(ids.data(), sizeof ids[0], ids.size(), stdout);
  }
  std::fprintf(stderr, "%s, end-of-text %d: %zu bytes at %.1f MB/s\n", tokenizer.name().c_str(),
               tokenizer.end_of_text(), all_bytes,
               static_cast<double>(all_bytes) / 1e6 * CLOCKS_PER_SEC / static_cast<double>(ticks));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2 && count != 3) {
    std::fprintf(stderr, "usage: tokenize_stream TOKENIZER [FOLDER] <TEXTS >IDS\n");
    return 2;
  }
  try {
    const auto tokenizer = filigree::load_tokenizer(arguments[1]);
    if (count == 3)
      tokenizer->write_huggingface_files(arguments[2]);
    else
      encode_stream(*tokenizer);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenize_stream: %s\n", error.what());
    return 1;
  }
}
