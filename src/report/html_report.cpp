#include "report/html_report.h"

#include <fmt/core.h>

#include "core/error.h"
#include "io/atomic_file.h"
#include "report/assets.h"
#include "report/chart_data.h"
#include "report/html_tables.h"

namespace filigree {
namespace {

// Counts what goes wrong in a script, where a test (or a curious reader) finds it: on the root element.
constexpr const char* kErrorRecorder = R"js(addEventListener("error", (event) => {
  const data = document.documentElement.dataset;
  data.errors = Number(data.errors || 0) + 1;
  data.error = event.message;
});)js";

std::string title_of(const std::vector<RunData>& runs) {
  if (runs.size() == 1) return runs[0].name;
  if (runs.size() > 3) return fmt::format("{} runs", runs.size());
  std::string title = runs[0].name;
  for (std::size_t r = 1; r < runs.size(); ++r) title += (r + 1 == runs.size() ? " and " : ", ") + runs[r].name;
  return title;
}

// Which run has which colour, and the switches of the charts. The buttons of runs hide and show a run everywhere.
std::string toolbar(const std::vector<RunData>& runs) {
  const std::vector<std::string> colours = run_colours(runs);
  std::string html = "<div class=\"toolbar\">\n<div class=\"legend\" role=\"group\" aria-label=\"Runs shown\">\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    html += fmt::format(
        "<button type=\"button\" data-run=\"{}\" aria-pressed=\"true\"><i class=\"swatch{}\" style=\"--run:var(--{})\">"
        "</i>{}</button>\n",
        r, figures_of(runs[r]).dense ? " dashed" : "", colours[r], escape_html(runs[r].name));
  }
  return html + R"html(</div>
<div class="switches">
<div class="segments" role="group" aria-label="Horizontal axis">
<button type="button" data-axis="step" aria-pressed="true">Steps</button>
<button type="button" data-axis="tokens" aria-pressed="false">Tokens</button>
<button type="button" data-axis="seconds" aria-pressed="false">Time</button>
</div>
<label><input type="checkbox" id="smooth" checked> Smooth</label>
<label><input type="checkbox" id="log"> Log loss</label>
</div>
</div>
)html";
}

std::string chart_html(const Chart& chart) {
  const std::string id = escape_html(chart.id);
  const std::string note = chart.note.empty() ? "" : "<small>" + escape_html(chart.note) + "</small>";
  const std::string description = escape_html(chart.description);
  return fmt::format(
      "<figure class=\"chart {}\"><figcaption>{}{}</figcaption>\n<div class=\"frame\"><canvas id=\"chart-{}\" "
      "role=\"img\" "
      "aria-label=\"{}\">{}</canvas></div></figure>\n",
      chart.kind == ChartKind::curves ? "curves" : "wide", escape_html(chart.title), note, id, description,
      description);
}

std::string curves_section(const std::vector<RunData>& runs, const std::vector<Chart>& charts) {
  std::string body;
  for (const Chart& chart : charts)
    if (chart.kind == ChartKind::curves) body += chart_html(chart);
  if (body.empty()) return "";
  return "<section id=\"curves\" aria-labelledby=\"curves-title\">\n<h2 id=\"curves-title\">Curves</h2>\n" +
         toolbar(runs) + "<div class=\"charts\">\n" + body + "</div>\n</section>\n";
}

std::string chart_section(const char* id, const char* title, const std::vector<Chart>& charts, ChartKind kind,
                          const std::string& below) {
  std::string body;
  for (const Chart& chart : charts)
    if (chart.kind == kind) body += chart_html(chart);
  if (body.empty()) return "";
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n{2}{3}</section>\n", id,
      title, body, below);
}

}  // namespace

std::string html_report(const std::vector<RunData>& runs) {
  require(!runs.empty(), "a report needs at least one run");
  const std::vector<Chart> charts = make_charts(runs);
  const std::string title = escape_html(title_of(runs));
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  // The policy forbids the page every connection, whatever a sample says.
  html +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
      "style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  html += "<title>" + title + " - filigree</title>\n<style>\n";
  html += assets::report_css;
  html += "</style>\n</head>\n<body>\n<header>\n<p class=\"brand\">filigree report</p>\n<h1>" + title +
          "</h1>\n</header>\n";
  html += "<main>\n" + problems_section(runs) + summary_section(runs);
  html += "<noscript><p class=\"note\">The charts need JavaScript; the tables hold the figures.</p></noscript>\n";
  html += curves_section(runs, charts);
  html += chart_section("memory", "Memory", charts, ChartKind::memory, memory_tables(runs));
  html += chart_section("layers", "Layers", charts, ChartKind::density, layer_tables(runs));
  html += chart_section("exchange", "Gradient exchange", charts, ChartKind::exchange, "");
  html += tasks_section(runs) + samples_section(runs) + configuration_section(runs) + environment_section(runs);
  html += "</main>\n<script type=\"application/json\" id=\"data\">" + chart_json(runs, charts) + "</script>\n";
  for (const std::string_view script : {std::string_view(kErrorRecorder), assets::chart_js, assets::report_js})
    html.append("<script>\n").append(script).append("\n</script>\n");
  return html + "</body>\n</html>\n";
}

void write_html_report(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& out) {
  const std::string page = html_report(read_runs(folders));
  if (std::error_code failure; out.has_parent_path()) {
    std::filesystem::create_directories(out.parent_path(), failure);
    require_user(!failure, out.string() + ": cannot make its folder: " + failure.message());
  }
  write_file_atomically(out, page);
}

}  // namespace filigree
