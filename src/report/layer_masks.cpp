#include "report/layer_masks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/error.h"
#include "io/safetensors.h"
#include "report/html_tables.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// Steps have equally many digits in names, so that names sort like steps. Folders that are being written end otherwise.
std::optional<fs::path> newest_model(const fs::path& run) {
  std::optional<fs::path> newest;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", absent)) {
    const std::string name = entry.path().filename().string();
    const bool finished = name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (finished && (!newest || *newest < entry.path())) newest = entry.path();
  }
  if (!newest || !fs::exists(*newest / "model.safetensors")) return std::nullopt;
  return *newest / "model.safetensors";
}

// What is kept as horizontal strokes one high, a row after the other: neighbours in a row are one.
std::string path_of(const std::vector<std::vector<bool>>& kept) {
  std::string path;
  for (std::size_t row = 0; row < kept.size(); ++row) {
    std::size_t last = 0;  // where the row's stroke before ended
    bool first = true;
    for (std::size_t begin = 0; begin < kept[row].size();) {
      std::size_t end = begin;
      while (end < kept[row].size() && kept[row][end]) ++end;
      if (end > begin) {
        path += first ? fmt::format("M{} {}.5h{}", begin, row, end - begin)
                      : fmt::format("m{} 0h{}", begin - last, end - begin);
        first = false;
        last = end;
      }
      begin = end + 1;
    }
  }
  return path;
}

// The mask as a file has it: a bit a cell, rows of whole bytes.
LayerMask mask_of(const LayerGroup& group) {
  const LayerSummary& layer = group.layer;
  if (layer.method != "block")
    return {group.name, layer.name, "entries, " + layer.pattern, layer.rows, layer.columns, {}};
  const std::int64_t width = std::atoll(layer.pattern.substr(layer.pattern.find('x') + 1).c_str());
  require(width > 0, "a layer's block is '" + layer.pattern + "'");
  return {group.name, layer.name, "blocks of " + layer.pattern, 0, (layer.columns + width - 1) / width, {}};
}

}  // namespace

std::vector<LayerMask> read_layer_masks(const fs::path& run, const ModelSummary& summary) {
  std::vector<LayerMask> masks;
  const std::optional<fs::path> model = newest_model(run);
  if (!model) return masks;
  const SafetensorsFile file(*model);
  for (const LayerGroup& group : group_layers(summary.layers)) {
    if (group.layer.method == "dense") continue;
    const StoredTensor* stored = file.find(group.layer.name + ".weight.mask");
    if (stored == nullptr) continue;  // from a dense phase
    LayerMask mask = mask_of(group);
    require(stored->type == StoredType::u8 && stored->shape.size() == 2 && stored->shape[1] == (mask.columns + 7) / 8,
            model->string() + ": " + stored->name + " is no mask of " + std::to_string(mask.columns) + " cells a row");
    mask.rows = stored->shape[0];
    const std::int64_t drawn = group.layer.method == "block" ? kDrawnBlocks : kDrawnEntries;
    const auto bits = file.bytes(*stored);
    for (std::int64_t row = 0; row < std::min(mask.rows, drawn); ++row) {
      std::vector<bool>& line = mask.kept.emplace_back();
      for (std::int64_t column = 0; column < std::min(mask.columns, drawn); ++column) {
        const auto byte = static_cast<unsigned>(bits[static_cast<std::size_t>(row * stored->shape[1] + column / 8)]);
        line.push_back((byte >> (column % 8) & 1) != 0);
      }
    }
    masks.push_back(std::move(mask));
  }
  return masks;
}

std::string mask_pictures(const std::vector<LayerMask>& masks) {
  std::string html;
  for (const LayerMask& mask : masks) {
    const auto rows = static_cast<std::int64_t>(mask.kept.size());
    const auto columns = rows > 0 ? static_cast<std::int64_t>(mask.kept[0].size()) : 0;
    std::string what = fmt::format("{} × {} {}", mask.rows, mask.columns, mask.cells);
    if (rows < mask.rows || columns < mask.columns) what += fmt::format(", the first {} × {}", rows, columns);
    if (mask.of != mask.layer) what = mask.of + ": " + what;
    html += fmt::format(
        "<figure class=\"mask\"><figcaption>{0}<small>{1}</small></figcaption>\n<svg viewBox=\"0 0 {2} {3}\" "
        "style=\"width:{4}px\" role=\"img\" aria-label=\"Kept weights of {0}\"><path d=\"{5}\"/></svg></figure>\n",
        escape_html(mask.layer), escape_html(what), columns, rows, std::max<std::int64_t>(3 * columns, 48),
        path_of(mask.kept));
  }
  if (html.empty()) return "";
  return "<p class=\"note\">Kept weights, outputs downwards, inputs to the right. Every layer has a mask of its own; "
         "drawn is the first of each kind.</p>\n<div class=\"masks\">\n" +
         html + "</div>\n";
}

}  // namespace filigree
