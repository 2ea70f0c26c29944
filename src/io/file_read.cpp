#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/atomic_file.h"

namespace filigree {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int code) {
  throw UserError("cannot read '" + path.string() + "': " + std::generic_category().message(code));
}

// An open regular file and its length.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path) : value_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (value_ < 0) fail(path, errno);
    struct stat status {};
    const int code = fstat(value_, &status) == 0 ? 0 : errno;
    if (code == 0 && S_ISREG(status.st_mode)) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      return;
    }
    close(value_);
    if (code != 0) fail(path, code);
    throw UserError("cannot read '" + path.string() + "': it is " +
                    (S_ISDIR(status.st_mode) ? "a folder" : "a device") + ", a regular file is expected");
  }
  ~Descriptor() { close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int value() const { return value_; }
  std::uint64_t size() const { return size_; }

 private:
  int value_;
  std::uint64_t size_ = 0;
};

}  // namespace

std::string read_file(const std::filesystem::path& path, std::uint64_t limit) {
  const Descriptor file(path);
  if (file.size() > limit)
    throw UserError("cannot read '" + path.string() + "': it has " + std::to_string(file.size()) + " bytes, at most " +
                    std::to_string(limit) + " are expected");
  std::string contents(file.size(), '\0');
  std::size_t filled = 0;
  while (filled < contents.size()) {
    const ssize_t got = ::read(file.value(), contents.data() + filled, contents.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, errno);
    if (got == 0) break;  // shortened meanwhile
    filled += static_cast<std::size_t>(got);
  }
  contents.resize(filled);
  return contents;
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(path);
  if (file.size() == 0) return;  // mmap refuses a length of zero
  void* mapped = mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.value(), 0);
  if (mapped == MAP_FAILED) fail(path, errno);
  data_ = static_cast<const std::byte*>(mapped);
  size_ = file.size();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace filigree
