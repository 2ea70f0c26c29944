#include "eval/harness_json.h"

#include <cmath>

namespace filigree {
namespace {

using nlohmann::ordered_json;

ordered_json finite(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json("N/A");
}

ordered_json entry(const TaskScore& score, const std::string& alias) {
  ordered_json json = {{"name", score.name}, {"alias", alias}, {"sample_len", score.items}};
  for (const MetricScore& metric : score.metrics) {
    json[metric.name + ",none"] = finite(metric.value);
    json[metric.name + "_stderr,none"] = finite(metric.standard_error);
  }
  return json;
}

void add(ordered_json& json, const TaskScore& score, const std::string& version, const std::string& alias) {
  json["results"][score.name] = entry(score, alias);
  json["versions"][score.name] = version;
  json["n-shot"][score.name] = 0;
  for (const MetricScore& metric : score.metrics)
    json["higher_is_better"][score.name][metric.name] = metric.name != "perplexity";
  json["n-samples"][score.name] = {{"original", score.items}, {"effective", score.items}};
}

}  // namespace

ordered_json harness_results(std::span<const TaskResult> results) {
  ordered_json json;
  for (const char* part :
       {"results", "groups", "group_subtasks", "versions", "n-shot", "higher_is_better", "n-samples"})
    json[part] = ordered_json::object();
  for (const TaskResult& result : results) {
    const TaskScore& overall = result.overall;
    add(json, overall, result.version, overall.name);
    json["group_subtasks"][overall.name] = ordered_json::array();
    if (result.sets.empty()) continue;
    json["groups"][overall.name] = entry(overall, overall.name);
    for (std::size_t i = 0; i < result.groups.size(); ++i) {
      const TaskScore& group = result.groups[i];
      json["groups"][group.name] = entry(group, " - " + group.name);
      json["group_subtasks"][group.name] = result.members[i];
      json["group_subtasks"][overall.name].push_back(group.name);
    }
    for (const TaskScore& set : result.sets) add(json, set, result.version, "  - " + set.name);
  }
  return json;
}

void add_perplexity(ordered_json& json, const Perplexity& result) {
  ordered_json entry = {{"name", "perplexity"},
                        {"alias", "perplexity"},
                        {"sample_len", result.targets},
                        {"loss,none", result.loss},
                        {"perplexity,none", finite(result.perplexity)}};
  if (std::isfinite(result.bits_per_byte)) entry["bits_per_byte,none"] = result.bits_per_byte;
  for (const char* metric : {"loss", "perplexity", "bits_per_byte"})
    json["higher_is_better"]["perplexity"][metric] = false;
  json["results"]["perplexity"] = std::move(entry);
  json["versions"]["perplexity"] = "1.0";
  json["n-shot"]["perplexity"] = 0;
  json["n-samples"]["perplexity"] = {{"original", result.targets}, {"effective", result.targets}};
}

}  // namespace filigree
