// Documents from text on disk, streamed: memory stays at a few MB whatever the size of a file.
//
//   .txt    a line that is only <|endoftext|>, or the end of the file, ends a document
//   .jsonl  one JSON object a line, its string under "text" is a document
//   each also as .gz, .xz, .zst
//
// Folders are read recursively, files in the order of their paths; files of other kinds are skipped and counted. A file
// that is named itself is read as .txt if its kind is not known. Documents of white space alone are dropped, and so is
// a UTF-8 byte order mark. All other bytes come through as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text/byte_source.h"

namespace filigree {

struct TextFiles {
  std::vector<std::filesystem::path> files;
  std::int64_t bytes = 0;                       // on disk
  std::int64_t skipped = 0;                     // files in folders that are neither .txt nor .jsonl
  std::vector<std::filesystem::path> repeated;  // named again, by themselves or in a folder: they are read once
};

// What `paths` (files or folders) hold. Throws UserError naming a path that is missing, or a folder without text.
TextFiles find_text(const std::vector<std::filesystem::path>& paths);

// A document, or a part of a long one. Parts of .txt are about 1 MiB and end before a space between two letters, where
// tokenizers cut words: the ids of the parts are those of the whole. Text without such spaces is cut at line ends, else
// anywhere but inside a character.
struct TextPiece {
  std::string text;
  bool ends_document = false;
};

class DocumentReader {
 public:
  explicit DocumentReader(TextFiles files);
  ~DocumentReader();

  // The next piece; false at the end. Throws UserError naming file and line where a file is binary (a NUL byte, or more
  // than 1 % of bytes that are no UTF-8), a JSON line has no text, or an archive is damaged; and at the end where there
  // was no text at all.
  bool next(TextPiece& piece);

  // What a warning has to say of bytes that are no UTF-8 in the text read so far; "" when there are none.
  std::string invalid_note() const;

  // Bytes on disk read so far, of TextFiles::bytes.
  std::int64_t position() const;

 private:
  bool next_text(TextPiece& piece);
  bool next_json(TextPiece& piece);
  void open_file();
  bool refill(std::size_t wanted);
  std::size_t text_cut() const;
  void check(std::size_t bytes);
  void consume(std::size_t bytes);
  [[noreturn]] void fail(const std::string& text) const;

  TextFiles files_;
  std::size_t index_ = 0;  // of the file that is open, or comes next
  std::unique_ptr<ByteSource> source_;
  bool json_ = false;
  std::int64_t finished_bytes_ = 0;
  std::int64_t documents_ = 0;
  bool in_document_ = false;  // a part of the current document was given out

  std::string buffer_;  // bytes [begin_, size) are still to be used
  std::size_t begin_ = 0;
  bool exhausted_ = false;     // the file has no more than buffer_ holds
  bool at_line_start_ = true;  // at begin_
  std::int64_t line_ = 1;      // at begin_, from 1
  std::int64_t offset_ = 0;    // of begin_ in the unpacked file
  std::int64_t invalid_ = 0;   // bytes of the file so far that are no UTF-8
  std::int64_t first_invalid_line_ = 0;
  std::int64_t all_invalid_ = 0;  // of all files
  std::string first_invalid_;     // file, byte and line of the first of them
};

}  // namespace filigree
