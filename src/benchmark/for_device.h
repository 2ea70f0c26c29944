// What a configuration leaves to the device, as training would decide it.
#pragma once

#include "core/device.h"
#include "io/config.h"

namespace filigree {

inline Config for_device(Config config, const Device& device) {
  if (!config.weights.block.chosen()) config.weights.block = default_block(device.is_cuda());
  return config;
}

}  // namespace filigree
