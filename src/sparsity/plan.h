// Which kernel serves which product. Each distinct product of a run (its name, shape, pattern, types, tokens) is timed
// once at start-up with every candidate; the fastest is taken, kept in the run and in each checkpoint, and used again
// on resume. A rule without timing serves `run.deterministic`.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace filigree {

enum class Backend { sparse, dense };  // dense: the compressed operand is unpacked into shared workspace first

constexpr const char* name_of(Backend backend) {
  return backend == Backend::sparse ? "sparse" : "dense-after-unpack";
}

struct PlanEntry {
  Backend backend = Backend::sparse;
  double sparse_ms = 0.0;  // 0: not timed
  double dense_ms = 0.0;
};

class PlanTable {
 public:
  // timing = false: every new product takes the sparse kernel (the fixed rule).
  explicit PlanTable(bool timing) : timing_(timing) {}

  // The entry of `key`, timed now if it is new. The candidates must compute the same product into the same place.
  Backend choose(const std::string& key, const std::function<void()>& sparse, const std::function<void()>& dense);

  bool timing() const { return timing_; }
  const std::map<std::string, PlanEntry>& entries() const { return entries_; }
  // Takes over stored choices; a stored key is never timed again.
  void restore(std::map<std::string, PlanEntry> entries) { entries_ = std::move(entries); }

 private:
  bool timing_;
  std::map<std::string, PlanEntry> entries_;
};

}  // namespace filigree
