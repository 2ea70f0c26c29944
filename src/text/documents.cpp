#include "text/documents.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace filigree {
namespace {

constexpr std::size_t kPieceBytes = 1u << 20;
constexpr std::size_t kReadBytes = kPieceBytes + 4;  // so that a character at the cut is there as a whole
constexpr std::size_t kWordSearch = 64u << 10;       // bytes before a cut that are searched for two words
constexpr std::size_t kLongestJsonLine = 256u << 20;
constexpr std::int64_t kFewInvalid = 3;  // a character cut at the end of a file is no reason to refuse it

enum class Kind : std::uint8_t { text, json, unknown };

// By the name's extension below the archive's; a bare archive name such as corpus.xz holds text.
Kind kind_of(std::filesystem::path path) {
  const bool archive = compression_of(path) != Compression::none;
  if (archive) path = path.stem();
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (extension == ".jsonl") return Kind::json;
  if (extension == ".txt" || (archive && extension.empty())) return Kind::text;
  return Kind::unknown;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The last space between two letters of ASCII; 0 where there is none near the end. A tokenizer that cuts text into
// words does so there, whatever stands around it, so that the ids of two pieces are those of the whole.
std::size_t word_cut(std::string_view text) {
  const std::size_t stop = text.size() - std::min(text.size(), kWordSearch);
  for (std::size_t at = text.size(); at-- > stop + 1;)
    if (text[at] == ' ' && is_letter(text[at - 1]) && at + 1 < text.size() && is_letter(text[at + 1])) return at;
  return 0;
}

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// The separator lines of `text`: first position of one, and where the line after it begins.
struct Separator {
  std::size_t begin = std::string_view::npos, end = std::string_view::npos;
};

// `at_line_start`: whether text[0] begins a line. `last`: whether the file ends where text ends.
Separator find_separator(std::string_view text, bool at_line_start, bool last) {
  for (std::size_t at = text.find(kEndOfTextMarker); at != std::string_view::npos;
       at = text.find(kEndOfTextMarker, at + 1)) {
    if (at == 0 ? !at_line_start : text[at - 1] != '\n') continue;
    std::size_t end = at + kEndOfTextMarker.size();
    if (end < text.size() && text[end] == '\r') ++end;
    if (end < text.size() && text[end] == '\n') return {at, end + 1};
    if (end == text.size() && last) return {at, end};
  }
  return {};
}

}  // namespace

TextFiles find_text(const std::vector<std::filesystem::path>& paths) {
  namespace fs = std::filesystem;
  TextFiles found;
  std::error_code error;
  for (const fs::path& path : paths) {
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) throw UserError(path.string() + ": there is no such file or folder");
    if (status.type() != fs::file_type::directory) {
      found.files.push_back(path);
      continue;
    }
    std::vector<fs::path> inside;
    std::int64_t skipped = 0;
    try {
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
        if (!entry.is_regular_file()) continue;
        if (kind_of(entry.path()) == Kind::unknown)
          ++skipped;
        else
          inside.push_back(entry.path());
      }
    } catch (const fs::filesystem_error& failure) {
      throw UserError(failure.path1().string() + ": cannot read this folder: " + failure.code().message());
    }
    if (inside.empty())
      throw UserError(path.string() + ": this folder holds no .txt or .jsonl file, plain or as .gz, .xz or .zst (" +
                      std::to_string(skipped) + " files of other kinds were skipped)");
    std::sort(inside.begin(), inside.end());
    found.files.insert(found.files.end(), inside.begin(), inside.end());
    found.skipped += skipped;
  }
  std::set<fs::path> seen;
  std::erase_if(found.files, [&](const fs::path& file) {
    std::error_code failure;
    const fs::path real = fs::weakly_canonical(file, failure);
    if (seen.insert(failure ? file : real).second) return false;
    found.repeated.push_back(file);
    return true;
  });
  for (const fs::path& file : found.files) {
    const std::uintmax_t bytes = fs::file_size(file, error);
    if (!error) found.bytes += static_cast<std::int64_t>(bytes);  // where it fails, opening will say why
  }
  return found;
}

DocumentReader::DocumentReader(TextFiles files) : files_(std::move(files)) {}
DocumentReader::~DocumentReader() = default;

std::int64_t DocumentReader::position() const {
  return finished_bytes_ + (source_ ? source_->position() : 0);
}

std::string DocumentReader::invalid_note() const {
  if (all_invalid_ == 0) return "";
  const std::string others = all_invalid_ > 1 ? ", and " + std::to_string(all_invalid_ - 1) + " more after it" : "";
  return first_invalid_ + " is not UTF-8" + others + "; such bytes are kept as they are";
}

void DocumentReader::fail(const std::string& text) const {
  throw UserError(files_.files[index_].string() + text);
}

void DocumentReader::open_file() {
  source_ = open_byte_source(files_.files[index_]);
  json_ = kind_of(files_.files[index_]) == Kind::json;
  buffer_.clear();
  begin_ = 0;
  exhausted_ = false;
  line_ = 1;
  offset_ = invalid_ = 0;
  refill(4);
  const std::string_view start = buffer_;
  if (start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF"))
    fail(": this is UTF-16; filigree reads UTF-8 (iconv -f UTF-16 -t UTF-8 converts it)");
  if (start.starts_with("\xEF\xBB\xBF")) consume(3);
  at_line_start_ = true;
}

bool DocumentReader::next(TextPiece& piece) {
  while (index_ < files_.files.size()) {
    if (!source_) open_file();
    if (json_ ? next_json(piece) : next_text(piece)) {
      in_document_ = !piece.ends_document;
      if (piece.ends_document) ++documents_;
      return true;
    }
    finished_bytes_ += source_->position();
    source_.reset();
    ++index_;
  }
  if (documents_ == 0) {
    const std::string where = files_.files.empty() ? "no files" : files_.files.front().string();
    const std::size_t others = files_.files.size() - std::min<std::size_t>(files_.files.size(), 1);
    throw UserError(where + (others > 0 ? " and " + std::to_string(others) + " other files" : "") +
                    ": there is no text here, only white space or nothing at all");
  }
  return false;
}

// Makes at least `wanted` bytes available unless the file ends before; whether anything was added.
bool DocumentReader::refill(std::size_t wanted) {
  if (begin_ > 0) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  const std::size_t before = buffer_.size();
  while (!exhausted_ && buffer_.size() < wanted) {
    const std::size_t size = buffer_.size();
    const std::size_t room = std::max(wanted - size, kPieceBytes / 4);
    buffer_.resize(size + room);
    const std::size_t got = source_->read(buffer_.data() + size, room);
    buffer_.resize(size + got);
    exhausted_ = got == 0;
  }
  return buffer_.size() > before;
}

// Throws if the next `bytes` bytes show that the file is no text.
void DocumentReader::check(std::size_t bytes) {
  const std::string_view text = std::string_view(buffer_).substr(begin_, bytes);
  const auto line_of = [&](std::size_t at) {
    return line_ + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  };
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    fail(": this is not text: a NUL byte at offset " + std::to_string(offset_ + static_cast<std::int64_t>(nul)) +
         " (line " + std::to_string(line_of(nul)) + ")");
  for (std::size_t at = utf8_first_invalid(text); at < text.size(); at = utf8_first_invalid(text, at + 1)) {
    if (invalid_++ == 0) first_invalid_line_ = line_of(at);
    if (all_invalid_++ == 0)
      first_invalid_ = files_.files[index_].string() + ": byte " +
                       std::to_string(offset_ + static_cast<std::int64_t>(at)) + " (line " +
                       std::to_string(line_of(at)) + ")";
  }
  const std::int64_t seen = offset_ + static_cast<std::int64_t>(text.size());
  if (invalid_ > kFewInvalid && invalid_ * 100 > seen)
    fail(": this is not UTF-8 text: " + std::to_string(invalid_) + " of the first " + std::to_string(seen) +
         " bytes are not, the first of them in line " + std::to_string(first_invalid_line_) +
         " (iconv converts other encodings)");
}

void DocumentReader::consume(std::size_t bytes) {
  if (bytes == 0) return;
  const auto from = buffer_.begin() + static_cast<std::ptrdiff_t>(begin_);
  line_ += std::count(from, from + static_cast<std::ptrdiff_t>(bytes), '\n');
  begin_ += bytes;
  offset_ += static_cast<std::int64_t>(bytes);
  at_line_start_ = buffer_[begin_ - 1] == '\n';
}

// Where a piece without a separator may end: everything at the end of the file, else within kPieceBytes before a space
// between two letters, else behind the last line end, else before a space, else between two characters.
std::size_t DocumentReader::text_cut() const {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (exhausted_ && rest.size() <= kPieceBytes) return rest.size();
  if (const std::size_t cut = word_cut(rest.substr(0, kPieceBytes + 1)); cut > 0) return cut;
  if (const std::size_t line_end = rest.rfind('\n', kPieceBytes - 1); line_end != std::string_view::npos)
    return line_end + 1;
  if (const std::size_t space = rest.rfind(' ', kPieceBytes - 1); space != std::string_view::npos && space > 0)
    return space;
  return utf8_boundary_before(rest, kPieceBytes);
}

bool DocumentReader::next_text(TextPiece& piece) {
  for (;;) {
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    const bool all = exhausted_ && rest.size() <= kPieceBytes;  // that the file still has
    const Separator separator = find_separator(rest.substr(0, kPieceBytes), at_line_start_, all);
    const bool separated = separator.begin != std::string_view::npos;
    if (!separated && !exhausted_ && rest.size() < kReadBytes) {
      refill(kReadBytes);
      continue;
    }
    if (rest.empty() && !in_document_) return false;
    const std::size_t used = separated ? separator.end : text_cut();
    piece.ends_document = separated || all;
    piece.text.assign(rest.substr(0, separated ? separator.begin : used));
    check(used);
    consume(used);
    if (piece.ends_document && !in_document_ && blank(piece.text)) continue;
    return true;
  }
}

bool DocumentReader::next_json(TextPiece& piece) {
  for (;;) {
    std::size_t line_end = buffer_.find('\n', begin_);
    for (std::size_t wanted = kPieceBytes; line_end == std::string::npos && !exhausted_; wanted *= 2) {
      if (buffer_.size() - begin_ > kLongestJsonLine)
        fail(" line " + std::to_string(line_) + ": this line is longer than 256 MiB");
      const std::size_t searched = buffer_.size() - begin_;
      refill(wanted);
      line_end = buffer_.find('\n', searched);
    }
    if (line_end == std::string::npos) line_end = buffer_.size();
    const std::string_view line = std::string_view(buffer_).substr(begin_, line_end - begin_);
    const std::size_t used = line.size() + (line_end < buffer_.size() ? 1 : 0);
    if (used == 0) return false;
    if (blank(line)) {
      consume(used);
      continue;
    }
    const std::string where = " line " + std::to_string(line_);
    nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_discarded()) fail(where + ": this line is not valid JSON in UTF-8; .jsonl needs one object a line");
    if (!object.is_object() || !object.contains("text") || !object["text"].is_string())
      fail(where + ": a JSON object with a string under \"text\" is needed, this is " +
           (object.is_object() ? "an object without it" : object.type_name()));
    consume(used);
    piece.text = std::move(object["text"].get_ref<std::string&>());
    piece.ends_document = true;
    if (!blank(piece.text)) return true;
  }
}

}  // namespace filigree
