#include "text/tiktoken_tokenizer.h"

#include "byte_pair_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i)
      text += i <= std::min<std::size_t>(bytes.size() - at, 3) ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string ranks(const std::vector<std::string>& tokens) {
  std::string text;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte)
    text += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(rank++) + "\n";
  for (const std::string& token : tokens) text += base64(token) + " " + std::to_string(rank++) + "\n";
  return text;
}

// Tokens that nobody else has, up to `count` with the bytes.
void fill(std::vector<std::string>& tokens, std::size_t count) {
  while (tokens.size() + 256 < count) {
    std::string token = std::to_string(tokens.size());
    token.insert(token.begin(), 'q');
    tokens.push_back(std::move(token));
  }
}

class Tiktoken : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(const std::string& text, const std::string& name = "cl100k_base.tiktoken") const {
    return load_tokenizer(testing::write_text(folder_.path() / name, text));
  }
  const testing::TemporaryFolder folder_;
};

TEST_F(Tiktoken, MergesByRankAndTakesWholeWords) {
  const auto tokenizer = load(ranks({"ab", "bc", "cd", "abcd", "xyz"}));
  EXPECT_THAT(tokenizer->encode("abcd"), ElementsAre(259));
  EXPECT_THAT(tokenizer->encode("abcdx"), ElementsAre(259, 'x'));  // ab, cd, abcd
  EXPECT_THAT(tokenizer->encode("bcd"), ElementsAre(257, 'd'));
  EXPECT_THAT(tokenizer->encode("xyz wxyz"), ElementsAre(260, ' ', 'w', 'x', 'y', 'z'));  // no two make it
  EXPECT_EQ(tokenizer->end_of_text(), 261);
  EXPECT_EQ(tokenizer->vocab_size(), 262);
  const std::string text = testing::any_bytes() + "<|endoftext|>";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST_F(Tiktoken, TheNameDecidesHowTextIsCut) {
  const std::string text = ranks({"12", "123", "1234"});
  EXPECT_THAT(load(text, "r50k_base.tiktoken")->encode("1234"), ElementsAre(258));
  EXPECT_THAT(load(text, "cl100k_base.tiktoken")->encode("1234"), ElementsAre(257, '4'));
  EXPECT_THAT(load(text, "o200k_base-mine")->encode("1234"), ElementsAre(257, '4'));
  EXPECT_USER_ERROR(load(text, "mine.tiktoken"),
                    AllOf(HasSubstr("mine.tiktoken"), HasSubstr("r50k_base, p50k_base, cl100k_base, o200k_base")));
}

TEST_F(Tiktoken, IsSavedWithItsName) {
  const auto tokenizer = load(ranks({"12"}));
  tokenizer->save(folder_.path() / kTokenizerFile);
  const auto again = load_tokenizer(folder_.path());
  EXPECT_EQ(again->identity(), tokenizer->identity());
  EXPECT_EQ(again->encode("12345"), tokenizer->encode("12345"));
  EXPECT_NE(load(ranks({"12"}), "r50k_base.tiktoken")->identity(), tokenizer->identity());
}

TEST_F(Tiktoken, IsExportedAsTokenizerJson) {
  for (const char* name : {"r50k_base", "cl100k_base", "o200k_base"}) {
    const auto tokenizer = load(ranks({"ab", "bc", "cd", "abcd", "xyz", "\n ", "It", "'S", "12", "\xC3\xA9"}), name);
    const TokenizerFiles files = tokenizer->huggingface_files();
    EXPECT_THAT(files.at("tokenizer_config.json"), HasSubstr("<|endoftext|>"));
    const auto again = parse_tokenizer(files.at("tokenizer.json"), "again");
    EXPECT_EQ(again->end_of_text(), tokenizer->end_of_text());
    EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size());
    const std::string text = testing::any_bytes() + "abcd xyz It'S 12345 <|endoftext|> \n \n ";
    EXPECT_EQ(again->encode(text), tokenizer->encode(text)) << name;
  }
}

TEST_F(Tiktoken, TheFourEncodingsHaveTheirOwnSpecialTokens) {
  std::vector<std::string> tokens;
  fill(tokens, 50256);
  const auto tokenizer = load(ranks(tokens), "r50k_base.tiktoken");
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  fill(tokens, 100256);
  const auto larger = load(ranks(tokens), "cl100k_base.tiktoken");
  EXPECT_EQ(larger->end_of_text(), 100257);
  EXPECT_EQ(larger->vocab_size(), 100277);
  EXPECT_EQ(larger->decode(std::vector<std::int32_t>{'a', 100256, 100257, 100270, 100276, 'b'}), "ab");
}

TEST_F(Tiktoken, SaysWhatIsDamaged) {
  const std::string good = ranks({"ab"});
  EXPECT_USER_ERROR(load(good + "YWI= 300\n"), HasSubstr("ranks 256 and 300 have the same token"));
  EXPECT_USER_ERROR(load(good + "YWJj 256\n"), AllOf(HasSubstr("line 258"), HasSubstr("rank 256 is there twice")));
  for (const char* line : {"YWJj\n", "YWJj 2x\n", "YWJj -2\n", "YWJ 300\n", "Y*Jj 300\n", " 300\n", "==== 300\n",
                           "YWJj 99999999999999999999\n", "YWJj 2097152\n"})
    EXPECT_USER_ERROR(load(good + line), AllOf(HasSubstr("cl100k_base.tiktoken"), HasSubstr("line 258")));
  EXPECT_USER_ERROR(load(good + base64(std::string(257, 'a')) + " 300\n"), HasSubstr("257 bytes; at most 256"));
  EXPECT_USER_ERROR(load(good.substr(7)), HasSubstr("the byte 0 alone"));
  EXPECT_USER_ERROR(parse_tokenizer("filigree tiktoken q100_base\n" + good, "x"),
                    HasSubstr("does not name a tiktoken"));
  EXPECT_USER_ERROR(parse_tokenizer(good, "x"), HasSubstr("does not name a tiktoken"));
}

}  // namespace
}  // namespace filigree
