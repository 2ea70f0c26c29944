#include "text/byte_source.h"

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace filigree {
namespace {

constexpr std::size_t kInputBytes = 256u << 10;
// What an archive may ask for to be unpacked: xz -9 needs 65 MB, zstd --ultra --long=27 128 MB.
constexpr std::uint64_t kDecoderMemory = 256u << 20;
constexpr int kLargestZstdWindowLog = 27;

class PlainFile final : public ByteSource {
 public:
  explicit PlainFile(const std::filesystem::path& path) : name_(path.string()), file_(std::fopen(path.c_str(), "rb")) {
    if (file_ == nullptr) throw UserError(name_ + ": cannot open: " + std::generic_category().message(errno));
  }
  ~PlainFile() override { std::fclose(file_); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  std::size_t read(char* into, std::size_t size) override {
    const std::size_t got = std::fread(into, 1, size, file_);
    if (got < size && std::ferror(file_) != 0) throw Error(name_ + ": cannot read: disk error");
    position_ += static_cast<std::int64_t>(got);
    return got;
  }
  std::int64_t position() const override { return position_; }

 private:
  std::string name_;
  std::FILE* file_;
  std::int64_t position_ = 0;
};

// What the decoders share: an input window over the file, and their complaints.
class Archive : public ByteSource {
 public:
  Archive(const std::filesystem::path& path, const char* kind)
      : name_(path.string()), kind_(kind), file_(path), input_(kInputBytes) {}
  std::int64_t position() const override { return file_.position(); }

 protected:
  // Reads the next window when the last one is used up; false at the end of the file.
  bool refill(std::size_t unused) {
    if (unused > 0) return true;
    filled_ = file_.read(input_.data(), input_.size());
    return filled_ > 0;
  }
  [[noreturn]] void truncated() const { throw UserError(name_ + ": this " + kind_ + " archive is truncated"); }
  [[noreturn]] void damaged(const std::string& detail) const {
    throw UserError(name_ + ": this is no " + kind_ + " archive, or it is damaged (" + detail + ")");
  }
  char* window() { return input_.data(); }
  std::size_t filled() const { return filled_; }

 private:
  std::string name_, kind_;
  PlainFile file_;
  std::vector<char> input_;
  std::size_t filled_ = 0;
};

class GzipFile final : public Archive {
 public:
  explicit GzipFile(const std::filesystem::path& path) : Archive(path, "gzip") {
    require(inflateInit2(&stream_, 15 + 16) == Z_OK, "zlib cannot start");  // largest window, gzip framing only
  }
  ~GzipFile() override { inflateEnd(&stream_); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  std::size_t read(char* into, std::size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(into);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size) {
      const bool fresh = stream_.avail_in == 0;
      if (!refill(stream_.avail_in)) {
        if (!member_ended_) truncated();
        return 0;
      }
      if (fresh) {
        stream_.next_in = reinterpret_cast<Bytef*>(window());
        stream_.avail_in = static_cast<uInt>(filled());
      }
      if (member_ended_) {
        require(inflateReset(&stream_) == Z_OK, "zlib cannot continue");
        member_ended_ = false;
      }
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END)
        member_ended_ = true;
      else if (status == Z_MEM_ERROR)
        throw Error("out of memory in zlib");
      else if (status != Z_OK && status != Z_BUF_ERROR)
        damaged(stream_.msg != nullptr ? stream_.msg : "bad data");
    }
    return size - stream_.avail_out;
  }

 private:
  z_stream stream_{};
  bool member_ended_ = false;
};

class XzFile final : public Archive {
 public:
  explicit XzFile(const std::filesystem::path& path) : Archive(path, "xz") {
    require(lzma_stream_decoder(&stream_, kDecoderMemory, LZMA_CONCATENATED) == LZMA_OK, "lzma cannot start");
  }
  ~XzFile() override { lzma_end(&stream_); }
  XzFile(const XzFile&) = delete;
  XzFile& operator=(const XzFile&) = delete;

  std::size_t read(char* into, std::size_t size) override {
    stream_.next_out = reinterpret_cast<std::uint8_t*>(into);
    stream_.avail_out = size;
    while (stream_.avail_out == size && !ended_) {
      const bool fresh = stream_.avail_in == 0;
      const bool more = refill(stream_.avail_in);
      if (fresh && more) {
        stream_.next_in = reinterpret_cast<const std::uint8_t*>(window());
        stream_.avail_in = filled();
      }
      const lzma_ret status = lzma_code(&stream_, more ? LZMA_RUN : LZMA_FINISH);
      if (status == LZMA_STREAM_END) ended_ = true;
      if (status == LZMA_BUF_ERROR || (status == LZMA_OK && !more && stream_.avail_out == size)) truncated();
      if (status == LZMA_MEM_ERROR) throw Error("out of memory in lzma");
      if (status == LZMA_MEMLIMIT_ERROR) damaged("it asks for more than 256 MiB of memory");
      if (status == LZMA_FORMAT_ERROR) damaged("no xz header");
      if (status != LZMA_OK && status != LZMA_STREAM_END) damaged("bad data");
    }
    return size - stream_.avail_out;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ended_ = false;
};

class ZstdFile final : public Archive {
 public:
  explicit ZstdFile(const std::filesystem::path& path) : Archive(path, "zstd"), context_(ZSTD_createDCtx()) {
    require(context_ != nullptr, "zstd cannot start");
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kLargestZstdWindowLog);
  }
  ~ZstdFile() override { ZSTD_freeDCtx(context_); }
  ZstdFile(const ZstdFile&) = delete;
  ZstdFile& operator=(const ZstdFile&) = delete;

  std::size_t read(char* into, std::size_t size) override {
    ZSTD_outBuffer out{into, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        if (!refill(0)) {
          if (frame_left_ != 0) truncated();
          return 0;
        }
        in_ = {window(), filled(), 0};
      }
      frame_left_ = ZSTD_decompressStream(context_, &out, &in_);
      if (ZSTD_isError(frame_left_) != 0) damaged(ZSTD_getErrorName(frame_left_));
    }
    return out.pos;
  }

 private:
  ZSTD_DCtx* context_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::size_t frame_left_ = 1;  // what the library still expects of the current frame; 0 between frames
};

}  // namespace

Compression compression_of(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (extension == ".gz") return Compression::gzip;
  if (extension == ".xz") return Compression::xz;
  if (extension == ".zst") return Compression::zstd;
  return Compression::none;
}

std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    throw UserError(path.string() + ": there is no such file or folder");
  if (status.type() != std::filesystem::file_type::regular)
    throw UserError(path.string() + ": this is not a regular file (text is read twice, so a pipe cannot be used)");
  switch (compression_of(path)) {
    case Compression::none:
      return std::make_unique<PlainFile>(path);
    case Compression::gzip:
      return std::make_unique<GzipFile>(path);
    case Compression::xz:
      return std::make_unique<XzFile>(path);
    case Compression::zstd:
      return std::make_unique<ZstdFile>(path);
  }
  throw Error("unknown compression");
}

}  // namespace filigree
