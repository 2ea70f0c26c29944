// BLiMP (Warstadt et al., arXiv 1912.00582): pairs of sentences that differ in little, of which one is grammatical. A
// model is right about a pair when it finds that one more probable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "text/tokenizer.h"

namespace filigree {

struct MinimalPair {
  std::string good, bad;
};

struct MinimalPairs {
  std::string name;        // of its file, e.g. "anaphor_gender_agreement"
  std::string phenomenon;  // e.g. "anaphor_agreement"
  std::vector<MinimalPair> pairs;
};

// One set a .jsonl file of a folder or archive (task_files.h), in the order of their names; a line is an object with
// texts under sentence_good, sentence_bad and linguistics_term. Throws UserError naming file and line where it is not,
// and where a set is empty.
std::vector<MinimalPairs> read_minimal_pairs(const std::filesystem::path& path);

struct BlimpSet {
  std::string name, phenomenon;
  std::int64_t pairs = 0;
  std::int64_t right = 0;
  std::int64_t ties = 0;  // equal probabilities: not right

  double accuracy() const { return static_cast<double>(right) / static_cast<double>(pairs); }
};

struct BlimpMean {
  std::string name;
  std::int64_t sets = 0;
  double accuracy = 0.0;  // mean of its sets' accuracies
};

struct BlimpResult {
  std::vector<BlimpSet> sets;
  std::vector<BlimpMean> phenomena;  // in the order of their names
  BlimpMean overall;
  std::int64_t pairs = 0, ties = 0;
  std::int64_t long_sentences = 0;  // that the model's context does not hold: see log_likelihoods
};

// A sentence is scored as a document's beginning: the sum over all of its tokens of their log-probability, the first
// one given the end-of-text token. The whole sentence counts, without division by its length.
BlimpResult blimp(Device& device, Transformer& model, Activations& activations, const Tokenizer& tokenizer,
                  const std::vector<MinimalPairs>& sets,
                  const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace filigree
