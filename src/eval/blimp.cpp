#include "eval/blimp.h"

#include <map>
#include <nlohmann/json.hpp>

#include "eval/log_likelihood.h"
#include "eval/task_files.h"

namespace filigree {
namespace {

constexpr const char* kExpected = "BLiMP's lines have the texts sentence_good, sentence_bad and linguistics_term";

// "blimp.tar.xz: blimp/anaphor_gender_agreement.jsonl" and the like.
std::string set_name(const NamedFile& file) {
  std::string name = std::filesystem::path(file.name).filename().string();
  return name.substr(0, name.rfind(".jsonl"));
}

Continuation sentence(const Tokenizer& tokenizer, const std::string& text) {
  Continuation result;
  result.ids = {tokenizer.end_of_text()};
  for (const std::int32_t id : tokenizer.encode(text)) result.ids.push_back(id);
  return result;
}

BlimpMean mean_of(std::string name, const std::vector<const BlimpSet*>& sets) {
  BlimpMean mean{.name = std::move(name), .sets = static_cast<std::int64_t>(sets.size())};
  for (const BlimpSet* set : sets) mean.accuracy += set->accuracy();
  mean.accuracy /= static_cast<double>(sets.size());
  return mean;
}

}  // namespace

std::vector<MinimalPairs> read_minimal_pairs(const std::filesystem::path& path) {
  std::vector<MinimalPairs> sets;
  for (const NamedFile& file : read_task_files(path)) {
    MinimalPairs set{.name = set_name(file), .phenomenon = "", .pairs = {}};
    for_each_json_line(file, [&](const nlohmann::json& line, const std::string& where) {
      set.pairs.push_back(
          {text_field(line, "sentence_good", where, kExpected), text_field(line, "sentence_bad", where, kExpected)});
      set.phenomenon = text_field(line, "linguistics_term", where, kExpected);
    });
    require_user(!set.pairs.empty(), file.name + ": this file has no lines; " + kExpected);
    sets.push_back(std::move(set));
  }
  return sets;
}

BlimpResult blimp(Device& device, Transformer& model, Activations& activations, const Tokenizer& tokenizer,
                  const std::vector<MinimalPairs>& sets,
                  const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  std::vector<Continuation> sentences;  // good, bad, good, ...
  for (const MinimalPairs& set : sets)
    for (const MinimalPair& pair : set.pairs)
      for (const std::string* text : {&pair.good, &pair.bad}) sentences.push_back(sentence(tokenizer, *text));
  const std::vector<double> scores = log_likelihoods(device, model, activations, sentences, progress);

  BlimpResult result;
  for (const Continuation& each : sentences)
    if (static_cast<std::int64_t>(each.ids.size()) - 1 > activations.sequence()) ++result.long_sentences;
  std::size_t next = 0;
  for (const MinimalPairs& set : sets) {
    BlimpSet row{.name = set.name, .phenomenon = set.phenomenon, .pairs = static_cast<std::int64_t>(set.pairs.size())};
    for (std::size_t pair = 0; pair < set.pairs.size(); ++pair, next += 2) {
      if (scores[next] > scores[next + 1]) ++row.right;
      if (scores[next] == scores[next + 1]) ++row.ties;
    }
    result.pairs += row.pairs;
    result.ties += row.ties;
    result.sets.push_back(std::move(row));
  }
  std::map<std::string, std::vector<const BlimpSet*>> phenomena;
  std::vector<const BlimpSet*> all;
  for (const BlimpSet& set : result.sets) {
    phenomena[set.phenomenon].push_back(&set);
    all.push_back(&set);
  }
  for (const auto& [name, members] : phenomena) result.phenomena.push_back(mean_of(name, members));
  result.overall = mean_of("all", all);
  return result;
}

}  // namespace filigree
