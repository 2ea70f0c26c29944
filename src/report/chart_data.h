// What report.js draws, as JSON, and the sentence that describes each chart to those who cannot see it.
#pragma once

#include <string>
#include <vector>

#include "report/run_data.h"

namespace filigree {

enum class ChartKind { curves, memory, density, exchange };  // the last two are drawn alike

struct Chart {
  ChartKind kind = ChartKind::curves;
  std::string id;           // "loss", "val-loss", ...
  std::string title;        // "Training loss"
  std::string note;         // a line under the title; may be empty
  std::string description;  // for screen readers: what is drawn and where the curves end
  std::string series;       // JSON array of what is drawn, one object a run (memory: one a purpose)
  std::string labels;       // JSON array: layers; a memory bar's lines of text, two for a dense model that nobody ran
};

// The charts that these runs have data for, in the order of the page.
std::vector<Chart> make_charts(const std::vector<RunData>& runs);

// {"runs": [{"name", "colour", "dashed"}], "charts": [{"kind", "id", "labels", "series"}]}. Safe inside a <script>
// element: no '<' occurs in it.
std::string chart_json(const std::vector<RunData>& runs, const std::vector<Chart>& charts);

// Name of the CSS colour of each run: "dense-0", "dense-1", ... for dense runs, "sparse-0", ... for the others.
std::vector<std::string> run_colours(const std::vector<RunData>& runs);

}  // namespace filigree
