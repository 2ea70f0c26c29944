// Pictures of which blocks of a block-sparse layer are kept, for the HTML report: one layer of each kind, from the
// masks in a run's newest checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report/model_summary.h"

namespace filigree {

// The part of a mask that is drawn: its upper left corner where it is larger than kDrawnBlocks.
inline constexpr std::int64_t kDrawnBlocks = 256;  // rows, and columns, of blocks
struct BlockMask {
  std::string layer;      // the group's name, e.g. "blocks.0-11.mlp.up"
  std::string of;         // the layer of that group whose mask this is
  std::string block;      // "16x16"
  std::int64_t rows = 0;  // of blocks, in the whole mask
  std::int64_t columns = 0;
  std::vector<std::vector<bool>> kept;  // [row][column], at most kDrawnBlocks each
};

// The first layer of each group that has blocks; none without a checkpoint. Throws UserError on a damaged file.
std::vector<BlockMask> read_block_masks(const std::filesystem::path& run, const ModelSummary& summary);

// Pictures as SVG, "" without masks. They need no script.
std::string block_pictures(const std::vector<BlockMask>& masks);

}  // namespace filigree
