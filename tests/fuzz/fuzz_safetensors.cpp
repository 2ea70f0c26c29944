// parse_safetensors: any bytes give an index that fits the file, or a UserError.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"
#include "io/safetensors.h"

namespace {

// What every accepted file promises to those who read its tensors.
void check(const filigree::SafetensorsIndex& index, std::uint64_t file_bytes) {
  std::uint64_t end = 0;
  for (const filigree::StoredTensor& tensor : index.tensors) {
    std::uint64_t bytes = size_of(tensor.type);
    for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
    if (tensor.begin != end || tensor.bytes() != bytes) std::abort();
    end = tensor.end;
  }
  if (index.data_offset + end != file_bytes) std::abort();
}

void parse(const std::string& file) {
  try {
    check(filigree::parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "input"), file.size());
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  parse(input);
  // The same bytes as a header, up to the first zero byte, and data: the length is right, so that the parser is
  // reached.
  const std::size_t header = std::min(input.find('\0'), size);
  const std::uint64_t length = header;
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  parse(file + input);
  if (header < size) parse(file + input.substr(0, header) + input.substr(header + 1));
  return 0;
}
