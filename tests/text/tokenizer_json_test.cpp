#include "text/tokenizer_json.h"

#include "byte_pair_support.h"
#include "text/word_pattern.h"

namespace filigree {
namespace {

using nlohmann::json;
using testing::added_token;
using ::testing::AllOf;
using testing::byte_level_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::tokenizer_of;

const std::vector<std::pair<std::string, std::string>> kMerges = {{"t", "h"}, {"th", "e"}, {" ", "the"}, {"a", "a"}};

TEST(TokenizerJson, MergesWordsAndKeepsAnyBytes) {
  const auto tokenizer = tokenizer_of(byte_level_json(kMerges));
  EXPECT_THAT(tokenizer->encode("the then"), ElementsAre(257, 258, 'n'));
  EXPECT_THAT(tokenizer->encode("t he"), ElementsAre('t', ' ', 'h', 'e'));  // no merge across words
  EXPECT_TRUE(tokenizer->encode("").empty());
  const std::string text = testing::any_bytes();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{261}), Error);
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{-1}), Error);
}

TEST(TokenizerJson, EndOfTextIsAppendedWhereThereIsNone) {
  const auto tokenizer = tokenizer_of(byte_level_json(kMerges));
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->end_of_text(), 260);
  EXPECT_EQ(tokenizer->name(), "bpe:261");
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{'a', 260, 'b'}), "ab");
}

TEST(TokenizerJson, SpecialTokensNeverComeFromText) {
  json file = byte_level_json(kMerges);
  file["added_tokens"] = {added_token(260, "<|begin_of_text|>", true), added_token(261, "</s>", true),
                          added_token(262, "<|end_of_text|>", true)};
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer->end_of_text(), 262);  // tells more than </s>
  EXPECT_EQ(tokenizer->vocab_size(), 263);
  for (const std::string text : {"<|end_of_text|>", "x</s>"}) {
    EXPECT_EQ(tokenizer->encode(text).size(), text.size());
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{260, 261, 'a', 262}), "a");
}

TEST(TokenizerJson, EndOfTextInTheVocabularyIsSpecial) {
  json file = byte_level_json();
  file["model"]["vocab"]["<|endoftext|>"] = 256;
  file["model"]["ignore_merges"] = true;  // whole words are looked up, and the pattern lets this be one
  file["pre_tokenizer"]["use_regex"] = false;
  EXPECT_EQ(tokenizer_of(file)->end_of_text(), 256);
  EXPECT_EQ(tokenizer_of(file)->encode("<|endoftext|>").size(), 13u);
  file["added_tokens"] = {added_token(256, "<|endoftext|>", false)};  // even where a file says otherwise
  EXPECT_EQ(tokenizer_of(file)->encode("<|endoftext|>").size(), 13u);
}

TEST(TokenizerJson, OtherAddedTokensAreFoundFirstTheLongestOfThem) {
  json file = byte_level_json(kMerges);
  file["added_tokens"] = {added_token(256, "th", false), added_token(261, "th  ", false),
                          added_token(262, "h\xC3\xA9", false)};
  file["added_tokens"][2]["normalized"] = false;  // of a pass before the others
  const auto tokenizer = tokenizer_of(file);
  EXPECT_THAT(tokenizer->encode("the th  e"), ElementsAre(256, 'e', ' ', 261, 'e'));
  EXPECT_THAT(tokenizer->encode("th\xC3\xA9"), ElementsAre('t', 262));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{262, 256}), "h\xC3\xA9th");
}

TEST(TokenizerJson, IgnoreMergesLooksUpWholeWords) {
  json file = byte_level_json({{"a", "b"}});
  file["model"]["vocab"]["abc"] = 257;  // no merges lead there
  EXPECT_THAT(tokenizer_of(file)->encode("abc"), ElementsAre(256, 'c'));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(tokenizer_of(file)->encode("abc abcd"), ElementsAre(257, ' ', 256, 'c', 'd'));
}

TEST(TokenizerJson, PrefixSpaceAndSequences) {
  json file = byte_level_json(kMerges);
  file["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(tokenizer_of(file)->encode("the"), ElementsAre(258));
  EXPECT_THAT(tokenizer_of(file)->encode(" the"), ElementsAre(258));
  EXPECT_TRUE(tokenizer_of(file)->encode("").empty());
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "aa?"}}}, {"behavior", "Isolated"}, {"invert", false}};
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, split, byte_level}}};
  EXPECT_THAT(tokenizer_of(file)->encode("aaa1the"), ElementsAre(259, 'a', '1', 257));
  file["pre_tokenizer"]["pretokenizers"][1] = {{"type", "Split"},
                                               {"pattern", {{"Regex", std::string(kGpt2Pattern)}}},
                                               {"behavior", "Removed"},
                                               {"invert", true}};
  EXPECT_THAT(tokenizer_of(file)->encode("aaa1 the"), ElementsAre(259, 'a', '1', 258));
}

TEST(TokenizerJson, IsSavedWithItsIdentityAndExportedAsItIs) {
  const testing::TemporaryFolder folder;
  const auto path = testing::write_text(folder.path() / "in/tokenizer.json", byte_level_json(kMerges).dump(1));
  const auto tokenizer = load_tokenizer(folder.path() / "in");
  tokenizer->save(folder.path() / kTokenizerFile);
  EXPECT_EQ(load_tokenizer(folder.path())->identity(), tokenizer->identity());
  EXPECT_NE(tokenizer_of(byte_level_json())->identity(), tokenizer->identity());
  std::filesystem::create_directory(folder.path() / "out");
  tokenizer->write_huggingface_files(folder.path() / "out");
  EXPECT_EQ(testing::read_text(folder.path() / "out/tokenizer.json"), testing::read_text(path));
  EXPECT_EQ(testing::read_text(folder.path() / "out/tokenizer_config.json").find("eos_token"), std::string::npos);
}

TEST(TokenizerJson, Gpt2sTwoFiles) {
  const testing::TemporaryFolder folder;
  json vocab = byte_level_json(kMerges)["model"]["vocab"];
  vocab["<|endoftext|>"] = 260;
  testing::write_text(folder.path() / "vocab.json", vocab.dump());
  const auto merges = [&](std::string_view text) { testing::write_text(folder.path() / "merges.txt", text); };
  merges("#version: 0.2\nt h\r\nth e\n\xC4\xA0 the\na a\n");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->end_of_text(), 260);
  EXPECT_THAT(tokenizer->encode("the then"), ElementsAre(257, 258, 'n'));
  EXPECT_THAT(tokenizer->huggingface_files().at("tokenizer_config.json"),
              HasSubstr("\"eos_token\": \"<|endoftext|>\""));
  const auto again = parse_tokenizer(tokenizer->huggingface_files().at("tokenizer.json"), "again");
  EXPECT_EQ(again->identity(), tokenizer->identity());

  merges("t h\nt h e\n");
  EXPECT_USER_ERROR(load_tokenizer(folder.path()), AllOf(HasSubstr("line 2 of its merges"), HasSubstr("two tokens")));
  merges("t h\nt \xE2\x82\xAC\n");
  EXPECT_USER_ERROR(load_tokenizer(folder.path()), AllOf(HasSubstr("line 2"), HasSubstr("byte-level alphabet")));
  merges("t h\nt x\n");
  EXPECT_USER_ERROR(load_tokenizer(folder.path()),
                    AllOf(HasSubstr("merge 2"), HasSubstr("\"tx\" is not in the vocab")));
  testing::write_text(folder.path() / "vocab.json", "{\"a\": 0");
  EXPECT_USER_ERROR(load_tokenizer(folder.path()), AllOf(HasSubstr("vocabulary"), HasSubstr("not valid JSON at byte")));
  testing::write_text(folder.path() / "vocab.json", "{\"a\": 0, \"b\": 0}");
  EXPECT_USER_ERROR(load_tokenizer(folder.path()), HasSubstr("two tokens have the id 0"));
}

// The message for the file that `change` makes of a good one.
template <typename Change>
std::string refusal(const Change& change) {
  json file = byte_level_json(kMerges);
  change(file);
  try {
    tokenizer_of(file);
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer t.json: "));
    return error.what();
  }
  return "(accepted)";
}

TEST(TokenizerJson, NamesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal([](json& file) {
                file["normalizer"] = {{"type", "NFC"}};
              }),
              AllOf(HasSubstr("normalizer \"NFC\""), HasSubstr("tokenizer.model")));
  EXPECT_THAT(refusal([](json& file) { file["model"]["type"] = "Unigram"; }), HasSubstr("model \"Unigram\""));
  EXPECT_THAT(refusal([](json& file) {
                file["pre_tokenizer"] = {{"type", "Metaspace"}};
              }),
              HasSubstr("pre_tokenizer \"Metaspace\""));
  EXPECT_THAT(refusal([](json& file) { file["pre_tokenizer"] = nullptr; }), HasSubstr("pre_tokenizer null"));
  EXPECT_THAT(refusal([](json& file) {
                file["decoder"] = {{"type", "WordPiece"}};
              }),
              HasSubstr("decoder \"WordPiece\""));
  EXPECT_THAT(refusal([](json& file) { file["surprise"] = 1; }), HasSubstr("\"surprise\" is not known"));
  EXPECT_THAT(refusal([](json& file) { file["model"]["surprise"] = 1; }), HasSubstr("model: \"surprise\""));
  EXPECT_THAT(refusal([](json& file) { file["model"]["dropout"] = 0.1; }), HasSubstr("dropout is 0.1"));
  EXPECT_THAT(refusal([](json& file) { file["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(refusal([](json& file) {
                file["added_tokens"] = {added_token(260, "x", false)};
                file["added_tokens"][0]["lstrip"] = true;
              }),
              HasSubstr("lstrip is not supported"));
}

TEST(TokenizerJson, SaysWhatIsDamaged) {
  const auto of_merges = [](json merges) {
    return refusal([&](json& file) { file["model"]["merges"] = std::move(merges); });
  };
  EXPECT_THAT(of_merges({"t h", "t h"}), AllOf(HasSubstr("merge 2"), HasSubstr("twice")));
  EXPECT_THAT(of_merges({"th e", "q z"}), AllOf(HasSubstr("merge 2"), HasSubstr("\"qz\" is not in the vocabulary")));
  EXPECT_THAT(of_merges({"the"}), HasSubstr("a pair of tokens is needed"));
  EXPECT_THAT(of_merges(json::array({json::array({"t", 1})})), HasSubstr("a pair of tokens is needed"));
  EXPECT_THAT(of_merges(nullptr), HasSubstr("merges must be a list"));
  EXPECT_THAT(refusal([](json& file) { file["model"]["vocab"]["xyz"] = 258; }),
              HasSubstr("another token has its id 258"));
  EXPECT_THAT(refusal([](json& file) { file["model"]["vocab"]["xyz"] = 1 << 21; }), HasSubstr("from 0 to 2097151"));
  EXPECT_THAT(refusal([](json& file) { file["model"]["vocab"]["xyz"] = -1; }), HasSubstr("from 0 to 2097151"));
  EXPECT_THAT(refusal([](json& file) { file["model"]["vocab"]["x y"] = 300; }), HasSubstr("byte-level alphabet"));
  EXPECT_THAT(refusal([](json& file) { file["model"]["vocab"].erase("b"); }), HasSubstr("the byte 98 alone"));
  EXPECT_THAT(refusal([](json& file) { file["added_tokens"] = {added_token(97, "x1", true)}; }),
              HasSubstr("another token has its id 97"));
  EXPECT_THAT(refusal([](json& file) {
                file["model"]["vocab"]["aaa"] = 300;
                file["model"]["merges"].push_back("aa a");
                file["added_tokens"] = {added_token(300, "aaa", true)};
              }),
              HasSubstr("special token from text"));
  const std::string good = byte_level_json(kMerges).dump();
  for (const std::size_t size : {std::size_t{1}, good.size() / 2, good.size() - 1})
    EXPECT_USER_ERROR(parse_tokenizer(good.substr(0, size), "t.json"), HasSubstr("not valid JSON at byte"));
}

}  // namespace
}  // namespace filigree
