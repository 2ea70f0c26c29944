// What a resumed run has to know of the configuration and data that it was started with, and when checkpoints are due:
// pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "data/dataset.h"
#include "io/config.h"

namespace filigree {

// The keys that differ though they must not, one a line with both values; "" when there are none. Keys whose values
// only follow from other keys (model.ffn from model.width, a shape from model.preset) are left out, and so are those in
// `free`. model.init may name the same run or checkpoint in another place.
std::string forbidden_changes(const Config& saved, const Config& now, const std::set<std::string>& free = {});

// The splits whose tokens differ though they must not, likewise.
std::string changed_data(const std::map<std::string, DataFingerprint>& saved,
                         const std::map<std::string, DataFingerprint>& now);

// Says that another train.steps changes the learning rate after `step` steps, with both rates; "" when it does not.
std::string rate_change(const Config& saved, const Config& now, std::int64_t step);

// Steps between checkpoints: checkpoint.every, or where that is 0 those between evaluations, or a tenth of the steps
// where there are none (`evaluated`: the run has validation data).
std::int64_t checkpoint_interval(const Config& config, bool evaluated);

}  // namespace filigree
