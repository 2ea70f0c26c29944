// The HTML report: one file that needs nothing but a browser. It compares runs: their figures, curves, memory, layers,
// configuration, environment and samples. Equal runs give equal bytes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run_data.h"

namespace filigree {

// The whole page. At least one run.
std::string html_report(const std::vector<RunData>& runs);

// Reads the runs and writes their page to `out`, complete or not at all; an existing file is replaced. Throws UserError
// when a folder is no run, Error when the page cannot be written.
void write_html_report(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& out);

}  // namespace filigree
