// What `inspect`, the start-up block and the report say about a model.
#pragma once

#include "model/transformer.h"
#include "report/model_summary.h"
#include "train/checkpoint.h"

namespace filigree {

// A description of a model that is built: its layers and what `device` holds for it, beside the same model dense (laid
// out, not allocated). Activations of this many sequences at once; 0 leaves them out of both columns. workspace_bytes
// stays 0: the caller knows whether a step was made.
ModelSummary summarize(Device& device, const Transformer& model, Mode mode, std::int64_t activation_batch);

// The same for a configuration, laid out without allocating: the bytes are those that a run would hold from its first
// step on, or, with weights.start, from its sparse phase on, or, with adapters, from their insertion on; with
// distributed.zero those of one of distributed.virtual_ranks. Kernels are chosen when a run starts.
ModelSummary plan_summary(const Config& config, Mode mode, std::int64_t activation_batch);

// The same of a checkpoint: its phase, its adapters, and the kernels that its run chose.
ModelSummary checkpoint_summary(const Config& config, const CheckpointReader& checkpoint, Mode mode,
                                std::int64_t activation_batch);

// Sequences that a training step of this configuration takes at once.
std::int64_t sequences_at_once(const Config& config);

// Bytes of the sparse layers' weights, masks, gradients and optimizer state, over those of the same layers dense;
// adapters apart. 1 when no layer is sparse.
double sparse_layers_ratio(const Transformer& model);

}  // namespace filigree
