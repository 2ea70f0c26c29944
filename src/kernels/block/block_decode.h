// The forward product for a few tokens, as in decoding: weights are read once, where they lie. Called by
// cpu::block_product.
#pragma once

#include "kernels/block/block_products.h"

namespace filigree::cpu {

void block_decode(Device& device, const BlockProductArgs& args, const NmTarget& target);

}  // namespace filigree::cpu
