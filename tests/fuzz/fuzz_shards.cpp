// TokenShard: any bytes give ids that can be read and checked, or a UserError.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/shards/token_shards.h"

namespace {

constexpr std::int64_t kVocab = 50257;

// A file in memory, under a path.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : descriptor_(memfd_create("shard", MFD_CLOEXEC)) {
    if (write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

bool in_range(const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids)
    if (id < 0 || id >= kVocab) return false;
  return true;
}

void open(const std::string& bytes) {
  const MemoryFile file(bytes);
  bool checked = false;
  std::vector<std::int32_t> ids;
  try {
    const filigree::TokenShard shard(file.path());
    ids.resize(static_cast<std::size_t>(shard.tokens()));
    shard.read(0, ids);
    if (!ids.empty()) shard.read(shard.tokens() - 1, std::span(ids).last(1));
    shard.check_ids(kVocab);
    checked = true;
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
  if (checked && !in_range(ids)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  open(input);
  // The same bytes behind a header that fits them, so that the ids are reached; and behind one that they begin.
  for (const bool narrow : {true, false}) {
    const std::array<std::int32_t, 3> start = {narrow ? 20240520 : 20240801, narrow ? 1 : 7,
                                               static_cast<std::int32_t>(size / (narrow ? 2 : 4))};
    std::string header(1024, '\0');
    std::memcpy(header.data(), start.data(), sizeof start);
    open(header + input.substr(0, size / (narrow ? 2 : 4) * (narrow ? 2 : 4)));
    if (size >= 8) {
      std::memcpy(header.data() + 4, input.data(), 8);
      open(header + input);
    }
  }
  return 0;
}
