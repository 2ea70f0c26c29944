// Tiktoken's rank files: a token in base64 and its rank a line. A rank is an id; two tokens side by side merge where
// what they make has a rank, the lowest first, and a word that has one itself is that token.
//
// Such a file does not say how text is cut into words, nor its special tokens: both go with the encoding's name, one of
// r50k_base, p50k_base, cl100k_base and o200k_base. It is taken from the file's name (cl100k_base.tiktoken), and saved
// with the ranks in a first line of ours. Ranks of another number than the encoding's own are somebody's who trained
// with its pattern: their one special token is <|endoftext|>, the id after the last rank.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace filigree {

// Whether `text` begins as a rank file does, as tiktoken has it or as it is saved here.
bool is_tiktoken(std::string_view text);

// `ranks` with the encoding's name in front, which `file_name` begins with. Throws UserError where it does not.
std::string named_tiktoken(std::string ranks, std::string_view file_name, const std::string& source);

// A file with the encoding's name in front. Throws UserError where it is damaged.
std::unique_ptr<Tokenizer> parse_tiktoken(std::string named, const std::string& source);

}  // namespace filigree
