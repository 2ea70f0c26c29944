// Files that every report carries inside, embedded when filigree is built.
#pragma once

#include <string_view>

namespace filigree::assets {

extern const std::string_view chart_js;    // Chart.js 3.9.1, MIT licence; its notice is its first lines
extern const std::string_view report_js;   // src/report/report.js
extern const std::string_view report_css;  // src/report/report.css

}  // namespace filigree::assets
