// Exchanges of gradients between ranks that are there: bytes that really travel, and the time they take. Run by every
// rank of a communicator; the rows are rank 0's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/results.h"
#include "comm/communicator.h"
#include "io/config.h"

namespace filigree {

// What a method of this benchmark is called: [weights-]exchange[-density][-fp32|-bf16], e.g. "dense", "dense-bf16",
// "radius-0.4", "slope-radius-0.4", "topk-0.01-bf16", "powersgd".
struct NamedExchange {
  std::string weights = "dense";
  std::string exchange = "dense";
  double density = 0.4;
  DType wire = DType::f32;
};
std::optional<NamedExchange> parse_exchange(std::string_view name);
Config with_exchange(Config config, const NamedExchange& method);

struct ExchangeBenchmark {
  std::string name;                  // the case, e.g. "cpu-4-ranks"
  Config config;                     // resolved, vocabulary known; weights.method and the exchange are the methods'
  std::vector<std::string> methods;  // the first one is the baseline
  std::int64_t batch = 0;            // sequences of a rank's step; 0: no forward and backward, the exchange alone
  int repeats = 5;
};

// Rows of each method, means over the steps of an interval, flushes with their share:
//   bytes_sent                of a rank, around a ring
//   sparse_layers_bytes_sent  of the layers that some method makes sparse (by exact count)
//   exchange_ms               the exchange alone, from the first gradient to the last sum
//   step_ms, tokens_per_s     with a batch: forward, backward, exchange beside or after it as
//   config.distributed.overlap
//                             says, update; tokens of all ranks
// Ranks begin each timed step together.
std::vector<ResultRow> benchmark_exchange(const ExchangeBenchmark& benchmark, Communicator& ranks, int threads);

}  // namespace filigree
