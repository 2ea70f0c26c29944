// The matrix of a linear layer in a checkpoint, whatever it is stored as.
#pragma once

#include "io/config.h"
#include "io/model_layers.h"
#include "sparsity/linear_weight.h"

namespace filigree {

// Fills dense (N, K), fp32: zeros where a sparse layer keeps nothing. `from` is the checkpoint's configuration;
// with_adapter adds the layer's adapter, which a dense layer never has.
void load_dense_matrix(Device& device, const CheckpointSource& source, const Config& from, const LinearShape& layer,
                       bool with_adapter, const Tensor& dense);

// Whether the layer is stored as a plain matrix: dense, or sparse in its dense phase.
bool is_stored_dense(const CheckpointSource& source, const std::string& layer);

}  // namespace filigree
