// Maps of which weights of a sparse layer are kept, for the HTML report: one layer of each kind, from the masks in a
// run's newest checkpoint. A cell is a block of a block-sparse layer, an entry of a SLoPe layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report/model_summary.h"

namespace filigree {

// The part of a mask that is drawn: its upper left corner where it is larger, in rows and columns of cells. Entries of
// an N:M pattern look alike everywhere, and a page with all of them would be as large as the checkpoint.
inline constexpr std::int64_t kDrawnBlocks = 256, kDrawnEntries = 128;
struct LayerMask {
  std::string layer;      // the group's name, e.g. "blocks.0-11.mlp.up"
  std::string of;         // the layer of that group whose mask this is
  std::string cells;      // "blocks of 16x16", "entries, 2:4"
  std::int64_t rows = 0;  // of cells, in the whole mask
  std::int64_t columns = 0;
  std::vector<std::vector<bool>> kept;  // [row][column], what is drawn of it
};

// The first layer of each group that is sparse; none without a checkpoint. Throws UserError on a damaged file.
std::vector<LayerMask> read_layer_masks(const std::filesystem::path& run, const ModelSummary& summary);

// Pictures as SVG, "" without masks. They need no script, which only lets a reader zoom.
std::string mask_pictures(const std::vector<LayerMask>& masks);

}  // namespace filigree
