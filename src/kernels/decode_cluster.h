// How decode_cluster.cuh cuts its work: plain arithmetic, on the host and on the GPU. A cluster of thread blocks has a
// share of decode_shares.h together, and each of them takes a part of the steps of all its rows.
#pragma once

#include "kernels/decode_shares.h"

namespace filigree::cuda {

// A thread block's part of a piece. Its warps take whole tiles, `warps` of them in a round.
struct DecodeClusterCut {
  int first_step = 0, steps = 0, phases = 0, phase_steps = 0;  // may be no steps
  int rows = 0, tiles = 0, tile_rows = 0;

  constexpr int steps_of(int phase) const {
    const int left = steps - phase * phase_steps;
    return left < phase_steps ? left : phase_steps;
  }
  constexpr int rows_of(int tile) const {
    const int left = rows - tile * tile_rows;
    return left < tile_rows ? left : tile_rows;
  }
};
constexpr DecodeClusterCut decode_cluster_cut(int rows, int all_steps, int rank, int ranks, int most_steps, int warps) {
  DecodeClusterCut cut;
  cut.first_step = all_steps / ranks * rank + (rank < all_steps % ranks ? rank : all_steps % ranks);
  cut.steps = all_steps / ranks + (rank < all_steps % ranks ? 1 : 0);
  cut.phases = cut.steps > most_steps ? (cut.steps + most_steps - 1) / most_steps : 1;
  cut.phase_steps = cut.steps > 0 ? (cut.steps + cut.phases - 1) / cut.phases : 1;
  cut.phases = cut.steps > 0 ? (cut.steps + cut.phase_steps - 1) / cut.phase_steps : 1;
  cut.rows = rows;
  const int rounds = (rows + kDecodeTileRows * warps - 1) / (kDecodeTileRows * warps);
  cut.tile_rows = (rows + rounds * warps - 1) / (rounds * warps);
  cut.tiles = (rows + cut.tile_rows - 1) / cut.tile_rows;
  return cut;
}

// A warp's walk over its steps, tile after tile, phase after phase, piece after piece.
template <typename Piece>
struct DecodeClusterWalk {
  const Piece* piece;
  const Piece* end;
  int phase = 0, tile, step = 0;  // step of the phase

  constexpr DecodeClusterWalk(const Piece* first, const Piece* last, int warp, int warps)
      : piece(first), end(last), tile(warp) {
    settle(warp, warps);
  }
  constexpr bool done() const { return piece == end; }
  constexpr void advance(int warp, int warps) {
    ++step;
    settle(warp, warps);
  }

 private:
  constexpr void settle(int warp, int warps) {
    while (piece != end && (tile >= piece->cut.tiles || step >= piece->cut.steps_of(phase))) {
      step = 0;
      tile += warps;
      if (tile < piece->cut.tiles) continue;
      tile = warp;
      if (++phase < piece->cut.phases) continue;
      phase = 0;
      ++piece;
    }
  }
};

// The size of a cluster that is likely to be the fastest: all wait for as long as it takes to read W, in tiles that
// are seldom full, x, and each other's sums.
struct DecodeClusterChoice {
  int ranks = 0, shares = 0;  // 0: none
};
struct DecodeClusterWork {
  std::int64_t rows = 0, inputs = 0;  // of W, and of a row as stored
  int unit = 1, tokens = 0, warps = 0;
  double row_bytes = 0;  // of W
};
// `active[i]`: clusters of 2 << i thread blocks that run at the same time.
constexpr DecodeClusterChoice choose_decode_cluster(const DecodeClusterWork& work, const int (&active)[3]) {
  constexpr int kMostRows = 1024;
  DecodeClusterChoice best;
  double least = 0;
  for (int i = 0; i < 3; ++i) {
    const int ranks = 2 << i;
    if (active[i] < 1) continue;
    const std::int64_t units = (work.rows + work.unit - 1) / work.unit, most = std::int64_t{kMostRows} * active[i];
    const std::int64_t wanted = (work.rows + most - 1) / most * active[i], shares = units < wanted ? units : wanted;
    const std::int64_t rows = (units + shares - 1) / shares * work.unit, round = kDecodeTileRows * work.warps;
    const std::int64_t padded = (rows + round - 1) / round * round;
    const double x = 2.0 * static_cast<double>(work.tokens * work.inputs) / ranks;
    const double sums = 4.0 * static_cast<double>(work.tokens * rows);
    const double weights = static_cast<double>(rows + padded) / 2 * work.row_bytes / ranks;
    const double cost = (weights + x + sums) * static_cast<double>((shares + active[i] - 1) / active[i]);
    if (best.ranks == 0 || cost < least) best = {ranks, static_cast<int>(shares)}, least = cost;
  }
  return best;
}

}  // namespace filigree::cuda
