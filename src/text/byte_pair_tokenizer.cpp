#include "text/byte_pair_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "core/error.h"
#include "text/token_table.h"
#include "text/tokenizer_json.h"
#include "text/word_cutter.h"

namespace filigree {
namespace {

// Finds added tokens in text: the leftmost, and the longest of those that begin there.
class AddedTokens {
 public:
  AddedTokens(const std::vector<std::string>& tokens, const std::vector<std::int32_t>& ids) : tokens_(tokens) {
    for (const std::int32_t id : ids) by_first_byte_[static_cast<unsigned char>(bytes(id).front())].push_back(id);
    for (std::vector<std::int32_t>& group : by_first_byte_)
      std::sort(group.begin(), group.end(),
                [&](std::int32_t a, std::int32_t b) { return bytes(a).size() > bytes(b).size(); });
  }

  // Calls plain(part) for what lies between the tokens, which is never empty, and found(id) for each of them.
  template <typename Plain, typename Found>
  void split(std::string_view text, const Plain& plain, const Found& found) const {
    std::size_t begin = 0;  // of the part without tokens
    for (std::size_t at = 0; at < text.size();) {
      const auto& group = by_first_byte_[static_cast<unsigned char>(text[at])];
      const auto match = std::find_if(group.begin(), group.end(),
                                      [&](std::int32_t id) { return text.substr(at).starts_with(bytes(id)); });
      if (match == group.end()) {
        ++at;
        continue;
      }
      if (at > begin) plain(text.substr(begin, at - begin));
      found(*match);
      at += bytes(*match).size();
      begin = at;
    }
    if (begin < text.size()) plain(text.substr(begin));
  }

 private:
  const std::string& bytes(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }

  const std::vector<std::string>& tokens_;
  std::array<std::vector<std::int32_t>, 256> by_first_byte_;
};

class BytePairTokenizer final : public Tokenizer {
 public:
  BytePairTokenizer(BytePairVocabulary vocabulary, std::vector<std::unique_ptr<WordPattern>> patterns,
                    std::string serialized, std::string (*tokenizer_json)(const std::string&),
                    const std::string& source)
      : vocabulary_(std::move(vocabulary)),
        cutter_(std::move(patterns)),
        words_(vocabulary_.tokens, vocabulary_.tokens.size()),
        is_special_(vocabulary_.tokens.size()),
        serialized_(std::move(serialized)),
        tokenizer_json_(tokenizer_json) {
    for (const std::int32_t id : vocabulary_.special) is_special_[static_cast<std::size_t>(id)] = true;
    for (const std::vector<std::int32_t>& ids : vocabulary_.added) added_.emplace_back(vocabulary_.tokens, ids);
    std::vector<bool> is_added = is_special_;
    for (const std::vector<std::int32_t>& ids : vocabulary_.added)
      for (const std::int32_t id : ids) is_added[static_cast<std::size_t>(id)] = true;
    find_byte_tokens(is_added, source);
    find_words(is_added);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3);
    append_added(text, 0, ids);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab_size())
        throw Error("decode: id " + std::to_string(id) + " is not below " + std::to_string(vocab_size()));
      if (!is_special_[static_cast<std::size_t>(id)]) text += vocabulary_.tokens[static_cast<std::size_t>(id)];
    }
    return text;
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(vocabulary_.tokens.size()); }
  std::int32_t end_of_text() const override { return vocabulary_.end_of_text; }
  std::string name() const override { return "bpe:" + std::to_string(vocab_size()); }
  std::string serialize() const override { return serialized_; }

  TokenizerFiles huggingface_files() const override {
    const std::string& end_of_text_name = vocabulary_.tokens[static_cast<std::size_t>(end_of_text())];
    return {{"tokenizer.json", tokenizer_json_(serialized_)},
            {"tokenizer_config.json", huggingface_tokenizer_config(end_of_text_name)}};
  }

 private:
  void find_byte_tokens(const std::vector<bool>& is_added, const std::string& source) {
    byte_tokens_.fill(-1);
    for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id)
      if (const std::string& token = vocabulary_.tokens[id]; token.size() == 1 && !is_added[id])
        byte_tokens_[static_cast<unsigned char>(token.front())] = static_cast<std::int32_t>(id);
    for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte)
      require_user(byte_tokens_[byte] >= 0,
                   source + ": no token is the byte " + std::to_string(byte) +
                       " alone; a byte-level vocabulary needs all 256, so that no text is lost");
  }

  // The tokens that are what a word of their bytes becomes: those are looked up.
  void find_words(const std::vector<bool>& is_added) {
    std::vector<std::int32_t> merged;
    for (std::size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const std::string& token = vocabulary_.tokens[i];
      if (is_added[i] || token.empty()) continue;
      const auto id = static_cast<std::int32_t>(i);
      if (!vocabulary_.whole_words) {
        merged.clear();
        append_merged(token, merged);
        if (merged.size() != 1 || merged.front() != id) continue;
      }
      words_.add(id);
      longest_word_ = std::max(longest_word_, token.size());
    }
  }

  void append_added(std::string_view text, std::size_t pass, std::vector<std::int32_t>& ids) const {
    if (pass == added_.size()) {
      append_text(text, ids);
      return;
    }
    added_[pass].split(
        text, [&](std::string_view part) { append_added(part, pass + 1, ids); },
        [&](std::int32_t id) { ids.push_back(id); });
  }

  void append_text(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::string with_space;
    if (vocabulary_.prefix_space && !text.empty() && text.front() != ' ') {
      with_space = " ";
      with_space += text;
      text = with_space;
    }
    cutter_.for_each_word(text, [&](std::string_view word) { append_word(word, ids); });
  }

  void append_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    const std::int32_t known = word.size() <= longest_word_ ? words_.find(word) : -1;
    if (known >= 0)
      ids.push_back(known);
    else
      append_merged(word, ids);
  }

  void append_merged(std::string_view word, std::vector<std::int32_t>& ids) const {
    const std::size_t begin = ids.size();
    for (const char c : word) ids.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
    ids.resize(begin + vocabulary_.merges.apply(std::span(ids).subspan(begin)));
  }

  BytePairVocabulary vocabulary_;
  std::vector<AddedTokens> added_;
  WordCutter cutter_;
  std::array<std::int32_t, 256> byte_tokens_{};
  TokenTable words_;
  std::size_t longest_word_ = 0;  // bytes
  std::vector<bool> is_special_;
  std::string serialized_;
  std::string (*tokenizer_json_)(const std::string&);
};

}  // namespace

std::unique_ptr<Tokenizer> byte_pair_tokenizer(BytePairVocabulary vocabulary,
                                               std::vector<std::unique_ptr<WordPattern>> patterns,
                                               std::string serialized,
                                               std::string (*tokenizer_json)(const std::string& serialized),
                                               const std::string& source) {
  return std::make_unique<BytePairTokenizer>(std::move(vocabulary), std::move(patterns), std::move(serialized),
                                             tokenizer_json, source);
}

}  // namespace filigree
