// Where the arrays of a model of ours stand in a Hugging Face folder.
//
//   gpt2    our (N, K) matrices are stored as (K, N); query, key and value rows together, as here
//   opt     query, key and value are three tensors; the position table has two rows in front that are never used
//   llama   query, key and value, gate and up are tensors of their own; rotary positions turn the halves of a head, as
//           here, so that no row changes its place
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/hub/hub_config.h"

namespace filigree {

// A tensor of theirs, or a part of it: `rows` rows of one of our arrays.
struct HubPart {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t first = 0;   // row of theirs where they begin
  std::int64_t stored = 0;  // rows that theirs has in all
  bool transposed = false;  // stored as (columns, rows)
};

struct HubArray {
  std::string name;  // docs/formats.md
  std::int64_t rows = 0;
  std::int64_t columns = 0;    // 0: a vector of `rows` entries
  std::vector<HubPart> parts;  // one under the other

  // As a tensor of theirs is stored.
  std::vector<std::int64_t> stored_shape(const HubPart& part) const;
};

// All arrays of the dense model, in the order in which it computes.
std::vector<HubArray> hub_arrays(const HubModel& model);

// What their names begin with, and older files leave out.
std::string hub_prefix(const HubModel& model);

// Tensors that older files have and that hold nothing that was learnt: causal masks, rotary frequencies.
bool is_hub_buffer(const HubModel& model, const std::string& name);

inline constexpr const char* kHubHead = "lm_head.weight";

}  // namespace filigree
