// How long an exchange takes on a network: the alpha-beta model. Pure functions of plain numbers. B is what a ring can
// use of a node's network in one direction, P ranks on N = P / g nodes of g, S bytes:
//
//   ring all-reduce    L_r + 2 (P-1)/P · S/B          L_r = 8.4 us + (2 (P-1) - 2 (N-1)) · h + 2 (N-1) · 14 us
//   tree all-reduce    L_t + 2 · S / (0.92 · 0.85 B)  L_t = 8.4 us + 2 ((g-1) · 4 us + log2 N · 14 us)
//   all-gather         L_g + (P-1) · S/B              L_g = 8.4 us + ((P-1) - (N-1)) · 6 us + (N-1) · 14 us, S of a
//   rank
//
// h is 6 us where there are several nodes and 3.4 us within one: the defaults of NCCL 2.30's tuner, protocol Simple. No
// contention, congestion or jitter is in it; docs/radius.md has its error where it was measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace filigree {

struct Network {
  std::string_view name;
  double bandwidth = 0.0;   // B, bytes a second
  int ranks_per_node = 1;   // g
  std::string_view origin;  // where the figures are from

  double base = 8.4e-6;  // seconds
  double network_hop = 14e-6;
  double local_hop_of_many = 6e-6;  // h
  double local_hop_of_one = 3.4e-6;
  double local_tree_hop = 4e-6;
  bool trees = true;  // whether the library may choose a tree
};
std::span<const Network> known_networks();
// Throws UserError that lists them.
Network network_named(std::string_view name);

double all_reduce_seconds(const Network& network, std::int64_t ranks, double bytes);
// `bytes` of one rank.
double all_gather_seconds(const Network& network, std::int64_t ranks, double bytes);
// (1 - 1/T) · AR(packed) + AR(whole) / T
double radius_seconds(const Network& network, std::int64_t ranks, double packed, double whole, std::int64_t interval);
// Two that filigree does not have, for comparison: Ok-Topk (PPoPP 2022) and gTop-k (ICDCS 2019), of k fp32 entries.
double ok_topk_seconds(const Network& network, std::int64_t ranks, double entries);
double gtopk_seconds(const Network& network, std::int64_t ranks, double entries);
// The density at which an all-gather of entries of `entry_bytes` takes as long as a sum of values of `value_bytes`, by
// bandwidth alone: 2 · value_bytes / (P · entry_bytes).
double gather_break_even(std::int64_t ranks, double entry_bytes, double value_bytes);

// A step of `compute` seconds (forward, backward, optimizer), of which the share `backward` may hide the exchange after
// its first bucket.
struct StepCost {
  double compute = 0.0;
  double overhead = 0.0;  // of the exchange itself, not hidden
  double backward = 2.0 / 3.0;
  double first_bucket = 0.0;  // share of the backward pass until the first bucket is there
};
double step_seconds(const StepCost& cost, double exchange, bool overlap);

}  // namespace filigree
