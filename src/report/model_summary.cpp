#include "report/model_summary.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "report/format.h"

namespace filigree {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// "blocks.12.mlp.up" -> ("blocks.*.mlp.up", 12). Only the first part of digits alone is taken out: that is the block.
std::pair<std::string, std::int64_t> split_number(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    const bool digits = !part.empty() && part.size() < 10 &&
                        std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (digits) return {name.substr(0, begin) + "*" + name.substr(end), std::stoll(part)};
    begin = end + 1;
  }
  return {name, -1};
}

// {0, 1, 2, 5} -> "0-2,5".
std::string ranges(std::vector<std::int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[first]);
    if (last > first) text.append("-").append(std::to_string(numbers[last]));
    first = last + 1;
  }
  return text;
}

}  // namespace

std::int64_t ModelSummary::bytes() const {
  std::int64_t sum = 0;
  for (const MemorySummary& row : memory) sum += row.bytes;
  return sum;
}

std::int64_t ModelSummary::dense_bytes() const {
  std::int64_t sum = 0;
  for (const MemorySummary& row : memory) sum += row.dense_bytes;
  return sum;
}

std::string workspace_note(const ModelSummary& summary) {
  return "On top comes the workspace that all layers share: " +
         (summary.workspace_bytes > 0 ? format_bytes(static_cast<double>(summary.workspace_bytes)) + " so far."
                                      : "its size is known after a run's first step.");
}

std::string dense_phase_note(const ModelSummary& summary) {
  if (summary.dense_steps == 0) return "";
  return "This is the sparse phase. Before it, in the first " + format_integer(summary.dense_steps) +
         " steps, every layer is dense and the total is " + format_bytes(static_cast<double>(summary.dense_bytes())) +
         (summary.dense_bytes() > summary.bytes() ? ": the run's peak." : ".");
}

std::string to_json(const ModelSummary& summary) {
  ordered_json layers = ordered_json::array();
  for (const LayerSummary& layer : summary.layers) {
    layers.push_back({{"name", layer.name},
                      {"rows", layer.rows},
                      {"columns", layer.columns},
                      {"method", layer.method},
                      {"pattern", layer.pattern},
                      {"density", layer.density},
                      {"backend", layer.backend}});
  }
  ordered_json memory = ordered_json::object();
  for (const MemorySummary& row : summary.memory)
    memory[row.purpose] = {{"bytes", row.bytes}, {"dense_bytes", row.dense_bytes}};
  memory["sparse_layers_ratio"] = summary.sparse_layers_ratio;
  if (summary.workspace_bytes > 0) memory["workspace_bytes"] = summary.workspace_bytes;
  ordered_json object = {{"parameters", {{"dense", summary.dense_parameters}, {"kept", summary.kept_parameters}}},
                         {"layers", layers},
                         {"memory", memory}};
  if (summary.dense_steps > 0)
    object["dense_phase"] = {{"steps", summary.dense_steps}, {"bytes", summary.dense_bytes()}};
  return object.dump(2) + "\n";
}

ModelSummary parse_model_summary(const std::string& text) try {
  const ordered_json object = ordered_json::parse(text);  // ordered: purposes stay in the order of the file
  ModelSummary summary;
  const ordered_json none = ordered_json::object();
  const auto& parameters = object.contains("parameters") ? object.at("parameters") : none;
  summary.dense_parameters = parameters.value("dense", std::int64_t{0});
  summary.kept_parameters = parameters.value("kept", std::int64_t{0});
  if (object.contains("layers")) {
    for (const auto& row : object.at("layers")) {
      LayerSummary layer;
      layer.name = row.at("name").get<std::string>();
      layer.rows = row.value("rows", std::int64_t{0});
      layer.columns = row.value("columns", std::int64_t{0});
      layer.method = row.value("method", "");
      layer.pattern = row.value("pattern", "");
      layer.density = row.value("density", 1.0);
      layer.backend = row.value("backend", "");
      summary.layers.push_back(std::move(layer));
    }
  }
  if (object.contains("memory")) {
    for (const auto& [purpose, row] : object.at("memory").items()) {
      if (row.is_object()) {
        summary.memory.push_back(
            {purpose, row.value("bytes", std::int64_t{0}), row.value("dense_bytes", std::int64_t{0})});
      }
    }
    summary.sparse_layers_ratio = object.at("memory").value("sparse_layers_ratio", 1.0);
    summary.workspace_bytes = object.at("memory").value("workspace_bytes", std::int64_t{0});
  }
  if (object.contains("dense_phase")) summary.dense_steps = object.at("dense_phase").value("steps", std::int64_t{0});
  return summary;
} catch (const json::exception& error) {
  throw Error(std::string("not a model summary: ") + error.what());
}

std::vector<LayerGroup> group_layers(const std::vector<LayerSummary>& layers) {
  std::vector<LayerGroup> groups;
  std::vector<std::vector<std::int64_t>> numbers;
  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::string, std::string, double, std::string>;
  std::map<Key, std::size_t> index;
  for (const LayerSummary& layer : layers) {
    const auto [stem, number] = split_number(layer.name);
    const Key key{stem, layer.rows, layer.columns, layer.method, layer.pattern, layer.density, layer.backend};
    const auto [place, is_new] = index.emplace(key, groups.size());
    if (is_new) {
      groups.push_back({stem, layer, 0});
      numbers.emplace_back();
    }
    ++groups[place->second].count;
    if (number >= 0) numbers[place->second].push_back(number);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::string& name = groups[g].name;
    if (!numbers[g].empty()) name.replace(name.find('*'), 1, ranges(numbers[g]));
  }
  return groups;
}

}  // namespace filigree
