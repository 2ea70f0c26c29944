// The parts of the HTML report that are text: they are complete without any script.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/html_parts.h"
#include "report/run_data.h"

namespace filigree {

// Each returns one <section>, or "" when no run has anything to show in it.
std::string summary_section(const std::vector<RunData>& runs);
std::string tasks_section(const std::vector<RunData>& runs);          // evaluation tasks, the runs side by side
std::string samples_section(const std::vector<RunData>& runs);        // the newest samples of each run
std::string configuration_section(const std::vector<RunData>& runs);  // what differs, and the whole of it
std::string environment_section(const std::vector<RunData>& runs);
std::string problems_section(const std::vector<RunData>& runs);  // files that could not be read

// What stands under the charts of the same subject: memory by purpose beside the dense model's; the layers in groups,
// with the kernels that serve them and, where they have blocks, pictures of their masks.
std::string memory_tables(const std::vector<RunData>& runs);
std::string layer_tables(const std::vector<RunData>& runs);

}  // namespace filigree
