// Documents from text, JSON lines and archives, and tokenizers from files: any bytes give text, a tokenizer, or a
// UserError. The first byte of an input says what the others are.
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "input_file.h"
#include "text/documents.h"
#include "text/tokenizer.h"

namespace {

void read_documents(const std::string& bytes, const std::string& extension) {
  const filigree::fuzzing::InputFile file(bytes, extension);
  const auto tokenizer = filigree::bytes_tokenizer();
  bool ended = true;
  std::size_t text_bytes = 0;
  try {
    filigree::DocumentReader reader(filigree::find_text({file.path()}));
    for (filigree::TextPiece piece; reader.next(piece);) {
      if (tokenizer->decode(tokenizer->encode(piece.text)) != piece.text) std::abort();
      text_bytes += piece.text.size();
      ended = piece.ends_document;
    }
    if (!ended) std::abort();
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
  if (extension == ".txt" && text_bytes > bytes.size()) std::abort();
}

void read_tokenizer(const std::string& bytes) {
  try {
    const auto tokenizer = filigree::parse_tokenizer(bytes, "input");
    for (const std::int32_t id : tokenizer->encode("  some text,\n\t caf\xC3\xA9 \xFF"))
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokenizer->vocab_size()));
    std::iota(all.begin(), all.end(), 0);
    tokenizer->decode(all);
  } catch (const filigree::UserError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      read_documents(input, ".txt");
      break;
    case 1:
      read_documents(input, ".jsonl");
      break;
    case 2:
      read_documents(input, ".txt.gz");
      break;
    case 3:
      read_documents(input, ".txt.xz");
      break;
    case 4:
      read_documents(input, ".jsonl.zst");
      break;
    default:
      read_tokenizer(input);
      break;
  }
  return 0;
}
