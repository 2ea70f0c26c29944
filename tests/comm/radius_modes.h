// Radius as tests try it out.
#pragma once

#include "comm/radius_exchange.h"
#include "toy_training.h"

namespace filigree::testing {

inline constexpr std::int64_t kBucket = 4096;  // several buckets a step

inline MakeExchange radius(RadiusSettings settings) {
  settings.wire.bucket_bytes = kBucket;
  settings.wire.in_place = kToyInPlace;
  return [settings](Communicator& communicator) { return std::make_unique<RadiusExchange>(communicator, settings); };
}

inline RadiusSettings faithful(double density, std::int64_t interval, double start = 0.25) {
  return {.density = density, .interval = interval, .start = start, .clip_norm = 0.0, .wire = {}};
}

// Every mode and switch, with density and interval as given.
inline std::vector<RadiusSettings> all_modes(double density, std::int64_t interval) {
  std::vector<RadiusSettings> modes;
  for (const Flush flush : {Flush::sum, Flush::split, Flush::spread, Flush::frozen_v})
    for (const bool fresh : {false, true})
      for (const bool other : {false, true}) {
        RadiusSettings settings = faithful(density, interval);
        settings.flush = flush;
        settings.fresh_clip = fresh;
        settings.stagger = other;
        settings.frozen = other && flush != Flush::spread;
        settings.score = other ? Score::momentum : Score::direction;
        modes.push_back(settings);
      }
  return modes;
}

}  // namespace filigree::testing
