#include "comm/network_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"

namespace filigree {
namespace {

constexpr std::array<Network, 9> kNetworks = {{
    {.name = "slingshot-11",
     .bandwidth = 14.4e9,
     .ranks_per_node = 4,
     .origin = "4 x 200 Gb/s a node, of which the published runs of Radius used 14.4 GB/s (fitted)"},
    {.name = "slingshot-11-tuned",
     .bandwidth = 75e9,
     .ranks_per_node = 4,
     .origin = "the same with the plug-in that sites advise; 75 GB/s are assumed"},
    {.name = "slingshot-11-peak", .bandwidth = 100e9, .ranks_per_node = 4, .origin = "4 x 25 GB/s a node"},
    {.name = "infiniband",
     .bandwidth = 340e9,
     .ranks_per_node = 8,
     .origin = "8 x 400 Gb/s a node, 85 % of it (assumed)"},
    {.name = "nvlink",
     .bandwidth = 332e9,
     .ranks_per_node = 8,
     .origin = "bus bandwidth measured between two H200 of one host; one node of 8"},
    {.name = "ethernet-100g",
     .bandwidth = 11e9,
     .ranks_per_node = 8,
     .origin = "12.5 GB/s a node, 88 % of it (assumed)"},
    {.name = "ethernet-25g",
     .bandwidth = 3.2e9,
     .ranks_per_node = 1,
     .origin = "what NCCL's sockets with default settings gave over loopback: like a 25 Gb/s port"},
    {.name = "ethernet-10g", .bandwidth = 1.1e9, .ranks_per_node = 1, .origin = "1.25 GB/s, 88 % of it (assumed)"},
    {.name = "ethernet-1g", .bandwidth = 0.115e9, .ranks_per_node = 1, .origin = "0.125 GB/s, 92 % of it (measured)"},
}};

struct Layout {
  double ranks, nodes, per_node;
};
Layout layout_of(const Network& network, std::int64_t ranks) {
  const auto p = static_cast<double>(ranks);
  const double per_node = std::min(p, static_cast<double>(network.ranks_per_node));
  return {.ranks = p, .nodes = std::ceil(p / per_node), .per_node = per_node};
}

}  // namespace

std::span<const Network> known_networks() {
  return kNetworks;
}

Network network_named(std::string_view name) {
  std::string names;
  for (const Network& network : kNetworks) {
    if (network.name == name) return network;
    names += (names.empty() ? "" : ", ") + std::string(network.name);
  }
  throw UserError("--network: there is no network " + std::string(name) + "; it must be one of " + names);
}

double all_reduce_seconds(const Network& network, std::int64_t ranks, double bytes) {
  if (ranks == 1 || bytes == 0.0) return 0.0;
  const auto [p, nodes, per_node] = layout_of(network, ranks);
  const double hop = nodes > 1.0 ? network.local_hop_of_many : network.local_hop_of_one;
  const double between = 2.0 * (nodes - 1.0);
  const double ring = network.base + (2.0 * (p - 1.0) - between) * hop + between * network.network_hop +
                      2.0 * (p - 1.0) / p * bytes / network.bandwidth;
  if (!network.trees) return ring;
  const double tree = network.base +
                      2.0 * ((per_node - 1.0) * network.local_tree_hop + std::log2(nodes) * network.network_hop) +
                      2.0 * bytes / (0.92 * 0.85 * network.bandwidth);
  return std::min(ring, tree);
}

double all_gather_seconds(const Network& network, std::int64_t ranks, double bytes) {
  if (ranks == 1 || bytes == 0.0) return 0.0;
  const auto [p, nodes, per_node] = layout_of(network, ranks);
  return network.base + (p - nodes) * network.local_hop_of_many + (nodes - 1.0) * network.network_hop +
         (p - 1.0) * bytes / network.bandwidth;
}

double radius_seconds(const Network& network, std::int64_t ranks, double packed, double whole, std::int64_t interval) {
  const double flushes = 1.0 / static_cast<double>(interval);
  return (1.0 - flushes) * all_reduce_seconds(network, ranks, packed) +
         flushes * all_reduce_seconds(network, ranks, whole);
}

double ok_topk_seconds(const Network& network, std::int64_t ranks, double entries) {
  const Layout at = layout_of(network, ranks);
  return 2.0 * network.base + (at.ranks - 1.0) * network.network_hop +
         6.0 * entries * 4.0 * (at.ranks - 1.0) / at.ranks * at.per_node / network.bandwidth;
}

double gtopk_seconds(const Network& network, std::int64_t ranks, double entries) {
  const Layout at = layout_of(network, ranks);
  return std::log2(at.ranks) * (network.network_hop + 2.0 * entries * 4.0 * at.per_node / network.bandwidth);
}

double gather_break_even(std::int64_t ranks, double entry_bytes, double value_bytes) {
  return 2.0 * value_bytes / (static_cast<double>(ranks) * entry_bytes);
}

double step_seconds(const StepCost& cost, double exchange, bool overlap) {
  if (!overlap) return cost.compute + cost.overhead + exchange;
  const double window = cost.compute * cost.backward;
  const double hidden_from = exchange > 0.0 ? window * cost.first_bucket : 0.0;
  return cost.compute - window + cost.overhead + std::max(window, hidden_from + exchange);
}

}  // namespace filigree
