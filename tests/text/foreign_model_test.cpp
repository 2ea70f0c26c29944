// Models that were not trained by filigree keep their own rules.
#include <sentencepiece_trainer.h>

#include <unordered_map>

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
