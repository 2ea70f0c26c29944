// How the decoding kernels cut their work: every row and step is taken once, and shares are equal.
#include "kernels/decode_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/decode_cluster.h"

namespace filigree::cuda {
namespace {

struct Piece {
  DecodeRows rows;
  DecodeCut cut;
};

TEST(DecodeShares, TakeEveryRowOnceAndEquallyMany) {
  for (const int multiprocessors : {1, 7, 132})
    for (const int unit : {1, 8})
      for (const int rows : {1, 5, 8, 100, 1000, 1056, 5120, 15360, 20480, 40001, 100000}) {
        const std::string what =
            std::to_string(rows) + " rows, " + std::to_string(multiprocessors) + " x " + std::to_string(unit);
        const int shares = decode_shares(rows, unit, multiprocessors);
        ASSERT_GE(shares, 1) << what;
        int next = 0, least = rows, most = 0;
        for (int i = 0; i < shares; ++i) {
          const DecodeRows share = decode_share(i, shares, rows, unit);
          ASSERT_EQ(share.first, next) << what;
          ASSERT_GE(share.rows, 1) << what;
          ASSERT_LE(share.rows, kMostShareRows) << what;
          next += share.rows;
          if (i + 1 < shares) least = std::min(least, share.rows);  // the last one may end within a unit
          most = std::max(most, share.rows);
        }
        EXPECT_EQ(next, rows) << what;
        EXPECT_LE(most - least, shares > 1 ? unit : 0) << what;
        EXPECT_EQ(most_decode_rows(shares, rows, unit), most) << what;
        EXPECT_TRUE(shares % multiprocessors == 0 || shares == (rows + unit - 1) / unit) << what;
      }
}

TEST(DecodeShares, ArePiecesThatCrossNoBlockRow) {
  for (const int line : {1, 3, 16, 64, 128, 200})
    for (const int rows : {1, 8, 100, 1056, 5120, 20480}) {
      const int shares = decode_shares(rows, 8, 132);
      for (int i = 0; i < shares; ++i) {
        const DecodeRows share = decode_share(i, shares, rows, 8);
        int next = share.first;
        ASSERT_LE(decode_pieces(share, line), most_decode_pieces(shares, rows, 8, line));
        for (int j = 0; j < decode_pieces(share, line); ++j) {
          const DecodeRows piece = decode_piece(share, j, line);
          ASSERT_EQ(piece.first, next);
          ASSERT_GE(piece.rows, 1);
          ASSERT_EQ(piece.first / line, (piece.first + piece.rows - 1) / line);
          next += piece.rows;
        }
        ASSERT_EQ(next, share.first + share.rows);
      }
    }
}

// The order of the barriers is that of phases and tiles: a warp's walk must keep to it, and all warps together must
// take every step once.
TEST(DecodeShares, WarpsTakeEveryStepOnce) {
  constexpr int kWarps = 8;
  for (const int most_steps : {8, 16, 24, 160})
    for (const std::vector<int>& steps : {std::vector{1}, {40}, {3, 9, 1, 40}, {160, 7}, {17, 17, 200}}) {
      std::vector<Piece> pieces;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const DecodeRows rows{0, static_cast<int>(1 + 37 * i % 128)};
        pieces.push_back({rows, decode_cut(rows.rows, steps[i], most_steps, kWarps)});
      }
      const Piece* const end = pieces.data() + pieces.size();
      std::vector<DecodeWalk<Piece>> walks;
      for (int warp = 0; warp < kWarps; ++warp) walks.emplace_back(pieces.data(), end, warp);
      for (const Piece* piece = pieces.data(); piece != end; ++piece) {
        const DecodeCut& cut = piece->cut;
        int taken = 0, covered = 0;
        for (int tile = 0; tile < cut.tiles; ++tile) {
          ASSERT_GE(cut.rows_of(tile), 1);
          ASSERT_LE(cut.rows_of(tile), kDecodeTileRows);
          covered += cut.rows_of(tile);
        }
        EXPECT_EQ(covered, piece->rows.rows);
        for (int phase = 0; phase < cut.phases; ++phase) {
          ASSERT_GE(cut.steps_of(phase), 1);
          ASSERT_LE(cut.steps_of(phase), most_steps);
          taken += cut.steps_of(phase);
          for (int tile = 0; tile < cut.tiles; ++tile)
            for (int warp = 0; warp < kWarps; ++warp)
              for (int step = warp; step < cut.steps_of(phase); step += kWarps) {
                DecodeWalk<Piece>& walk = walks[static_cast<std::size_t>(warp)];
                ASSERT_EQ(walk.piece, piece);
                ASSERT_EQ(walk.phase, phase);
                ASSERT_EQ(walk.tile, tile);
                ASSERT_EQ(walk.step, step);
                walk.advance(warp, kWarps);
              }
        }
        EXPECT_EQ(taken, cut.steps);
      }
      for (const DecodeWalk<Piece>& walk : walks) EXPECT_TRUE(walk.done());
    }
}

struct ClusterPiece {
  DecodeClusterCut cut;
};

TEST(DecodeCluster, ThreadBlocksAndWarpsTakeEveryStepOnce) {
  constexpr int kWarps = 8;
  for (const int ranks : {2, 4, 8})
    for (const int most_steps : {1, 5, 40})
      for (const std::vector<int>& steps : {std::vector{1}, {40}, {3, 9, 1, 40}, {160, 7}}) {
        std::vector<int> next(steps.size());
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<ClusterPiece> pieces;
          for (std::size_t i = 0; i < steps.size(); ++i)
            pieces.push_back(
                {decode_cluster_cut(static_cast<int>(1 + 149 * i), steps[i], rank, ranks, most_steps, kWarps)});
          const ClusterPiece* const end = pieces.data() + pieces.size();
          std::vector<DecodeClusterWalk<ClusterPiece>> walks;
          for (int warp = 0; warp < kWarps; ++warp) walks.emplace_back(pieces.data(), end, warp, kWarps);
          for (std::size_t i = 0; i < steps.size(); ++i) {
            const DecodeClusterCut& cut = pieces[i].cut;
            ASSERT_EQ(cut.first_step, next[i]);
            next[i] += cut.steps;
            int taken = 0, rows = 0;
            for (int tile = 0; tile < cut.tiles; ++tile) {
              ASSERT_GE(cut.rows_of(tile), 1);
              ASSERT_LE(cut.rows_of(tile), kDecodeTileRows);
              rows += cut.rows_of(tile);
            }
            EXPECT_EQ(rows, 1 + 149 * static_cast<int>(i));
            for (int phase = 0; phase < cut.phases; ++phase) {
              ASSERT_LE(cut.steps_of(phase), most_steps);
              taken += cut.steps_of(phase);
              for (int tile = 0; tile < cut.tiles; ++tile)
                for (int step = 0; step < cut.steps_of(phase); ++step) {
                  auto& walk = walks[static_cast<std::size_t>(tile % kWarps)];
                  ASSERT_EQ(walk.piece, &pieces[i]);
                  ASSERT_EQ(walk.phase, phase);
                  ASSERT_EQ(walk.tile, tile);
                  ASSERT_EQ(walk.step, step);
                  walk.advance(tile % kWarps, kWarps);
                }
            }
            EXPECT_EQ(taken, cut.steps);
          }
          for (const auto& walk : walks) EXPECT_TRUE(walk.done());
        }
        EXPECT_EQ(next, steps);
      }
}

// H200: 66, 32 and 16 clusters.
TEST(DecodeCluster, WideInputsAreCutIntoMoreParts) {
  const auto chosen = [](std::int64_t rows, std::int64_t inputs, std::initializer_list<int> active) {
    const int* const most = active.begin();
    return choose_decode_cluster(
        {.rows = rows, .inputs = inputs, .tokens = 16, .warps = 8, .row_bytes = 1.125 * static_cast<double>(inputs)},
        {most[0], most[1], most[2]});
  };
  EXPECT_EQ(chosen(20480, 5120, {66, 32, 16}).ranks, 4);
  EXPECT_EQ(chosen(5120, 20480, {66, 32, 16}).ranks, 8);
  EXPECT_EQ(chosen(5120, 20480, {66, 32, 0}).ranks, 4);
  EXPECT_EQ(chosen(5120, 20480, {0, 0, 0}).ranks, 0);
  for (const std::int64_t rows : {1, 100, 5120, 200000}) {
    const DecodeClusterChoice choice = chosen(rows, 1024, {66, 32, 16});
    EXPECT_GE(choice.shares, 1);
    EXPECT_LE(choice.shares, rows);
    EXPECT_LE(most_decode_rows(choice.shares, static_cast<int>(rows), 1), 1024);
  }
}

}  // namespace
}  // namespace filigree::cuda
