#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "text/byte_level_alphabet.h"
#include "text/byte_pair_tokenizer.h"
#include "text/tokenizer_json.h"

namespace filigree {
namespace {

using Json = nlohmann::json;

// Names of end-of-text, the most telling first.
constexpr std::array<std::string_view, 4> kEndOfTextNames = {kEndOfTextMarker, "<|end_of_text|>", "</s>", "<eos>"};

// As it stands in messages: short, whatever a file has.
std::string shown(const Json& value) {
  constexpr std::size_t kShown = 60;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

Json parse_json(const std::string& text, const std::string& source) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw UserError(source + ": not valid JSON at byte " + std::to_string(error.byte) + " of " +
                    std::to_string(text.size()) + "; is the file complete?");
  }
}

class TokenizerJson {
 public:
  TokenizerJson(std::string text, const std::string& source)
      : source_("tokenizer " + source), text_(std::move(text)), json_(parse_json(text_, source_)) {}

  std::unique_ptr<Tokenizer> read() {
    if (json_.is_object() && !json_.contains("model") && !json_.contains("pre_tokenizer"))
      fail("this is no tokenizer.json; if it is a vocab.json, name the folder that holds it and merges.txt");
    check_keys(json_, "",
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
    const Json& model = object(json_, "model", "");
    const Json& type = member(model, "type");
    if (type != "BPE" && !type.is_null()) unsupported("model", type, "BPE");
    check_normalizer(member(json_, "normalizer"));
    read_pre_tokenizer(member(json_, "pre_tokenizer"), false);
    check_decoder(member(json_, "decoder"));
    read_model(model);
    json_ = nullptr;  // the largest part of it is a copy by now
    return byte_pair_tokenizer(
        std::move(vocabulary_), std::move(patterns_), std::move(text_), [](const std::string& json) { return json; },
        source_);
  }

 private:
  [[noreturn]] void fail(const std::string& text) const { throw UserError(source_ + ": " + text); }
  [[noreturn]] void unsupported(const std::string& what, const Json& found, const std::string& known) const {
    fail("its " + what + " " + shown(found) + " is not supported, only " + known +
         "; where a model has a SentencePiece file (tokenizer.model), name that");
  }

  // null where it is not there.
  static const Json& member(const Json& parent, const std::string& key) {
    static const Json nothing;
    const auto found = parent.find(key);
    return found == parent.end() ? nothing : *found;
  }
  const Json& object(const Json& parent, const std::string& key, const std::string& where) const {
    const Json& found = member(parent, key);
    if (!found.is_object()) fail(where + key + " must be an object, this is " + found.type_name());
    return found;
  }
  bool flag(const Json& parent, const std::string& key, const std::string& where, bool absent) const {
    const Json& found = member(parent, key);
    if (found.is_null()) return absent;
    if (!found.is_boolean()) fail(where + key + " must be true or false, this is " + shown(found));
    return found.get<bool>();
  }
  std::int32_t id_of(const Json& value, const std::string& what) const {
    if (!value.is_number_integer() || value < 0 || value >= kLargestVocabulary)
      fail("the id of " + what + " is " + shown(value) + "; it must be an integer from 0 to " +
           std::to_string(kLargestVocabulary - 1));
    return value.get<std::int32_t>();
  }
  void check_keys(const Json& parent, const std::string& where, std::initializer_list<std::string_view> known) const {
    if (!parent.is_object()) fail((where.empty() ? "this" : where) + " must be an object");
    for (const auto& [key, value] : parent.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail(where + shown(key) + " is not known, and might change what text becomes");
  }

  void check_normalizer(const Json& normalizer) const {
    if (normalizer.is_null()) return;
    const bool empty = member(normalizer, "type") == "Sequence" && member(normalizer, "normalizers") == Json::array();
    if (!empty) unsupported("normalizer", member(normalizer, "type"), "none");
  }

  void check_decoder(const Json& decoder) const {
    if (!decoder.is_null() && member(decoder, "type") != "ByteLevel")
      unsupported("decoder", member(decoder, "type"), "ByteLevel");
  }

  void read_pre_tokenizer(const Json& step, bool in_sequence) {
    const Json& type = member(step, "type");
    if (type == "Sequence" && !in_sequence) {
      const Json& steps = member(step, "pretokenizers");
      if (!steps.is_array() || steps.empty() || member(steps.back(), "type") != "ByteLevel")
        fail("its pre_tokenizer does not end in ByteLevel; only byte-level vocabularies are supported");
      for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
        if (member(steps[i], "type") == "ByteLevel") fail("its pre_tokenizer has ByteLevel before its end");
        read_pre_tokenizer(steps[i], true);
      }
      read_byte_level(steps.back(), steps.size() > 1);
    } else if (type == "ByteLevel" && !in_sequence) {
      read_byte_level(step, false);
    } else if (type == "Split" && in_sequence) {
      read_split(step);
    } else if (type == "Digits" && in_sequence) {
      check_keys(step, "Digits: ", {"type", "individual_digits"});
      patterns_.push_back(digit_pattern(flag(step, "individual_digits", "Digits: ", false)));
    } else {
      unsupported("pre_tokenizer", type, in_sequence ? "Split, Digits and ByteLevel" : "ByteLevel and Sequence");
    }
  }

  void read_byte_level(const Json& step, bool behind_others) {
    check_keys(step, "ByteLevel: ", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    vocabulary_.prefix_space = flag(step, "add_prefix_space", "ByteLevel: ", true);
    if (vocabulary_.prefix_space && behind_others)
      fail("ByteLevel: add_prefix_space behind other pre-tokenizers is not supported");
    if (flag(step, "use_regex", "ByteLevel: ", true))
      patterns_.push_back(word_pattern(std::string(kGpt2Pattern), source_));
  }

  void read_split(const Json& step) {
    check_keys(step, "Split: ", {"type", "pattern", "behavior", "invert"});
    const Json& pattern = object(step, "pattern", "Split: ");
    const Json& regex = member(pattern, "Regex");
    if (!regex.is_string()) unsupported("Split pattern", pattern, "a Regex");
    const auto& expression = regex.get_ref<const std::string&>();
    const Json& behavior = member(step, "behavior");
    const bool invert = flag(step, "invert", "Split: ", false);
    // Keeping the matches alone is the same where everything matches.
    const bool isolated = behavior == "Isolated" && !invert;
    const bool matches_kept = behavior == "Removed" && invert && is_known_word_pattern(expression);
    if (!isolated && !matches_kept) unsupported(invert ? "inverted Split" : "Split", behavior, "Isolated");
    patterns_.push_back(word_pattern(expression, source_));
  }

  void read_model(const Json& model) {
    check_keys(model, "model: ",
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    const Json& dropout = member(model, "dropout");
    if (!dropout.is_null() && dropout != 0) fail("model: dropout is " + shown(dropout) + "; only null is supported");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& affix = member(model, key); !affix.is_null() && affix != "")
        fail(std::string("model: ") + key + " is " + shown(affix) + "; only null is supported");
    vocabulary_.whole_words = flag(model, "ignore_merges", "model: ", false);
    std::unordered_map<std::string_view, std::int32_t> ids;  // of the model's tokens, as they are written
    read_added_tokens(member(json_, "added_tokens"));
    read_vocab(object(model, "vocab", "model: "), ids);
    read_merges(member(model, "merges"), ids);
    choose_end_of_text(ids);
  }

  struct AddedToken {
    std::int32_t id;
    bool special, normalized;
  };

  void read_added_tokens(const Json& tokens) {
    if (tokens.is_null()) return;
    if (!tokens.is_array()) fail("added_tokens must be a list");
    for (const Json& token : tokens) {
      check_keys(token,
                 "added_tokens: ", {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      const Json& content = member(token, "content");
      if (!content.is_string() || content == "") fail("added_tokens: an entry has no content");
      const std::string where = "added token " + shown(content);
      AddedToken added{id_of(member(token, "id"), where), flag(token, "special", where + ": ", false),
                       flag(token, "normalized", where + ": ", true)};
      // Text must never yield end-of-text, whatever a file says of it.
      if (content == kEndOfTextMarker) added.special = true;
      if (!added.special)
        for (const char* key : {"single_word", "lstrip", "rstrip"})
          if (flag(token, key, where + ": ", false)) fail(where + ": " + key + " is not supported");
      if (!added_.emplace(content.get<std::string>(), added).second) fail(where + " is there twice");
    }
    // Those that a normalizer does not touch are found first.
    vocabulary_.added.resize(2);
    for (const auto& [content, added] : added_) {
      put(added.id, content, "added token " + shown(content));
      if (added.special)
        vocabulary_.special.push_back(added.id);
      else
        vocabulary_.added[added.normalized ? 1 : 0].push_back(added.id);
    }
    std::erase_if(vocabulary_.added, [](const auto& group) { return group.empty(); });
  }

  void read_vocab(const Json& vocab, std::unordered_map<std::string_view, std::int32_t>& ids) {
    ids.reserve(vocab.size());
    for (auto entry = vocab.begin(); entry != vocab.end(); ++entry) {
      const std::string& written = entry.key();
      const std::int32_t id = id_of(entry.value(), "token " + shown(written));
      ids.emplace(written, id);
      if (const auto added = added_.find(written); added != added_.end()) {
        if (added->second.id != id)
          fail("added token " + shown(written) + " has id " + std::to_string(added->second.id) + ", but " +
               std::to_string(id) + " in the vocabulary");
        continue;
      }
      std::optional<std::string> bytes = byte_level_bytes(written);
      if (!bytes || bytes->empty())
        fail("token " + shown(written) + " (id " + std::to_string(id) +
             ") is not written in the byte-level alphabet; only byte-level vocabularies are supported");
      put(id, std::move(*bytes), "token " + shown(written));
    }
  }

  void put(std::int32_t id, std::string bytes, const std::string& what) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= vocabulary_.tokens.size()) vocabulary_.tokens.resize(at + 1);
    if (!vocabulary_.tokens[at].empty()) fail(what + ": another token has its id " + std::to_string(id));
    vocabulary_.tokens[at] = std::move(bytes);
  }

  void read_merges(const Json& merges, const std::unordered_map<std::string_view, std::int32_t>& ids) {
    if (!merges.is_array()) fail("model: merges must be a list, this is " + std::string(merges.type_name()));
    vocabulary_.merges = BytePairMerges(merges.size());
    std::int32_t rank = 0;
    for (const Json& merge : merges) {
      const std::string where = "merge " + std::to_string(rank + 1) + ", " + shown(merge) + ": ";
      const auto [left, right] = pair_of(merge, where);
      const auto id = [&](std::string_view token) {
        const auto found = ids.find(token);
        if (found == ids.end()) fail(where + shown(std::string(token)) + " is not in the vocabulary");
        return found->second;
      };
      const std::string joined = std::string(left) + std::string(right);
      if (joined == kEndOfTextMarker || (added_.contains(joined) && added_.at(joined).special))
        fail(where + "it would make a special token from text");
      if (!vocabulary_.merges.add({id(left), id(right), id(joined), rank})) fail(where + "this pair is there twice");
      ++rank;
    }
  }

  // A pair is written "left right" or ["left", "right"].
  std::pair<std::string_view, std::string_view> pair_of(const Json& merge, const std::string& where) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
        return {text.substr(0, space), text.substr(space + 1)};
    }
    fail(where + "a pair of tokens is needed");
  }

  void choose_end_of_text(const std::unordered_map<std::string_view, std::int32_t>& ids) {
    for (const std::string_view name : kEndOfTextNames)
      if (const auto found = added_.find(std::string(name)); found != added_.end() && found->second.special) {
        vocabulary_.end_of_text = found->second.id;
        return;
      }
    // GPT-2's is in the vocabulary, and no merge makes it.
    if (const auto found = ids.find(kEndOfTextMarker); found != ids.end()) {
      vocabulary_.end_of_text = found->second;
    } else {
      vocabulary_.end_of_text = static_cast<std::int32_t>(vocabulary_.tokens.size());
      vocabulary_.tokens.emplace_back();
    }
    vocabulary_.special.push_back(vocabulary_.end_of_text);
  }

  std::string source_;
  std::string text_;
  Json json_;
  BytePairVocabulary vocabulary_;
  std::vector<std::unique_ptr<WordPattern>> patterns_;
  std::unordered_map<std::string, AddedToken> added_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string json, const std::string& source) {
  return TokenizerJson(std::move(json), source).read();
}

std::string gpt2_tokenizer_json(const std::string& vocab_json, std::string_view merges_txt, const std::string& source) {
  const std::string where = "tokenizer " + source + ": ";
  const Json vocab = parse_json(vocab_json, "tokenizer " + source + ": its vocabulary");
  require_user(vocab.is_object(), where + "its vocabulary must be an object of tokens and ids");
  TokenizerJsonParts parts{.tokens = {}, .merges = {}, .special = {}, .pattern = kGpt2Pattern};
  const auto bytes_of = [&](std::string_view written, const std::string& what) {
    std::optional<std::string> bytes = byte_level_bytes(written);
    require_user(bytes && !bytes->empty(),
                 where + what + shown(std::string(written)) + " is not written in the byte-level alphabet");
    return *std::move(bytes);
  };
  for (auto entry = vocab.begin(); entry != vocab.end(); ++entry) {
    const Json& id = entry.value();
    require_user(id.is_number_integer() && id >= 0 && id < kLargestVocabulary,
                 where + "token " + shown(entry.key()) + " has the id " + shown(id));
    if (entry.key() == kEndOfTextMarker) {
      parts.special.emplace_back(entry.key(), id.get<std::int32_t>());
      continue;
    }
    const auto at = id.get<std::size_t>();
    if (at >= parts.tokens.size()) parts.tokens.resize(at + 1);
    require_user(parts.tokens[at].empty(), where + "two tokens have the id " + std::to_string(at));
    parts.tokens[at] = bytes_of(entry.key(), "token ");
  }
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < merges_txt.size();) {
    const std::size_t end = std::min(merges_txt.find('\n', begin), merges_txt.size());
    std::string_view line = merges_txt.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::string what = "line " + std::to_string(line_number) + " of its merges, ";
    const std::size_t space = line.find(' ');
    require_user(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos,
                 where + what + shown(std::string(line)) + ", must be two tokens with a space between them");
    parts.merges.emplace_back(bytes_of(line.substr(0, space), what), bytes_of(line.substr(space + 1), what));
  }
  return write_tokenizer_json(parts);
}

}  // namespace filigree
