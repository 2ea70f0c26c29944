#include "eval/blimp.h"

#include <fstream>

#include "eval/log_likelihood.h"
#include "kernels/elementwise/elementwise.h"
#include "model/tiny_models.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

std::string line(const std::string& good, const std::string& bad, const std::string& term) {
  return R"({"sentence_good": ")" + good + R"(", "sentence_bad": ")" + bad + R"(", "linguistics_term": ")" + term +
         "\"}\n";
}

std::string refusal(const fs::path& path) {
  try {
    read_minimal_pairs(path);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(MinimalPairs, AreReadFromAFolder) {
  const testing::TemporaryFolder folder;
  fs::create_directories(folder.path() / "data");
  std::ofstream(folder.path() / "data" / "b_set.jsonl") << line("Good.", "Bad.", "x") << "\n" << line("A", "B", "x");
  std::ofstream(folder.path() / "data" / "a_set.jsonl") << line("C \\u00e9", "D", "y");
  std::ofstream(folder.path() / "data" / "README.md") << "not data";
  const std::vector<MinimalPairs> sets = read_minimal_pairs(folder.path());
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].name, "a_set");
  EXPECT_EQ(sets[0].phenomenon, "y");
  EXPECT_EQ(sets[0].pairs.at(0).good, "C \xC3\xA9");
  EXPECT_EQ(sets[1].name, "b_set");
  ASSERT_EQ(sets[1].pairs.size(), 2u);
  EXPECT_EQ(sets[1].pairs[0].bad, "Bad.");
}

TEST(MinimalPairs, MistakesNameFileAndLine) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "set.jsonl";
  const std::string fine = line("Good.", "Bad.", "x");
  const auto says = [&](const std::string& text, const std::string& part) {
    std::ofstream(file) << text;
    const std::string message = refusal(folder.path());
    EXPECT_NE(message.find(part), std::string::npos) << message;
    return message;
  };
  says(fine + "\n" + "{\"sentence_good\": ", "set.jsonl line 3: this line is not valid JSON");
  says(fine + "[1]\n", "set.jsonl line 2: a JSON object is needed, this is array");
  says(fine + fine + "{\"text\": \"x\"}\n", "set.jsonl line 3: it has no text under \"sentence_good\"");
  EXPECT_NE(says("{\"sentence_good\": \"x\", \"sentence_bad\": 4}\n", "no text under \"sentence_bad\"")
                .find("linguistics_term"),
            std::string::npos);
  says("\n", "set.jsonl: this file has no lines");
  EXPECT_NE(refusal(folder.path() / "missing").find("there is no such file or folder"), std::string::npos);
  EXPECT_NE(refusal(folder.path() / "missing.tar.xz").find("there is no such file or folder"), std::string::npos);
  fs::remove(file);
  EXPECT_NE(refusal(folder.path()).find("holds no .jsonl file"), std::string::npos);
  std::ofstream(folder.path() / "pairs.zip") << "PK";
  EXPECT_NE(refusal(folder.path() / "pairs.zip").find("expected a folder, a tar archive"), std::string::npos);
}

// The model's score is what log_likelihoods says of the sentences behind an end-of-text; that is compared with plain
// passes in log_likelihood_test.
TEST(Blimp, CountsTheMoreProbableSentence) {
  const auto device = Device::cpu();
  Config config = testing::tiny_config("gpt2");
  const auto tokenizer = bytes_tokenizer();
  config.model.vocab = tokenizer->vocab_size();
  Transformer model(*device, config, Mode::inference, false);
  model.initialize(*device);
  for (Parameter* parameter : model.parameters())
    if (parameter->name() == "embedding.tokens") scale(*device, parameter->values(), 50.0f);
  Activations activations(*device, config.model, DType::f32, 3, 16, Recompute::inference);

  const auto score = [&](const std::string& text) {
    Continuation sentence{{tokenizer->end_of_text()}, 1};
    for (const char c : text) sentence.ids.push_back(static_cast<unsigned char>(c));
    return log_likelihoods(*device, model, activations, std::vector<Continuation>{sentence}).front();
  };
  std::vector<std::string> texts = {"one", "another", "a third one", "the fourth", "five", "six."};
  std::sort(texts.begin(), texts.end(), [&](const auto& a, const auto& b) { return score(a) > score(b); });

  const std::vector<MinimalPairs> sets = {
      {"first", "p", {{texts[0], texts[1]}, {texts[2], texts[5]}, {texts[4], texts[3]}, {texts[2], texts[2]}}},
      {"second", "p", {{texts[0], texts[5]}}},
      {"third", "q", {{texts[5], texts[0]}, {"far more than sixteen", texts[1]}}}};
  const BlimpResult result = blimp(*device, model, activations, *tokenizer, sets);
  ASSERT_EQ(result.sets.size(), 3u);
  EXPECT_EQ(result.sets[0].right, 2) << "a tie is not right";
  EXPECT_EQ(result.sets[0].ties, 1);
  EXPECT_EQ(result.sets[1].right, 1);
  EXPECT_EQ(result.sets[2].right, score("far more than sixteen") > score(texts[1]) ? 1 : 0);
  ASSERT_EQ(result.phenomena.size(), 2u);
  EXPECT_EQ(result.phenomena[0].name, "p");
  EXPECT_EQ(result.phenomena[0].sets, 2);
  EXPECT_DOUBLE_EQ(result.phenomena[0].accuracy, (0.5 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(result.overall.accuracy, (0.5 + 1.0 + result.sets[2].accuracy()) / 3);
  EXPECT_EQ(result.pairs, 7);
  EXPECT_EQ(result.ties, 1);
  EXPECT_EQ(result.long_sentences, 1);
}

}  // namespace
}  // namespace filigree
