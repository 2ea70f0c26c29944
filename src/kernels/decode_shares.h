// How decode_stream.cuh cuts its work: plain arithmetic, on the host and on the GPU.
//
// All rows of W are cut into equal shares, one a thread block, whatever blocks they belong to: so no multiprocessor has
// more to read than another one. A share is one or more pieces, cut where another row of blocks begins. A piece is
// rows x inputs, and is taken in phases: as many of its inputs as x has places for in shared memory; a phase in tiles
// of at most 16 rows; a tile in steps, of which each warp takes every `warps`-th.
#pragma once

#include <cstdint>

namespace filigree::cuda {

inline constexpr int kDecodeTileRows = 16;
inline constexpr int kMostShareRows = 512;

struct DecodeRows {
  int first = 0, rows = 0;
};

// Shares that leave none empty: one a multiprocessor, or a multiple of that where they would have very many rows. They
// begin at multiples of `unit`.
constexpr int decode_shares(std::int64_t rows, int unit, int multiprocessors) {
  const std::int64_t units = (rows + unit - 1) / unit, most = std::int64_t{kMostShareRows} * multiprocessors;
  const std::int64_t wanted = (rows + most - 1) / most * multiprocessors;
  return static_cast<int>(units < wanted ? units : wanted);
}

constexpr DecodeRows decode_share(int share, int shares, int rows, int unit) {
  const int units = (rows + unit - 1) / unit, each = units / shares, longer = units % shares;
  const int first = (each * share + (share < longer ? share : longer)) * unit;
  const int end = first + (each + (share < longer ? 1 : 0)) * unit;
  return {first, (end < rows ? end : rows) - first};
}

// Pieces are cut at multiples of `line` rows.
constexpr int decode_pieces(const DecodeRows& share, int line) {
  return (share.first + share.rows - 1) / line - share.first / line + 1;
}

constexpr DecodeRows decode_piece(const DecodeRows& share, int index, int line) {
  const int start = (share.first / line + index) * line, end = share.first + share.rows;
  const int first = index == 0 ? share.first : start;
  return {first, (end - start < line ? end : start + line) - first};
}

// The most of any share: of pieces, at least.
constexpr int most_decode_rows(int shares, int rows, int unit) {
  return decode_share(0, shares, rows, unit).rows;
}
constexpr int most_decode_pieces(int shares, int rows, int unit, int line) {
  return line >= rows ? 1 : (most_decode_rows(shares, rows, unit) + line - 2) / line + 1;
}

// How a piece is taken. Tiles have about as many rows each, phases about as many steps.
struct DecodeCut {
  int steps = 0, phases = 0, phase_steps = 0;
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
// `most_steps`, of a phase, is a multiple of `warps`.
constexpr DecodeCut decode_cut(int rows, int steps, int most_steps, int warps) {
  DecodeCut cut;
  cut.steps = steps;
  cut.phases = (steps + most_steps - 1) / most_steps;
  cut.phase_steps = ((steps + cut.phases - 1) / cut.phases + warps - 1) / warps * warps;
  cut.phases = (steps + cut.phase_steps - 1) / cut.phase_steps;
  cut.rows = rows;
  cut.tiles = (rows + kDecodeTileRows - 1) / kDecodeTileRows;
  cut.tile_rows = (rows + cut.tiles - 1) / cut.tiles;
  cut.tiles = (rows + cut.tile_rows - 1) / cut.tile_rows;
  return cut;
}

// A warp's walk over the steps that are its own, tile after tile, phase after phase, piece after piece. `Piece` has a
// DecodeCut, `cut`.
template <typename Piece>
struct DecodeWalk {
  const Piece* piece;
  const Piece* end;
  int phase = 0, tile = 0, step = 0;  // step of the phase

  constexpr DecodeWalk(const Piece* first, const Piece* last, int warp) : piece(first), end(last), step(warp) {
    settle(warp);
  }
  constexpr bool done() const { return piece == end; }
  constexpr void advance(int warp, int warps) {
    step += warps;
    settle(warp);
  }

 private:
  // To a step that is there.
  constexpr void settle(int warp) {
    while (piece != end && step >= piece->cut.steps_of(phase)) {
      const bool none = warp >= piece->cut.steps_of(phase);
      step = warp;
      if (++tile < piece->cut.tiles && !none) continue;
      tile = 0;
      if (++phase < piece->cut.phases) continue;
      phase = 0;
      ++piece;
    }
  }
};

}  // namespace filigree::cuda
