#include "text/tar_reader.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace filigree {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;
constexpr std::uint64_t kLargestNote = 1 << 20;  // a long name, or pax records
constexpr std::size_t kPieceBytes = 1 << 16;     // so that a damaged size asks for no memory that its bytes do not fill

// Fields of a header: offset and length.
struct Field {
  std::size_t offset, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 5}, kPrefix{345, 155};
constexpr std::size_t kType = 156;

std::string_view field(const std::string& header, Field where) {
  const std::string_view text = std::string_view(header).substr(where.offset, where.length);
  return text.substr(0, text.find('\0'));
}

// A number as tar writes it, in octal digits between spaces; false where it is none.
bool octal(std::string_view text, std::uint64_t& value) {
  value = 0;
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  for (const char c : text) {
    if (c < '0' || c > '7') return false;
    value = value * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return !text.empty();
}

// Bytes of the header, its checksum field read as spaces.
std::uint64_t checksum(const std::string& header) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < header.size(); ++at)
    sum += at - kChecksum.offset < kChecksum.length ? ' ' : static_cast<unsigned char>(header[at]);
  return sum;
}

// The value of `key` in pax records, each "LENGTH KEY=VALUE\n" where LENGTH counts all of the record; "" without one.
std::string pax_value(std::string_view records, std::string_view key) {
  std::string found;
  while (!records.empty()) {
    std::size_t length = 0, at = 0;
    for (; at < records.size() && at < 9 && std::isdigit(static_cast<unsigned char>(records[at])) != 0; ++at)
      length = length * 10 + static_cast<std::size_t>(records[at] - '0');
    if (at == 0 || length <= at + 1 || length > records.size() || records[at] != ' ') return found;
    const std::string_view record = records.substr(at + 1, length - at - 2);
    if (const std::size_t equals = record.find('=');
        record.substr(0, equals) == key && equals != std::string_view::npos)
      found = record.substr(equals + 1);
    records.remove_prefix(length);
  }
  return found;
}

}  // namespace

bool is_tar_name(const std::filesystem::path& path) {
  const std::filesystem::path inner = compression_of(path) == Compression::none ? path : path.stem();
  std::string extension = inner.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".tar";
}

TarReader::TarReader(const std::filesystem::path& path) : path_(path.string()), source_(open_byte_source(path)) {}

void TarReader::fail(const std::string& what) const {
  throw UserError(path_ + ": this is no tar archive, or it is damaged (" + what + ")");
}

std::string TarReader::take(std::uint64_t bytes) {
  std::string taken;
  while (taken.size() < bytes) {
    const std::size_t begin = taken.size();
    taken.resize(begin + static_cast<std::size_t>(std::min<std::uint64_t>(bytes - begin, kPieceBytes)));
    const std::size_t got = source_->read(taken.data() + begin, taken.size() - begin);
    taken.resize(begin + got);
    if (got == 0) break;
  }
  return taken;
}

// false at the end: blocks of zeros, or no more bytes.
bool TarReader::read_header() {
  header_ = take(kBlock);
  if (header_.empty() || header_.find_first_not_of('\0') == std::string::npos) return false;
  if (header_.size() < kBlock) fail("it ends within a header");
  std::uint64_t stored = 0;
  if (!octal(field(header_, kChecksum), stored) || stored != checksum(header_)) fail("a header's checksum is wrong");
  return true;
}

bool TarReader::next(NamedFile& file) {
  std::string long_name;
  while (read_header()) {
    std::uint64_t size = 0;
    if (!octal(field(header_, kSize), size)) fail("a file's size is no number");
    const char type = header_[kType];
    const bool note = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    const bool regular = type == '0' || type == '\0' || type == '7';
    std::string name(field(header_, kName));
    if (const std::string_view prefix = field(header_, kPrefix);
        header_.compare(kMagic.offset, kMagic.length, "ustar") == 0 && header_[kMagic.offset + 5] == '\0' &&
        !prefix.empty())
      name = std::string(prefix) + "/" + name;
    if (!long_name.empty() && !note) name = std::exchange(long_name, "");
    require_user(size <= (note ? kLargestNote : kLargestFile),
                 path_ + ": " + name + " in it is longer than can be read, " + std::to_string(size) + " bytes");
    std::string bytes = take(size);
    const std::uint64_t padding = (kBlock - size % kBlock) % kBlock;
    if (bytes.size() < size || take(padding).size() < padding) fail("it ends within " + name);
    if (type == 'L') long_name = bytes.substr(0, bytes.find('\0'));
    if (type == 'x')
      if (std::string path = pax_value(bytes, "path"); !path.empty()) long_name = std::move(path);
    if (!regular) continue;
    file = {std::move(name), std::move(bytes)};
    return true;
  }
  return false;
}

}  // namespace filigree
