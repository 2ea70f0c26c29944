// What `filigree inspect --json` writes, a run keeps as inspect.json, the console prints at start-up and the HTML
// report draws: parameter counts, one row a layer, memory by purpose beside the dense model's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace filigree {

struct LayerSummary {
  std::string name;          // e.g. "blocks.3.mlp.up"
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  std::string method;        // "dense", "slope", ...
  std::string pattern;       // "2:4"; "" for dense
  double density = 1.0;      // kept / all
  std::string backend;  // which kernels serve it, e.g. "forward sparse, dx sparse, dw dense-after-unpack", with the
                        // reason where a sparse one cannot; "dense" of a dense layer
};

struct MemorySummary {
  std::string purpose;  // as name_of(Purpose)
  std::int64_t bytes = 0;
  std::int64_t dense_bytes = 0;  // of the same model with every layer dense
};

struct ModelSummary {
  std::int64_t dense_parameters = 0;  // counted with the zeros
  std::int64_t kept_parameters = 0;   // without
  std::vector<LayerSummary> layers;
  std::vector<MemorySummary> memory;
  double sparse_layers_ratio = 1.0;  // bytes of the sparse layers alone / bytes of the same layers dense
  // Scratch memory that all layers share, not part of `memory`: it belongs to no layer and has no dense counterpart. 0
  // where it is not known, which is before a first step.
  std::int64_t workspace_bytes = 0;
  // Of a run that begins dense: its first steps, in which it holds dense_bytes() while `memory` is of what follows. 0
  // where there are none, or the summary was made in them.
  std::int64_t dense_steps = 0;

  std::int64_t bytes() const;
  std::int64_t dense_bytes() const;
};

// What every memory table says of the workspace, one sentence.
std::string workspace_note(const ModelSummary& summary);
// What they say of a dense phase before the sparse one, and which of them is the peak; "" where there is none.
std::string dense_phase_note(const ModelSummary& summary);

// {"parameters": {"dense", "kept"}, "layers": [{"name", "rows", "columns", "method", "pattern", "density", "backend"}],
//  "memory": {PURPOSE: {"bytes", "dense_bytes"}, ..., "sparse_layers_ratio", "workspace_bytes"},
//  "dense_phase": {"steps", "bytes"}}; indented, keys in this order. workspace_bytes is there only where it is known,
// dense_phase only where there was one before.
std::string to_json(const ModelSummary& summary);
// Reads the above; unknown keys are ignored, missing ones keep their default. Throws Error when it is not such an
// object.
ModelSummary parse_model_summary(const std::string& text);

// Layers that differ only in the numbers of their names are one group, in the order of their first members.
struct LayerGroup {
  std::string name;    // "blocks.0-11.mlp.up", "blocks.0,2-4.mlp.up"
  LayerSummary layer;  // the first of them
  std::int64_t count = 0;
};
std::vector<LayerGroup> group_layers(const std::vector<LayerSummary>& layers);

}  // namespace filigree
