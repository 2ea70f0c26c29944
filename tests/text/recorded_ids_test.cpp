// Ids that tokenizers and tiktoken have for strings in tests/golden/tokenizers, made by
// scripts/golden/make_tokenizers.py.
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/documents.h"
#include "text/tokenizer.h"
#include "text_support.h"

namespace filigree {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(FILIGREE_SOURCE_DIR) / "tests/golden/tokenizers";

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < hex.size(); at += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
  return bytes;
}

void expect_recorded(const Tokenizer& tokenizer, const std::string& name) {
  const nlohmann::json cases = nlohmann::json::parse(std::ifstream(kFolder / "cases.json"));
  int compared = 0;
  for (std::size_t i = 0; i < cases["texts"].size(); ++i) {
    const std::string text = bytes_of_hex(cases["texts"][i].get<std::string>());
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    EXPECT_EQ(tokenizer.decode(ids), text);
    if (cases[name][i].is_null()) continue;  // the library takes no such bytes
    EXPECT_EQ(ids, cases[name][i].get<std::vector<std::int32_t>>()) << name << " on " << ::testing::PrintToString(text);
    ++compared;
  }
  EXPECT_GE(compared, 80) << name;
}

TEST(RecordedIds, OfGpt2sFiles) {
  expect_recorded(*load_tokenizer(kFolder), "gpt2");
}

TEST(RecordedIds, OfLlama3sTokenizerJson) {
  expect_recorded(*load_tokenizer(kFolder / "llama3.json"), "llama3");
}

TEST(RecordedIds, OfTiktokensEncodingsAndOfTheirExport) {
  const testing::TemporaryFolder folder;
  for (const std::string name : {"r50k_base", "cl100k_base", "o200k_base"}) {
    std::filesystem::copy_file(kFolder / "ranks.tiktoken", folder.path() / (name + ".tiktoken"));
    const auto tokenizer = load_tokenizer(folder.path() / (name + ".tiktoken"));
    expect_recorded(*tokenizer, name);
    expect_recorded(*parse_tokenizer(tokenizer->huggingface_files().at("tokenizer.json"), "exported"), name);
  }
}

TEST(RecordedIds, PiecesOfALongDocumentHaveTheIdsOfTheWhole) {
  const testing::TemporaryFolder folder;
  std::string text;
  while (text.size() < 3000000) text += testing::sample_text(50, static_cast<std::uint32_t>(text.size())) + "\n \n  ";
  testing::write_text(folder.path() / "long.txt", text);
  const auto tokenizer = load_tokenizer(kFolder / "llama3.json");
  DocumentReader reader(find_text({folder.path() / "long.txt"}));
  std::vector<std::int32_t> ids;
  int pieces = 0;
  for (TextPiece piece; reader.next(piece); ++pieces) {
    const std::vector<std::int32_t> part = tokenizer->encode(piece.text);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  EXPECT_GT(pieces, 2);
  EXPECT_TRUE(ids == tokenizer->encode(text));
}

}  // namespace
}  // namespace filigree
