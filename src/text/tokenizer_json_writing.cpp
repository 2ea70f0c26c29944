#include <nlohmann/json.hpp>

#include "text/byte_level_alphabet.h"
#include "text/tokenizer_json.h"
#include "text/word_pattern.h"

namespace filigree {
namespace {

using Json = nlohmann::ordered_json;

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer(std::string_view pattern) {
  if (pattern.empty() || pattern == kGpt2Pattern) return byte_level(!pattern.empty());
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false)})}};
}

}  // namespace

std::string write_tokenizer_json(const TokenizerJsonParts& parts) {
  // Built as a list: an ordered object searches itself for each key that is put in.
  std::vector<std::pair<const std::string, Json>> vocab;
  vocab.reserve(parts.tokens.size());
  for (std::size_t id = 0; id < parts.tokens.size(); ++id)
    if (!parts.tokens[id].empty()) vocab.emplace_back(byte_level_text(parts.tokens[id]), id);
  Json merges = Json::array();
  for (const auto& [left, right] : parts.merges) merges.push_back({byte_level_text(left), byte_level_text(right)});
  Json added = Json::array();
  for (const auto& [content, id] : parts.special)
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", parts.whole_words},
                      {"vocab", Json::object_t(vocab.begin(), vocab.end())},
                      {"merges", merges}};
  const Json file = {
      {"version", "1.0"},          {"truncation", nullptr},       {"padding", nullptr},
      {"added_tokens", added},     {"normalizer", nullptr},       {"pre_tokenizer", pre_tokenizer(parts.pattern)},
      {"post_processor", nullptr}, {"decoder", byte_level(true)}, {"model", model}};
  return file.dump() + "\n";
}

std::string huggingface_tokenizer_config(std::string_view end_of_text) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!end_of_text.empty()) config["eos_token"] = end_of_text;
  return config.dump(2) + "\n";
}

}  // namespace filigree
