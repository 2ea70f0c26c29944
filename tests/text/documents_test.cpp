#include "text/documents.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "archive_support.h"
#include "text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Paths = std::vector<std::filesystem::path>;

std::vector<std::string> documents(const Paths& paths) {
  DocumentReader reader(find_text(paths));
  std::vector<std::string> all;
  std::string current;
  for (TextPiece piece; reader.next(piece);) {
    current += piece.text;
    if (!piece.ends_document) continue;
    all.push_back(current);
    current.clear();
  }
  EXPECT_EQ(current, "");  // the last piece ends its document
  EXPECT_EQ(reader.position(), find_text(paths).bytes);
  return all;
}

class Documents : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    return testing::write_text(folder_.path() / name, text);
  }
  std::vector<std::string> of(std::string_view text) const { return documents({write("text.txt", text)}); }
  testing::TemporaryFolder folder_;
};

TEST_F(Documents, EndAtSeparatorLinesAndAtTheEnd) {
  EXPECT_THAT(of("one\ntwo\n<|endoftext|>\nthree\n"), ElementsAre("one\ntwo\n", "three\n"));
  EXPECT_THAT(of("one\n<|endoftext|>"), ElementsAre("one\n"));
  EXPECT_THAT(of("one\r\n<|endoftext|>\r\ntwo"), ElementsAre("one\r\n", "two"));
  EXPECT_THAT(of("<|endoftext|>\n<|endoftext|>\none\n<|endoftext|>\n\n \n<|endoftext|>\n"), ElementsAre("one\n"));
  EXPECT_THAT(of("a"), ElementsAre("a"));
}

TEST_F(Documents, AMarkerInsideALineIsText) {
  EXPECT_THAT(of("one <|endoftext|>\ntwo"), ElementsAre("one <|endoftext|>\ntwo"));
  EXPECT_THAT(of("<|endoftext|> one\n"), ElementsAre("<|endoftext|> one\n"));
  EXPECT_THAT(of("one\n<|endoftext|>two\n<|endoftext|>\n"), ElementsAre("one\n<|endoftext|>two\n"));
}

TEST_F(Documents, AByteOrderMarkIsDropped) {
  EXPECT_THAT(of("\xEF\xBB\xBFone"), ElementsAre("one"));
  EXPECT_THAT(of("\xEF\xBB\xBF<|endoftext|>\none"), ElementsAre("one"));
}

TEST_F(Documents, LongOnesComeInPiecesCutBetweenWords) {
  const std::string text = testing::sample_text(700000);  // about 4 MB
  DocumentReader reader(find_text({write("long.txt", text)}));
  std::string whole;
  int pieces = 0;
  for (TextPiece piece; reader.next(piece); ++pieces) {
    EXPECT_LE(piece.text.size(), 1u << 20);
    if (!whole.empty()) {
      EXPECT_EQ(piece.text[0], ' ');
      EXPECT_TRUE(std::isalpha(whole.back()) && std::isalpha(piece.text[1]));
    }
    whole += piece.text;
    EXPECT_EQ(piece.ends_document, whole.size() == text.size());
  }
  EXPECT_GT(pieces, 3);
  EXPECT_TRUE(whole == text);
}

TEST_F(Documents, LongOnesWithoutWordsAreCutAtLineEnds) {
  std::string text;
  for (int i = 0; text.size() < 4000000; ++i) text += std::to_string(i) + ", " + std::to_string(i % 1001) + "\n";
  DocumentReader reader(find_text({write("long.txt", text)}));
  std::string whole;
  int pieces = 0;
  for (TextPiece piece; reader.next(piece); ++pieces) {
    EXPECT_LE(piece.text.size(), 1u << 20);
    whole += piece.text;
    EXPECT_EQ(piece.ends_document, whole.size() == text.size());
    EXPECT_TRUE(piece.ends_document || piece.text.back() == '\n');
  }
  EXPECT_GT(pieces, 3);
  EXPECT_TRUE(whole == text);
}

TEST_F(Documents, LongLinesAreCutAtSpacesOrBetweenCharacters) {
  std::string spaced, solid;
  while (spaced.size() < 2500000) spaced += "word after word \xE2\x82\xAC ";
  while (solid.size() < 2500000) solid += "\xE2\x82\xAC";
  for (const std::string* each : {&spaced, &solid}) {
    const std::string& text = *each;
    DocumentReader reader(find_text({write("long.txt", text)}));
    std::string whole;
    for (TextPiece piece; reader.next(piece);) {
      EXPECT_TRUE(whole.empty() || each == &solid || piece.text.front() == ' ');
      EXPECT_NE(static_cast<unsigned char>(piece.text.front()) & 0xC0u, 0x80u);  // no inside of a character
      whole += piece.text;
    }
    EXPECT_TRUE(whole == text);
  }
}

TEST_F(Documents, ManySmallOnesAcrossBuffers) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; text.size() < 3000000; ++i) {
    expected.push_back("document " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 97), '.') + "\n");
    text += expected.back() + "<|endoftext|>\n";
  }
  EXPECT_TRUE(of(text) == expected);
}

TEST_F(Documents, OfJsonLines) {
  EXPECT_THAT(documents({write("a.jsonl",
                               "{\"text\": \"one\\ntwo\", \"id\": 7}\n\n{\"text\":\"\"}\n{\"text\":\"caf\\u00e9\"}")}),
              ElementsAre("one\ntwo", "caf\xC3\xA9"));
  std::string many;
  std::vector<std::string> expected;
  for (int i = 0; many.size() < 2500000; ++i) {
    expected.push_back(std::string(static_cast<std::size_t>(i % 3000 + 1), 'x'));
    many += "{\"text\":\"" + expected.back() + "\"}\r\n";
  }
  EXPECT_TRUE(documents({write("b.jsonl", many)}) == expected);
  EXPECT_THAT(documents({write("c.jsonl", "{\"text\":\"" + std::string(3000000, 'y') + "\"}\n")}),
              ElementsAre(std::string(3000000, 'y')));
}

TEST_F(Documents, OfEveryArchive) {
  write("all/a.txt.gz", testing::gzip("one\n<|endoftext|>\ntwo"));
  write("all/b.jsonl.xz", testing::xz("{\"text\": \"three\"}\n"));
  write("all/c.zst", testing::zstd("four"));
  write("all/d.TXT", "five");
  EXPECT_THAT(documents({folder_.path() / "all"}), ElementsAre("one\n", "two", "three", "four", "five"));
}

TEST_F(Documents, OfFoldersAreSortedAndOthersSkipped) {
  write("f/z.txt", "z");
  write("f/b/2.txt", "2");
  write("f/b/10.txt", "10");
  write("f/a.csv", "no");
  write("f/a.csv.gz", "no");
  write("f/b/noextension", "no");
  const TextFiles found = find_text({folder_.path() / "f"});
  EXPECT_EQ(found.skipped, 3);
  EXPECT_EQ(found.bytes, 4);
  EXPECT_THAT(documents({folder_.path() / "f"}), ElementsAre("10", "2", "z"));
}

TEST_F(Documents, ANamedFileOfAnyKindIsText) {
  EXPECT_THAT(documents({write("notes.md", "# notes"), write("README", "read")}), ElementsAre("# notes", "read"));
}

TEST_F(Documents, MissingPathsAndEmptyFoldersSaySo) {
  EXPECT_USER_ERROR(find_text({folder_.path() / "none"}),
                    AllOf(HasSubstr("none"), HasSubstr("no such file or folder")));
  write("g/a.csv", "no");
  EXPECT_USER_ERROR(find_text({folder_.path() / "g"}), AllOf(HasSubstr("/g: "), HasSubstr("1 files of other kinds")));
}

TEST_F(Documents, NoTextAtAllSaysSo) {
  EXPECT_USER_ERROR(of(""), AllOf(HasSubstr("text.txt"), HasSubstr("no text here")));
  EXPECT_USER_ERROR(of(" \n\n<|endoftext|>\n\t\n"), HasSubstr("no text here"));
  EXPECT_USER_ERROR(documents({write("a.jsonl", "\n"), write("b.txt", ""), write("c.txt", "")}),
                    HasSubstr("2 other files"));
  EXPECT_THAT(documents({write("a.txt", ""), write("b.txt", "b")}), ElementsAre("b"));  // one empty file is no mistake
}

TEST_F(Documents, BinaryFilesSaySoWithThePlace) {
  EXPECT_USER_ERROR(of(std::string_view("first line\nsec\0nd line", 22)),
                    AllOf(HasSubstr("text.txt"), HasSubstr("NUL byte at offset 14 (line 2)")));
  EXPECT_USER_ERROR(of("\xFF\xFEh\0i\0"), HasSubstr("UTF-16"));
  std::string late = testing::sample_text(400000);
  const std::size_t offset = late.size();
  const auto line = std::count(late.begin(), late.end(), '\n') + 1;
  late += '\0';
  EXPECT_USER_ERROR(of(late), HasSubstr("offset " + std::to_string(offset) + " (line " + std::to_string(line) + ")"));
}

TEST_F(Documents, OtherEncodingsSaySo) {
  std::string latin = "line one\n";
  for (int i = 0; i < 10; ++i) latin += "caf\xE9 cr\xE8me\n";
  EXPECT_USER_ERROR(of(latin),
                    AllOf(HasSubstr("not UTF-8"), HasSubstr("20 of the first 119 bytes"), HasSubstr("line 2")));
  EXPECT_THAT(of("cut at the end \xE2\x82"), ElementsAre("cut at the end \xE2\x82"));  // kept as it is
}

TEST_F(Documents, BadJsonLinesSayWhichAndWhy) {
  const auto message = [&](const std::string& line) {
    documents({write("a.jsonl", "{\"text\": \"fine\"}\n" + line + "\n")});
  };
  EXPECT_USER_ERROR(message("{\"text\": "), AllOf(HasSubstr("a.jsonl line 2"), HasSubstr("not valid JSON")));
  EXPECT_USER_ERROR(message("{\"text\": \"\xFF\"}"), HasSubstr("not valid JSON in UTF-8"));
  EXPECT_USER_ERROR(message("{\"content\": \"x\"}"), AllOf(HasSubstr("line 2"), HasSubstr("an object without it")));
  EXPECT_USER_ERROR(message("{\"text\": 5}"), HasSubstr("line 2"));
  EXPECT_USER_ERROR(message("[1, 2]"), HasSubstr("array"));
}

}  // namespace
}  // namespace filigree
