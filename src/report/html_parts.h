// What the report's tables are made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run_data.h"

namespace filigree {

// Text for an HTML element or a quoted attribute. What is not UTF-8 becomes U+FFFD.
std::string escape_html(std::string_view text);

// One cell: its text, and a smaller second line.
struct Cell {
  std::string text;
  std::string small = {};
};
using Row = std::vector<Cell>;

// A table that scrolls sideways in its own frame where the page is narrow. The first cell of each row is its header.
// `text_columns`: the first columns that hold text; the others hold numbers and are aligned to the right.
std::string table_html(const std::string& label, const std::vector<std::string>& headers, const std::vector<Row>& rows,
                       std::size_t text_columns, const std::vector<std::string>& first_cell_marks = {});

std::string section(const char* id, const char* title, const std::string& body);

// The stroke in each run's colour.
std::vector<std::string> swatches(const std::vector<RunData>& runs);

}  // namespace filigree
