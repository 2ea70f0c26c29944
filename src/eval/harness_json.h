// Results in the form of lm-evaluation-harness, for programs that read its files.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "eval/perplexity.h"
#include "eval/task_scores.h"

namespace filigree {

// An object with results ("acc,none" and the like by task), groups, group_subtasks, versions, n-shot, higher_is_better
// and n-samples. A group's parts stand in results as well.
nlohmann::ordered_json harness_results(std::span<const TaskResult> results);
// Adds the task perplexity: loss, perplexity and, where it is known, bits_per_byte.
void add_perplexity(nlohmann::ordered_json& json, const Perplexity& result);

}  // namespace filigree
