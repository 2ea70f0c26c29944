#include "text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LineSource lines_of(const std::string& text) {
  return [stream = std::make_shared<std::istringstream>(text)](std::string& line) {
    return static_cast<bool>(std::getline(*stream, line));
  };
}

std::unique_ptr<Tokenizer> trained(std::int64_t vocab, const std::string& text = testing::sample_text(4000)) {
  return train_sentencepiece(vocab, lines_of(text));
}

TEST(SentencePiece, TrainsExactlyTheAskedVocabulary) {
  const auto tokenizer = trained(350);
  EXPECT_EQ(tokenizer->vocab_size(), 350);
  EXPECT_EQ(tokenizer->name(), "spm:350");
  EXPECT_EQ(tokenizer->end_of_text(), 1);
  const std::string text = testing::sample_text(200, 1);
  EXPECT_LT(tokenizer->encode(text).size() * 2, text.size());  // pieces were learned
}

TEST(SentencePiece, TrainingIsDeterministic) {
  EXPECT_EQ(trained(350)->serialize(), trained(350)->serialize());
}

TEST(SentencePiece, LosesNothing) {
  const auto tokenizer = trained(350);
  const std::string nul("a\0b", 3);
  for (const std::string& text :
       {std::string("the light"), std::string(" the  light\t\t of \n\n morning \r\n "), std::string("\n"),
        std::string(" "), std::string(), nul, std::string("<|endoftext|> <unk> <0x41> </s>"),
        std::string("\xE2\x96\x81 x\xE2\x96\x81y \xE2\x96\x85"),
        std::string("\xEF\xAC\x81 \xEF\xBC\xA1 e\xCC\x81 \xF0\x9F\x98\x80 \xEF\xBF\xBD \xE2\x81\x87"),
        std::string("\xFF\xC3 broken \xE2\x96 \x80\xF0\x9F\x98"), std::string(300, ' '), std::string(300, '\x81')}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->end_of_text()), 0);
  }
}

TEST(SentencePiece, LosesNothingOfRandomBytesAndCharacters) {
  const auto tokenizer = trained(300);
  const Random random(5, RandomPurpose::test, 1);
  constexpr const char* kParts[] = {"\xE2\x96\x81",     " ",     "\n", "the", "\xC3\xA9", "\xE2", "\x96",
                                    "\xF0\x9F\x98\x80", "<0x0A>"};
  for (std::uint64_t trial = 0; trial < 300; ++trial) {
    std::string text;
    for (std::uint64_t i = 0; i < 30; ++i) {
      const auto words = random.words(trial * 100 + i);
      if (words[0] % 2 == 0)
        text += kParts[words[1] % std::size(kParts)];
      else
        text += static_cast<char>(words[1]);
    }
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << "trial " << trial;
  }
}

TEST(SentencePiece, TextWithoutASpaceStillGivesOneForSpaces) {
  const auto tokenizer = trained(265, "xxyxxyxxy\nxxyxyxy\n");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("x y  \xE2\x96\x81 z")), "x y  \xE2\x96\x81 z");
}

TEST(SentencePiece, ARareSpaceHasItsPiece) {
  std::string text = "x y\n";
  for (int i = 0; i < 5000; ++i) text += "xxyxyxxyyxyxxyxyyyx\n";
  const auto tokenizer = trained(270, text);
  EXPECT_EQ(tokenizer->encode(" ").size(), 1u);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("x  y")), "x  y");
}

TEST(SentencePiece, TextMayBeCutBehindALineEnd) {
  const auto tokenizer = trained(350);
  const std::string text = testing::sample_text(300, 2);
  const std::size_t cut = text.find('\n', text.size() / 2) + 1;
  auto parts = tokenizer->encode(text.substr(0, cut));
  const auto rest = tokenizer->encode(text.substr(cut));
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, tokenizer->encode(text));
}

TEST(SentencePiece, SavesAndLoads) {
  const testing::TemporaryFolder folder;
  const auto tokenizer = trained(350);
  tokenizer->save(folder.path() / "spm.model");
  const auto loaded = load_tokenizer(folder.path() / "spm.model");
  EXPECT_EQ(loaded->identity(), tokenizer->identity());
  EXPECT_NE(loaded->identity(), trained(351)->identity());
  const std::string text = testing::sample_text(100, 3);
  EXPECT_EQ(loaded->encode(text), tokenizer->encode(text));
}

TEST(SentencePiece, SaysTheLargestVocabularyThatWouldDo) {
  const std::string text = "the quick brown fox jumps over the lazy dog\n";
  std::int64_t largest = 0;
  try {
    trained(4096, text);
    ADD_FAILURE() << "trained 4096 pieces on one line";
  } catch (const UserError& failure) {
    const std::string message = failure.what();
    EXPECT_THAT(message, AllOf(HasSubstr("too small"), HasSubstr("largest size that would do is spm:")));
    largest = std::stoll(message.substr(message.rfind("spm:") + 4));
  }
  EXPECT_EQ(trained(largest, text)->vocab_size(), largest);
  EXPECT_USER_ERROR(trained(largest + 1, text), HasSubstr("spm:" + std::to_string(largest)));
}

TEST(SentencePiece, SaysTheSmallestVocabularyThatWouldDo) {
  std::string text;  // 200 different characters, equally often
  for (int i = 0; i < 200; ++i)
    text += std::string{static_cast<char>(0xC4 + i / 64), static_cast<char>(0x80 + i % 64)} + " ";
  text += "\n";
  std::int64_t smallest = 0;
  try {
    trained(300, text);
    ADD_FAILURE() << "300 pieces for 200 characters and 256 bytes";
  } catch (const UserError& failure) {
    const std::string message = failure.what();
    EXPECT_THAT(message, AllOf(HasSubstr("different characters"), HasSubstr("smallest size that would do is spm:")));
    smallest = std::stoll(message.substr(message.rfind("spm:") + 4));
  }
  EXPECT_EQ(trained(smallest, text)->vocab_size(), smallest);
  EXPECT_USER_ERROR(trained(smallest - 1, text), HasSubstr("spm:" + std::to_string(smallest)));
}

TEST(SentencePiece, NeedsText) {
  EXPECT_USER_ERROR(trained(300, ""), HasSubstr("no text to train it on"));
  EXPECT_USER_ERROR(trained(300, "\n\n\n"), HasSubstr("no text to train it on"));
  EXPECT_USER_ERROR(trained(300, "\xFF\xFE\xFD"), HasSubstr("no text to train it on"));
}

TEST(SentencePiece, LearnsFromLinesOfAnyLength) {
  std::string text = testing::sample_text(4000);
  std::replace(text.begin(), text.end(), '\n', ' ');
  EXPECT_EQ(trained(350, text)->vocab_size(), 350);
}

TEST(SentencePiece, PassesOnWhatTheSourceThrows) {
  int calls = 0;
  const LineSource failing = [&](std::string& line) {
    line = "some words";
    if (++calls == 3) throw UserError("the disk is gone");
    return true;
  };
  EXPECT_USER_ERROR(train_sentencepiece(270, failing), HasSubstr("the disk is gone"));
}

TEST(SentencePiece, DamagedModelsAreRefusedOrLoadWithoutHarm) {
  const std::string good = trained(300)->serialize();
  EXPECT_USER_ERROR(parse_sentencepiece(good.substr(0, good.size() / 2), "half.model"), HasSubstr("half.model"));
  const Random random(6, RandomPurpose::test, 2);
  int refused = 0;
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    std::string damaged = good;
    damaged[random.below(trial, static_cast<std::uint32_t>(good.size()))] = static_cast<char>(random.words(trial)[1]);
    try {
      const auto tokenizer = parse_sentencepiece(damaged, "damaged.model");
      for (const std::int32_t id : tokenizer->encode("the light of morning")) {
        ASSERT_GE(id, 0);
        ASSERT_LT(id, tokenizer->vocab_size());
      }
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace filigree
