#include "report/html_parts.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "report/chart_data.h"

namespace filigree {
namespace {

std::string cell_html(const Cell& cell) {
  std::string html = cell.text.empty() ? "<span class=\"none\">–</span>" : escape_html(cell.text);
  if (!cell.small.empty()) html += "<small>" + escape_html(cell.small) + "</small>";
  return html;
}

std::string swatch(const std::string& colour, bool dense) {
  return fmt::format("<i class=\"swatch{}\" style=\"--run:var(--{})\"></i>", dense ? " dashed" : "", colour);
}

}  // namespace

std::string escape_html(std::string_view text) {
  // nlohmann's writer replaces what is not UTF-8; its reader gives the plain text back.
  using nlohmann::json;
  const std::string clean =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  std::string html;
  html.reserve(clean.size());
  for (const char c : clean) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '&') {
      html += "&amp;";
    } else if (c == '<') {
      html += "&lt;";
    } else if (c == '>') {
      html += "&gt;";
    } else if (c == '"') {
      html += "&quot;";
    } else if (c == '\'') {
      html += "&#39;";
    } else if ((code < 0x20 && c != '\n' && c != '\t') || code == 0x7f) {
      html += "\uFFFD";  // control characters are not allowed in HTML
    } else {
      html += c;
    }
  }
  return html;
}

std::string table_html(const std::string& label, const std::vector<std::string>& headers, const std::vector<Row>& rows,
                       std::size_t text_columns, const std::vector<std::string>& first_cell_marks) {
  std::string html = fmt::format(
      "<div class=\"table\" role=\"region\" tabindex=\"0\" "
      "aria-label=\"{0}\"><table><caption>{0}</caption>\n<thead><tr>",
      escape_html(label));
  const auto kind = [&](std::size_t column) { return column < text_columns ? "" : " class=\"number\""; };
  for (std::size_t c = 0; c < headers.size(); ++c)
    html += fmt::format("<th scope=\"col\"{}>{}</th>", kind(c), escape_html(headers[c]));
  html += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string mark = r < first_cell_marks.size() ? first_cell_marks[r] : "";
    html += fmt::format("<tr><th scope=\"row\">{}{}</th>", mark, cell_html(rows[r][0]));
    for (std::size_t c = 1; c < rows[r].size(); ++c)
      html += fmt::format("<td{}>{}</td>", kind(c), cell_html(rows[r][c]));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string section(const char* id, const char* title, const std::string& body) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n", id, title,
      body);
}

std::vector<std::string> swatches(const std::vector<RunData>& runs) {
  const std::vector<std::string> colours = run_colours(runs);
  std::vector<std::string> marks;
  for (std::size_t r = 0; r < runs.size(); ++r) marks.push_back(swatch(colours[r], figures_of(runs[r]).dense));
  return marks;
}

}  // namespace filigree
