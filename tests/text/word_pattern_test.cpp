#include "text/word_pattern.h"

#include <vector>

#include "text/word_cutter.h"
#include "text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

Words words_of(std::unique_ptr<WordPattern> pattern, std::string_view text) {
  std::vector<std::unique_ptr<WordPattern>> patterns;
  patterns.push_back(std::move(pattern));
  const WordCutter cutter(std::move(patterns));
  Words words;
  cutter.for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words words_of(std::string_view expression, std::string_view text) {
  return words_of(word_pattern(std::string(expression), "test"), text);
}

TEST(WordPattern, Gpt2s) {
  EXPECT_THAT(
      words_of(kGpt2Pattern, "It's 1234 o'clock,  isn't it?\n\n end \n"),
      ElementsAre("It", "'s", " 1234", " o", "'", "clock", ",", " ", " isn", "'t", " it", "?", "\n\n", " end", " \n"));
  EXPECT_THAT(words_of(kGpt2Pattern, "IT'S"), ElementsAre("IT", "'", "S"));
}

TEST(WordPattern, Llama3sAndCl100ksDifferAtTheEnd) {
  const std::string text = "IT'S 12345 (foo)\tbar!\n\n  x\n  ";
  const Words same = {"IT", "'S", " ", "123", "45", " (", "foo", ")", "\tbar", "!\n\n", " ", " x"};
  Words of_llama3 = same, of_cl100k = same;
  of_llama3.insert(of_llama3.end(), {"\n", "  "});
  of_cl100k.push_back("\n  ");
  EXPECT_EQ(words_of(kLlama3Pattern, text), of_llama3);
  EXPECT_EQ(words_of(kCl100kPattern, text), of_cl100k);
}

TEST(WordPattern, O200ksKeepsContractionsAndCutsAtCapitals) {
  EXPECT_THAT(words_of(kO200kPattern, "don't HTTPServer camelCase a/b//\n \xE4\xB8\xAD\xE6\x96\x87's"),
              ElementsAre("don't", " HTTPServer", " camel", "Case", " a", "/b", "//\n", " \xE4\xB8\xAD\xE6\x96\x87's"));
}

TEST(WordPattern, ALongSIsAnSWithoutRegardToCase) {
  EXPECT_THAT(words_of(kLlama3Pattern, "it'\xC5\xBFo"), ElementsAre("it", "'\xC5\xBF", "o"));
  EXPECT_THAT(words_of(kGpt2Pattern, "it'\xC5\xBFo"), ElementsAre("it", "'", "\xC5\xBFo"));
}

TEST(WordPattern, BytesThatAreNoUtf8AreSymbols) {
  const std::string text = "caf\xC3 \xFF\xFE!a\xE2\x82";
  const Words expected = {"caf", "\xC3", " \xFF\xFE!", "a", "\xE2\x82"};
  EXPECT_EQ(words_of(kGpt2Pattern, text), expected);
  EXPECT_EQ(words_of(regex_word_pattern(std::string(kGpt2Pattern), "test"), text), expected);
}

// Characters of every kind, assigned long ago: PCRE2 knows them too. U+180E is white space to PCRE2 alone.
std::string random_text(std::uint32_t stream) {
  constexpr const char* kParts[] = {"a",
                                    "B",
                                    "z",
                                    "S",
                                    "s",
                                    "t",
                                    "ll",
                                    "'",
                                    "'",
                                    " ",
                                    " ",
                                    "\n",
                                    "\r",
                                    "\t",
                                    "/",
                                    "!",
                                    "1",
                                    "23",
                                    "\xC2\xA0",
                                    "\xC3\xA9",
                                    "\xC7\x85",
                                    "_",
                                    "\xC2\xBD",
                                    "\xCC\x81",
                                    "\xE4\xB8\xAD",
                                    "\xCA\xB0",
                                    "\xF0\x9F\x98\x80",
                                    "\xC5\xBF",
                                    "RE",
                                    "\xE2\x80\xA8",
                                    "\xD9\xA3",
                                    "\xFF"};
  const Random random(5, RandomPurpose::test, stream);
  std::string text;
  const std::uint32_t parts = random.below(0, 24);
  for (std::uint32_t i = 1; i <= parts; ++i) text += kParts[random.below(i, std::size(kParts))];
  return text;
}

TEST(WordPattern, KnownOnesCutAsTheirExpressionsDo) {
  for (const std::string_view expression : {kGpt2Pattern, kLlama3Pattern, kCl100kPattern, kO200kPattern}) {
    EXPECT_TRUE(is_known_word_pattern(expression));
    for (std::uint32_t stream = 0; stream < 4000; ++stream) {
      const std::string text = random_text(stream);
      ASSERT_EQ(words_of(expression, text), words_of(regex_word_pattern(std::string(expression), "test"), text))
          << expression << " on " << ::testing::PrintToString(text);
    }
  }
}

TEST(WordPattern, DigitsApart) {
  EXPECT_THAT(words_of(digit_pattern(true), "a12 b\xC2\xBD"), ElementsAre("a", "1", "2", " b", "\xC2\xBD"));
  EXPECT_THAT(words_of(digit_pattern(false), "a12 b3"), ElementsAre("a", "12", " b", "3"));
}

TEST(WordPattern, WhatAnExpressionDoesNotMatchIsAWord) {
  EXPECT_THAT(words_of("[a-c]+", "xxabcyab"), ElementsAre("xx", "abc", "y", "ab"));
  EXPECT_THAT(words_of("q", "\xC3\xA9t\xC3\xA9"), ElementsAre("\xC3\xA9t\xC3\xA9"));
  EXPECT_THAT(words_of("x*", "\xC3\xA9xx\xC3\xA9"), ElementsAre("\xC3\xA9", "xx", "\xC3\xA9"));  // empty matches too
  EXPECT_THAT(words_of("(?<=a)b", "abb"), ElementsAre("a", "b", "b"));  // what is in front counts
}

TEST(WordPattern, RefusesExpressionsThatItCannotFollow) {
  EXPECT_USER_ERROR(word_pattern("a(b", "t.json"), AllOf(HasSubstr("t.json: the pattern a(b"), HasSubstr("at byte 3")));
  EXPECT_USER_ERROR(word_pattern("\\h+", "t.json"), HasSubstr("\\h is not supported"));
  EXPECT_USER_ERROR(word_pattern("\\p{N}{1,3}+", "t.json"), HasSubstr("{1,3} is not supported"));
  EXPECT_THAT(words_of("\\x{41}+|\\p{L}++", "AAb"), ElementsAre("AA", "b"));
  EXPECT_USER_ERROR(word_pattern(std::string(5000, 'a'), "t.json"), HasSubstr("at most 4096"));
  EXPECT_USER_ERROR(words_of("(a+)+$", std::string(60, 'a') + "b"), HasSubstr("match limit"));
}

}  // namespace
}  // namespace filigree
