// Tar archives: any bytes give files, together no longer than the archive, or a UserError. The checksums of headers are
// mended, for hardly an input would get past them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "input_file.h"
#include "text/tar_reader.h"

namespace {

constexpr std::size_t kBlock = 512, kChecksum = 148, kChecksumLength = 8;

// Any block may be a header; the bytes of a file may change.
void mend_checksums(std::string& archive) {
  for (std::size_t block = 0; block + kBlock <= archive.size(); block += kBlock) {
    if (archive.find_first_not_of('\0', block) >= block + kBlock) continue;  // the end stays one
    archive.replace(block + kChecksum, kChecksumLength, kChecksumLength, ' ');
    unsigned sum = 0;
    for (std::size_t at = block; at < block + kBlock; ++at) sum += static_cast<unsigned char>(archive[at]);
    char digits[kChecksumLength];
    std::snprintf(digits, sizeof(digits), "%06o", sum);
    archive.replace(block + kChecksum, sizeof(digits), digits, sizeof(digits));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string archive(reinterpret_cast<const char*>(data), size);
  mend_checksums(archive);
  const filigree::fuzzing::InputFile file(archive, ".tar");
  std::size_t bytes = 0;
  try {
    filigree::TarReader reader(file.path());
    for (filigree::NamedFile entry; reader.next(entry);) bytes += entry.bytes.size();
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
  if (bytes > archive.size()) std::abort();
  return 0;
}
