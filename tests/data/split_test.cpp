#include "data/split.h"

#include <string>
#include <vector>

#include "text/text_support.h"

namespace filigree {
namespace {

struct Halves {
  std::string train, val;
  std::int64_t train_documents = 0, val_documents = 0;
};

class SplitTest : public ::testing::Test {
 protected:
  Halves split(const std::string& text, double fraction) const {
    const TextFiles files = find_text({testing::write_text(folder_.path() / "a.txt", text)});
    TextSize size;
    DocumentReader reader(files);
    for (TextPiece piece; reader.next(piece);) {
      size.bytes += static_cast<std::int64_t>(piece.text.size());
      size.documents += piece.ends_document ? 1 : 0;
    }
    Halves halves;
    SplitReader split_reader(files, std::nullopt, SplitRule(size, fraction));
    for (SplitPiece part; split_reader.next(part);) {
      (part.split == Split::val ? halves.val : halves.train) += part.piece.text + (part.piece.ends_document ? "|" : "");
      (part.split == Split::val ? halves.val_documents : halves.train_documents) += part.begins_document ? 1 : 0;
    }
    EXPECT_EQ(split_reader.position(), files.bytes);
    return halves;
  }
  testing::TemporaryFolder folder_;
};

TEST_F(SplitTest, OneDocumentIsCutNearItsEndAtALine) {
  const std::string text = testing::sample_text(5000);
  const Halves halves = split(text, 0.05);
  EXPECT_EQ(halves.train + halves.val, text + "|");
  EXPECT_EQ(halves.train.back(), '\n');
  EXPECT_NEAR(static_cast<double>(halves.val.size()), 0.05 * static_cast<double>(text.size()), 150);
  EXPECT_EQ(halves.train_documents, 1);
  EXPECT_EQ(halves.val_documents, 1);
}

TEST_F(SplitTest, OneSentenceIsCutAtAWord) {
  const Halves halves = split("The quick brown fox jumps over the lazy dog.", 0.05);
  EXPECT_EQ(halves.train, "The quick brown fox jumps");
  EXPECT_EQ(halves.val, " over the lazy dog.|");
}

TEST_F(SplitTest, CharactersStayWhole) {
  const Halves halves = split("\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC", 0.4);
  EXPECT_EQ(halves.train, "\xE2\x82\xAC");
  EXPECT_EQ(halves.val, "\xE2\x82\xAC\xE2\x82\xAC|");
  const Halves one = split("\xE2\x82\xAC", 0.5);  // nothing to divide: its end is all there is to validate on
  EXPECT_EQ(one.train + one.val, "\xE2\x82\xAC|");
  EXPECT_NE(one.train, "");
}

TEST_F(SplitTest, FewDocumentsGiveTheLastOnes) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "document number " + std::to_string(i + 10) + "\n<|endoftext|>\n";
  const Halves halves = split(text, 0.1);
  EXPECT_EQ(halves.val, "document number 28\n|document number 29\n|");
  EXPECT_EQ(halves.val_documents, 2);
  EXPECT_EQ(halves.train_documents, 18);
}

TEST_F(SplitTest, ManyDocumentsAreChosenAsAWhole) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "document number " + std::to_string(i) + "\n<|endoftext|>\n";
  const Halves halves = split(text, 0.05);
  EXPECT_EQ(halves.val_documents, 20);
  EXPECT_EQ(halves.train_documents, 380);
  EXPECT_EQ(std::count(halves.val.begin(), halves.val.end(), '|'), 20);
  EXPECT_EQ(halves.val.find("number 399"), halves.val.find("number 398"));  // neither: not the end of the text
  EXPECT_EQ(split(text, 0.05).val, halves.val);
  EXPECT_EQ(split(text, 0.0001).val_documents, 1);
}

TEST_F(SplitTest, NothingIsHeldOutOfAShareOfZero) {
  const std::string text = testing::sample_text(500);
  EXPECT_EQ(split(text, 0.0).train, text + "|");
  EXPECT_EQ(split(text, 0.0).val, "");
}

TEST_F(SplitTest, LongTextIsCutInsideItsPieces) {
  const std::string text = testing::sample_text(400000);  // several pieces
  for (const double fraction : {0.05, 0.5}) {
    const Halves halves = split(text, fraction);
    EXPECT_TRUE(halves.train + halves.val == text + "|");
    EXPECT_NEAR(static_cast<double>(halves.val.size()) / static_cast<double>(text.size()), fraction, 0.002);
  }
}

}  // namespace
}  // namespace filigree
