#include "text/tiktoken_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/byte_pair_tokenizer.h"
#include "text/token_table.h"
#include "text/tokenizer_json.h"

namespace filigree {
namespace {

constexpr std::string_view kSavedHeader = "filigree tiktoken ";
// Those of the four encodings have at most 128 bytes; all ways to divide a token are looked at.
constexpr std::size_t kLongestToken = 256;

struct SpecialToken {
  std::string_view content;
  std::int32_t id;
};
struct Encoding {
  std::string_view name;
  std::string_view pattern;
  std::size_t ranks;  // the highest, and one
  std::span<const SpecialToken> special;
};

constexpr std::array<SpecialToken, 1> kSpecialOf50k = {{{kEndOfTextMarker, 50256}}};
constexpr std::array<SpecialToken, 5> kSpecialOf100k = {{{kEndOfTextMarker, 100257},
                                                         {"<|fim_prefix|>", 100258},
                                                         {"<|fim_middle|>", 100259},
                                                         {"<|fim_suffix|>", 100260},
                                                         {"<|endofprompt|>", 100276}}};
constexpr std::array<SpecialToken, 2> kSpecialOf200k = {{{kEndOfTextMarker, 199999}, {"<|endofprompt|>", 200018}}};

std::array<Encoding, 4> encodings() {
  return {{{"r50k_base", kGpt2Pattern, 50256, kSpecialOf50k},
           {"p50k_base", kGpt2Pattern, 50281, kSpecialOf50k},
           {"cl100k_base", kCl100kPattern, 100256, kSpecialOf100k},
           {"o200k_base", kO200kPattern, 199998, kSpecialOf200k}}};
}

// Of the characters of base64 their value, of others -1.
constexpr std::array<std::int8_t, 256> kBase64Values = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  return values;
}();

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (const char c : text) {
    const std::int8_t value = kBase64Values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<std::uint32_t>(value)) & 0xFFFFu;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xFFu);
  }
  return bytes;
}

struct RankLine {
  std::string token;
  std::size_t rank;
};

std::optional<RankLine> parse_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::optional<std::string> token = from_base64(line.substr(0, space));
  const std::string_view digits = line.substr(space + 1);
  std::size_t rank = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (!token || error != std::errc() || stop != digits.data() + digits.size() || rank >= kLargestVocabulary)
    return std::nullopt;
  return RankLine{*std::move(token), rank};
}

struct RankFile {
  Encoding encoding;
  std::vector<std::string> tokens;  // by rank
  std::vector<std::pair<std::string, std::int32_t>> special;
};

RankFile read_ranks(std::string_view named, const std::string& source) {
  const std::string where = "tokenizer " + source + ": ";
  std::size_t line_number = 1;
  auto next_line = [&, begin = std::size_t{0}]() mutable -> std::optional<std::string_view> {
    if (begin >= named.size()) return std::nullopt;
    const std::size_t end = std::min(named.find('\n', begin), named.size());
    const std::string_view line = named.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    return line;
  };
  const std::string_view header = next_line().value_or("");
  const auto known = encodings();
  const auto encoding = std::find_if(known.begin(), known.end(), [&](const Encoding& candidate) {
    return header.starts_with(kSavedHeader) && header.substr(kSavedHeader.size()) == candidate.name;
  });
  require_user(encoding != known.end(), where + "its first line does not name a tiktoken encoding");
  RankFile file{*encoding, {}, {}};
  line_number = 0;  // of the lines behind ours
  while (const std::optional<std::string_view> text = next_line()) {
    if (text->empty()) continue;
    const std::string line = "line " + std::to_string(line_number);
    std::optional<RankLine> parsed = parse_line(*text);
    require_user(parsed.has_value(), where + line + " is not a token in base64 and its rank; is the file complete?");
    require_user(parsed->token.size() <= kLongestToken, where + line + ": a token has " +
                                                            std::to_string(parsed->token.size()) + " bytes; at most " +
                                                            std::to_string(kLongestToken) + " are read");
    if (parsed->rank >= file.tokens.size()) file.tokens.resize(parsed->rank + 1);
    std::string& token = file.tokens[parsed->rank];
    require_user(token.empty(), where + line + ": rank " + std::to_string(parsed->rank) + " is there twice");
    token = std::move(parsed->token);
  }
  if (file.tokens.size() == encoding->ranks) {
    for (const SpecialToken& special : encoding->special) {
      file.special.emplace_back(special.content, special.id);
      const auto id = static_cast<std::size_t>(special.id);
      require_user(id >= file.tokens.size() || file.tokens[id].empty(),
                   where + "rank " + std::to_string(id) + " is that of " + std::string(special.content));
    }
  } else {
    file.special.emplace_back(kEndOfTextMarker, static_cast<std::int32_t>(file.tokens.size()));
  }
  return file;
}

// Calls use(left, right, result) for each way to make a token of two others, by the result's rank.
template <typename Use>
void for_each_division(const std::vector<std::string>& tokens, const TokenTable& ids, const Use& use) {
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const std::int32_t left = ids.find(token.substr(0, cut));
      const std::int32_t right = left < 0 ? -1 : ids.find(token.substr(cut));
      if (right >= 0) use(left, right, static_cast<std::int32_t>(rank));
    }
  }
}

TokenTable table_of(const std::vector<std::string>& tokens, const std::string& where) {
  TokenTable ids(tokens, tokens.size());
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    if (tokens[rank].empty()) continue;
    const std::int32_t other = ids.find(tokens[rank]);
    require_user(other < 0,
                 where + "ranks " + std::to_string(other) + " and " + std::to_string(rank) + " have the same token");
    ids.add(static_cast<std::int32_t>(rank));
  }
  return ids;
}

// The same tokenizer for Hugging Face: each way to make a token is a merge. Among the ways of one token that library
// prefers the first of the list where tiktoken prefers the leftmost in the text; no text is known where it matters.
std::string tokenizer_json(const std::string& named) {
  const RankFile file = read_ranks(named, "");
  const TokenTable ids = table_of(file.tokens, "");
  TokenizerJsonParts parts{.tokens = file.tokens,
                           .merges = {},
                           .special = file.special,
                           .pattern = file.encoding.pattern,
                           .whole_words = true};
  for_each_division(file.tokens, ids, [&](std::int32_t left, std::int32_t right, std::int32_t) {
    parts.merges.emplace_back(file.tokens[static_cast<std::size_t>(left)],
                              file.tokens[static_cast<std::size_t>(right)]);
  });
  return write_tokenizer_json(parts);
}

}  // namespace

bool is_tiktoken(std::string_view text) {
  return text.starts_with(kSavedHeader) || parse_line(text.substr(0, text.find('\n'))).has_value();
}

std::string named_tiktoken(std::string ranks, std::string_view file_name, const std::string& source) {
  if (ranks.starts_with(kSavedHeader)) return ranks;
  std::string names;
  for (const Encoding& encoding : encodings()) {
    if (file_name.starts_with(encoding.name))
      return std::string(kSavedHeader) + std::string(encoding.name) + "\n" + std::move(ranks);
    names += (names.empty() ? "" : ", ") + std::string(encoding.name);
  }
  throw UserError(
      "tokenizer " + source +
      ": this file of tiktoken's ranks does not say how text is cut into words: let its name begin with its "
      "encoding's, one of " +
      names);
}

std::unique_ptr<Tokenizer> parse_tiktoken(std::string named, const std::string& source) {
  RankFile file = read_ranks(named, source);
  BytePairVocabulary vocabulary;
  {
    const TokenTable ids = table_of(file.tokens, "tokenizer " + source + ": ");
    vocabulary.merges = BytePairMerges(file.tokens.size());
    for_each_division(file.tokens, ids, [&](std::int32_t left, std::int32_t right, std::int32_t result) {
      vocabulary.merges.add({left, right, result, result});
    });
  }
  vocabulary.tokens = std::move(file.tokens);
  vocabulary.whole_words = true;
  for (const auto& [content, id] : file.special) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= vocabulary.tokens.size()) vocabulary.tokens.resize(at + 1);
    vocabulary.tokens[at] = content;
    vocabulary.special.push_back(id);
    if (content == kEndOfTextMarker) vocabulary.end_of_text = id;
  }
  std::vector<std::unique_ptr<WordPattern>> patterns;
  patterns.push_back(word_pattern(std::string(file.encoding.pattern), source));
  return byte_pair_tokenizer(std::move(vocabulary), std::move(patterns), std::move(named), tokenizer_json,
                             "tokenizer " + source);
}

}  // namespace filigree
