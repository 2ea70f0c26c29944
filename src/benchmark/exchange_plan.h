// What exchanges cost before anybody pays for GPUs: bytes on the wire from the model's shapes, seconds from the
// alpha-beta model (network_cost.h), memory laid out without being allocated.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/network_cost.h"
#include "io/config.h"

namespace filigree {

// The configuration's own weights under one exchange.
struct ExchangeForecast {
  std::string exchange;     // "dense-fp32", "radius-0.4-bf16", "topk-0.01-fp32"
  double payload = 0.0;     // mean bytes of a step that a rank hands over
  double sent = 0.0;        // mean bytes that it sends around a ring
  double seconds = 0.0;     // of the exchange
  double step = 0.0;        // seconds of a step, the exchange behind it; 0 without a time of the computation
  double overlapped = 0.0;  // beside the backward pass
};

struct PlanSettings {
  Config config;  // resolved, vocabulary known
  std::int64_t ranks = 2;
  Network network;
  double compute = 0.0;   // seconds of a rank's step without an exchange; 0: not known
  double overhead = 0.0;  // seconds a step that Radius' own kernels take
};

struct ExchangePlan {
  std::int64_t parameters = 0;
  std::vector<std::pair<std::string, std::int64_t>> memory;  // bytes of one rank by purpose, the exchange's included
  std::vector<ExchangeForecast> forecasts;                   // dense-fp32 first
  // Seconds of each exchange, as in `forecasts`, at other numbers of ranks.
  std::vector<std::pair<std::int64_t, std::vector<double>>> by_ranks;
};
ExchangePlan plan_exchanges(const PlanSettings& settings);

// What the model says of the runs that Radius was published with: 64 A100, 2.0 B parameters, density 0.4, interval 200.
struct PaperForecast {
  double dense = 0.0, radius = 0.0;  // seconds a step
  double overlapped_bf16 = 0.0;      // a dense step that was not published
  double step_saving = 0.0;          // share of a step's time
  double total_saving = 0.0;         // share of the run's time, its dense fifth included
  double total_speedup = 0.0;        // dense time / Radius' time over all
};
PaperForecast forecast_paper();

}  // namespace filigree
