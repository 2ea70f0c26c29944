// Which kernel serves which product. Each distinct product of a run (its name, shape, pattern, types, tokens) is timed
// once at start-up with every candidate; the fastest is taken, kept in the run and in each checkpoint, and used again
// on resume. A rule without timing serves `run.deterministic`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "sparsity/parameter.h"

namespace filigree {

enum class Backend { sparse, dense };  // dense: the compressed operand is unpacked into shared workspace first

constexpr const char* name_of(Backend backend) {
  return backend == Backend::sparse ? "sparse" : "dense-after-unpack";
}

struct PlanEntry {
  Backend backend = Backend::sparse;
  double sparse_ms = 0.0;  // 0: not timed
  double dense_ms = 0.0;
  int algorithm = -1;  // of the library behind the sparse kernel, where it has several: it decides the order of sums
  std::string refusal = {};  // why there is no sparse kernel here; "" where there is one, or nobody has asked yet
};
// As in checkpoints: "dense-after-unpack", "sparse", "sparse, algorithm 17"; and back, nothing when it is none of them.
std::string to_text(const PlanEntry& entry);
std::optional<PlanEntry> plan_entry_of(const std::string& text);

// The kernels that can serve a product here, each computing it into the same place. dense is always there.
struct PlanCandidates {
  std::function<void()> sparse;  // null: there is none
  std::function<void()> dense;
  int algorithm = -1;        // kept with the choice of `sparse`
  std::string refusal = {};  // why there is no `sparse`
};

// What a product is called in tables and checkpoints: "forward 96x64 2:4 fp32 tokens 64", on a GPU " cuda" behind it.
// `subject` is the weight's plan_subject.
std::string plan_key(const std::string& product, const std::string& subject, std::int64_t tokens, bool gpu);

class PlanTable {
 public:
  // timing = false: every new product takes the sparse kernel where there is one (the fixed rule).
  explicit PlanTable(bool timing) : timing_(timing) {}

  // The entry of `key`, made now if it is new, or if what it names is not there any more; timed where there is a
  // choice.
  Backend choose(const Device& device, const std::string& key, const PlanCandidates& candidates);

  bool timing() const { return timing_; }
  const std::map<std::string, PlanEntry>& entries() const { return entries_; }
  // Takes over stored choices; a stored key is never timed again.
  void restore(std::map<std::string, PlanEntry> entries) { entries_ = std::move(entries); }

 private:
  bool timing_;
  std::map<std::string, PlanEntry> entries_;
};

// The products that run dense, each a line "\n  KEY: WHY"; "" when there are none.
std::string dense_choices(const std::map<std::string, PlanEntry>& entries);

// As LayerDescription::backend, from the choices of another process: of the device that has some, or of both; "" where
// there are none for this weight and number of tokens. A product that had no choice is dense (SLoPe's dW on a GPU).
std::string stored_backends(const std::map<std::string, PlanEntry>& entries, const std::string& subject,
                            std::int64_t tokens, Mode mode);

}  // namespace filigree
