// The linear layers of a model by name and shape, and what `weights` says about each: known before anything is built,
// so that a configuration can be refused with the layer's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/config.h"

namespace filigree {

struct LinearShape {
  std::string name;
  std::int64_t outputs = 0;  // N
  std::int64_t inputs = 0;   // K
};

// Of a resolved model, in forward order:
//   blocks.i.attention.qkv  ((H + 2G)·D, C)      blocks.i.attention.out  (C, C)
//   blocks.i.mlp.up         (F, C); llama (2F, C), gate above up         blocks.i.mlp.down  (C, F)
//   head                    (V, C)
std::vector<LinearShape> linear_layers(const ModelConfig& model);

struct LayerWeights {
  std::string method;
  Pattern pattern;
  BlockShape block;  // chosen: the CPU's where the configuration leaves it to the device
  double density = 0.5;
  std::string mask;  // not "auto"
};
// What one layer is: weights.method, then "dense" where weights.dense_layers names the layer, then the overrides in
// order, so that an override may make a layer of that list sparse again.
LayerWeights layer_weights(const WeightsConfig& weights, std::string_view layer);

// What mask = "auto" stands for.
std::string default_mask(std::string_view method);

// "dense", "slope 2:4", "block 16x16, density 0.5": what most layers are.
std::string describe_weights(const WeightsConfig& weights);

}  // namespace filigree
