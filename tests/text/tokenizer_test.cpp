#include "text/tokenizer.h"

#include <vector>

#include "text/tokenizer_json.h"
#include "text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BytesTokenizer, IsExactForAnyBytes) {
  const auto tokenizer = bytes_tokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const auto ids = tokenizer->encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<std::size_t>(byte)], byte);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_TRUE(tokenizer->encode("").empty());
}

TEST(BytesTokenizer, EndOfTextIsNothingAndItsMarkerIsText) {
  const auto tokenizer = bytes_tokenizer();
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{'a', 256, 'b'}), "ab");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(kEndOfTextMarker)), kEndOfTextMarker);
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{257}), Error);
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{-1}), Error);
}

TEST(BytesTokenizer, IsExportedAsTokenizerJson) {
  const auto tokenizer = bytes_tokenizer();
  const std::string json = tokenizer->huggingface_files().at("tokenizer.json");
  EXPECT_EQ(parse_tokenizer(json, "exported")->identity(), tokenizer->identity());
  const auto exported = parse_tokenizer_json(json, "exported");  // as others read it
  EXPECT_EQ(exported->vocab_size(), 257);
  EXPECT_EQ(exported->end_of_text(), 256);
  const std::string text = "It's caf\xC3\xA9 \xFF\n";
  EXPECT_EQ(exported->encode(text), tokenizer->encode(text));
}

TEST(BytesTokenizer, SavesAndLoads) {
  const testing::TemporaryFolder folder;
  const auto tokenizer = bytes_tokenizer();
  tokenizer->save(folder.path() / kTokenizerFile);
  EXPECT_EQ(load_tokenizer(folder.path() / kTokenizerFile)->identity(), tokenizer->identity());
  EXPECT_EQ(load_tokenizer(folder.path())->name(), "bytes");  // a data folder or a run
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TokenizerSpec, KnowsItsThreeForms) {
  EXPECT_EQ(parse_tokenizer_spec("bytes").kind, TokenizerSpec::Kind::bytes);
  EXPECT_EQ(parse_tokenizer_spec("spm:4096").kind, TokenizerSpec::Kind::train_sentencepiece);
  EXPECT_EQ(parse_tokenizer_spec("spm:4096").vocab, 4096);
  EXPECT_EQ(parse_tokenizer_spec("models/spm.model").file, "models/spm.model");
  for (const std::string spec : {"spm:", "spm:12", "spm:4k", "spm:-5", "spm:99999999999999999999", "spm:258"})
    EXPECT_USER_ERROR(parse_tokenizer_spec(spec),
                      AllOf(HasSubstr(spec), HasSubstr("from 259"), HasSubstr("to 1000000")));
  EXPECT_USER_ERROR(parse_tokenizer_spec(""), HasSubstr("spm:VOCAB_SIZE"));
}

TEST(LoadTokenizer, SaysWhatIsWrongWithAFile) {
  const testing::TemporaryFolder folder;
  const auto path = [&](const char* name) { return folder.path() / name; };
  EXPECT_USER_ERROR(load_tokenizer(path("no.model")), AllOf(HasSubstr("no.model"), HasSubstr("there is no such file")));
  EXPECT_USER_ERROR(load_tokenizer(folder.path()), HasSubstr("holds no tokenizer.model, tokenizer.json, or"));
  EXPECT_USER_ERROR(load_tokenizer(testing::write_text(path("empty"), "")), HasSubstr("is empty"));
  EXPECT_USER_ERROR(load_tokenizer(testing::write_text(path("notes.txt"), "some notes")),
                    AllOf(HasSubstr("notes.txt"), HasSubstr("not a SentencePiece model")));
  EXPECT_USER_ERROR(load_tokenizer(testing::write_text(path("t.json"), "{\"model\": {}}")),
                    AllOf(HasSubstr("t.json"), HasSubstr("pre_tokenizer")));
  EXPECT_USER_ERROR(load_tokenizer(testing::write_text(path("vocab.json"), "{\"a\": 0}")),
                    AllOf(HasSubstr("vocab.json"), HasSubstr("name the folder that holds it and merges.txt")));
  EXPECT_USER_ERROR(load_tokenizer(testing::write_text(path("merges.txt"), "#version: 0.2\n")),
                    HasSubstr("name the folder that holds it and vocab.json"));
}

}  // namespace
}  // namespace filigree
