// Models that were not trained by filigree keep their own rules.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "text/sentencepiece_tokenizer.h"
#include "text_support.h"

namespace filigree {
namespace {

// One with the library's defaults: NFKC, a dummy prefix, <s> and </s>, no bytes.
std::string foreign_model(const std::unordered_map<std::string, std::string>& more = {}) {
  class Lines final : public sentencepiece::SentenceIterator {
   public:
    bool done() const override { return index_ == 200; }
    void Next() override { line_ = testing::sample_text(12, static_cast<std::uint32_t>(++index_)); }
    const std::string& value() const override { return line_; }
    sentencepiece::util::Status status() const override { return {}; }

   private:
    int index_ = 0;
    std::string line_ = "the light";
  } lines;
  std::unordered_map<std::string, std::string> options = {
      {"model_type", "bpe"}, {"vocab_size", "60"}, {"minloglevel", "3"}, {"num_threads", "1"}};
  for (const auto& [key, value] : more) options[key] = value;
  std::string serialized;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &lines, &serialized);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return serialized;
}

// Lossless models are encoded word by word here; the library encodes whole texts. The ids must be the same.
TEST(SentencePieceLibrary, GivesTheSameIds) {
  int line_number = 0;
  std::string text = "    indented\t text:\n\n  \n x  y\r\n";
  const auto tokenizer = train_sentencepiece(400, [&](std::string& line) {
    line = "  " + testing::sample_text(8, static_cast<std::uint32_t>(line_number)) + "    end";
    text += line + "\n";
    return ++line_number < 300;
  });
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(tokenizer->serialize()).ok());
  text += "caf\xC3\xA9 \xE2\x82\xAC\xF0\x9F\x98\x80 unknownwords" + std::string(200, 'z') + std::string(50, ' ');
  std::vector<int> expected;
  ASSERT_TRUE(library.Encode(text, &expected).ok());
  EXPECT_EQ(tokenizer->encode(text), expected);
}

// A model whose pieces span spaces cannot be encoded word by word.
TEST(SentencePieceLibrary, GivesTheSameIdsWhenPiecesSpanWords) {
  const std::string serialized = foreign_model({{"split_by_whitespace", "false"},
                                                {"byte_fallback", "true"},
                                                {"vocab_size", "400"},
                                                {"normalization_rule_name", "identity"},
                                                {"add_dummy_prefix", "false"},
                                                {"remove_extra_whitespaces", "false"}});
  const auto tokenizer = parse_sentencepiece(serialized, "foreign");
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(serialized).ok());
  const std::string text = testing::sample_text(500, 7);
  std::vector<int> expected;
  ASSERT_TRUE(library.Encode(text, &expected).ok());
  EXPECT_EQ(tokenizer->encode(text), expected);
  EXPECT_EQ(tokenizer->decode(expected), text);
}

TEST(ForeignModel, UsesItsEndOfSentence) {
  const auto tokenizer = parse_sentencepiece(foreign_model(), "foreign");
  EXPECT_EQ(tokenizer->vocab_size(), 60);
  EXPECT_EQ(tokenizer->end_of_text(), 2);  // </s>
  const auto ids = tokenizer->encode("the light of morning");
  EXPECT_EQ(tokenizer->decode(ids), "the light of morning");                   // without the dummy prefix
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the  light")), "the light");  // its own white space removal
}

TEST(ForeignModel, PrefersAPieceNamedEndOfText) {
  const auto tokenizer = parse_sentencepiece(foreign_model({{"control_symbols", "<|endoftext|>"}}), "foreign");
  EXPECT_EQ(tokenizer->end_of_text(), 3);
  EXPECT_EQ(tokenizer->vocab_size(), 60);
}

TEST(ForeignModel, GetsAnIdAppendedWithoutAnyEnd) {
  const auto tokenizer = parse_sentencepiece(foreign_model({{"eos_id", "-1"}}), "foreign");
  EXPECT_EQ(tokenizer->end_of_text(), 60);
  EXPECT_EQ(tokenizer->vocab_size(), 61);
  auto ids = tokenizer->encode("the light");
  ids.push_back(60);
  EXPECT_EQ(tokenizer->decode(ids), "the light");
  ids.push_back(61);
  EXPECT_THROW(tokenizer->decode(ids), Error);
}

TEST(ForeignModel, WithBytesButLossyRulesKeepsThem) {
  const auto tokenizer =
      parse_sentencepiece(foreign_model({{"byte_fallback", "true"}, {"vocab_size", "320"}}), "foreign");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("caf\xC3\xA9 \xF0\x9F\x98\x80")), "caf\xC3\xA9 \xF0\x9F\x98\x80");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the  light")), "the light");
}

}  // namespace
}  // namespace filigree
