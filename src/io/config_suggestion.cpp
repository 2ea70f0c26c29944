// What to say of a key that does not exist.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "io/config_keys.h"

namespace filigree {

namespace {

// What other programs call our keys.
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"learning_rate", "train.lr"},
    {"max_lr", "train.lr"},
    {"batch_size", "train.batch_tokens"},
    {"iterations", "train.steps"},
    {"max_steps", "train.steps"},
    {"grad_clip", "train.clip"},
    {"depth", "model.layers"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_layers", "model.layers"},
    {"dim", "model.width"},
    {"hidden", "model.width"},
    {"hidden_size", "model.width"},
    {"d_model", "model.width"},
    {"n_embd", "model.width"},
    {"size", "model.preset"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"sequence_length", "model.context"},
    {"block_size", "model.context"},
    {"dtype", "run.precision"},
    {"sparsity", "weights.pattern"},
};

std::string_view section_of(std::string_view name) {
  return name.substr(0, name.find('.'));
}
std::string_view leaf_of(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

// How far the last part of a key is from another; nothing near is `kFar`.
constexpr std::size_t kFar = 1000;
std::size_t distance_between(std::string_view wrong, std::string_view right) {
  // Two mistakes in a word of four letters or more: of shorter ones little would be left.
  const std::size_t most = std::min(wrong.size(), right.size()) < 4 ? 1 : 2;
  const std::size_t lengths = wrong.size() > right.size() ? wrong.size() - right.size() : right.size() - wrong.size();
  const std::size_t distance = lengths > most ? kFar : edit_distance(wrong, right);
  if (distance <= most) return distance;
  const bool contained = std::min(wrong.size(), right.size()) >= 3 &&
                         (wrong.find(right) != std::string_view::npos || right.find(wrong) != std::string_view::npos);
  return contained ? most + lengths : kFar;
}

}  // namespace

std::string_view closest_config_key(std::string_view name) {
  for (const auto& [synonym, key] : kSynonyms)
    if (leaf_of(name) == synonym) return key;
  std::string_view best;
  std::size_t least = kFar;
  for (const ConfigKey& key : config_keys()) {
    const std::size_t distance = distance_between(leaf_of(name), leaf_of(key.name));
    // Twice the distance, and one more in another section: of equals the key of the same section is nearer.
    const std::size_t weighted = 2 * distance + (section_of(name) == section_of(key.name) ? 0 : 1);
    if (distance < kFar && weighted < least) best = key.name, least = weighted;
  }
  return best;
}

std::string unknown_key_advice(std::string_view name) {
  if (const std::string_view closest = closest_config_key(name); !closest.empty())
    return "the closest known key is " + std::string(closest);
  std::string keys, sections;
  std::string_view last;
  for (const ConfigKey& key : config_keys()) {
    const std::string_view section = section_of(key.name);
    if (section == section_of(name)) keys += (keys.empty() ? "" : ", ") + std::string(leaf_of(key.name));
    if (section != last) sections += (sections.empty() ? "" : ", ") + std::string(section);
    last = section;
  }
  return keys.empty() ? "the sections are " + sections : std::string("[").append(section_of(name)) + "] has " + keys;
}

}  // namespace filigree
