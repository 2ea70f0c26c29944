#include "sparsity/plan.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>

namespace filigree {
namespace {

constexpr const char* kAlgorithm = ", algorithm ";

// The fastest of a few runs after one warm-up: start-up must not take long, and noise only ever adds time. On a GPU
// several in a row are timed as one, or the way there and back would count as much as a short product.
double fastest_ms(const Device& device, const std::function<void()>& run) {
  const int row = device.is_cuda() ? 10 : 1;
  run();
  device.synchronize();
  double best = std::numeric_limits<double>::infinity();
  double total = 0.0;
  for (int repeat = 0; repeat < 5 && total < 300.0; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < row; ++i) run();
    device.synchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, ms / row);
    total += ms;
  }
  return best;
}

}  // namespace

std::string to_text(const PlanEntry& entry) {
  std::string text = name_of(entry.backend);
  if (entry.backend == Backend::sparse && entry.algorithm >= 0) text += kAlgorithm + std::to_string(entry.algorithm);
  return text;
}

std::optional<PlanEntry> plan_entry_of(const std::string& text) {
  if (text == name_of(Backend::dense)) return PlanEntry{.backend = Backend::dense};
  if (text == name_of(Backend::sparse)) return PlanEntry{};
  const std::string prefix = std::string(name_of(Backend::sparse)) + kAlgorithm;
  if (!text.starts_with(prefix)) return std::nullopt;
  PlanEntry entry;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + prefix.size(), end, entry.algorithm);
  if (error != std::errc() || stop != end || entry.algorithm < 0) return std::nullopt;
  return entry;
}

Backend PlanTable::choose(const Device& device, const std::string& key, const PlanCandidates& candidates) {
  const bool has_sparse = static_cast<bool>(candidates.sparse);
  if (const auto found = entries_.find(key);
      found != entries_.end() && (has_sparse || found->second.backend == Backend::dense)) {
    found->second.refusal = candidates.refusal;
    return found->second.backend;
  }
  PlanEntry entry{.backend = has_sparse ? Backend::sparse : Backend::dense, .refusal = candidates.refusal};
  if (timing_ && has_sparse) {
    entry.sparse_ms = fastest_ms(device, candidates.sparse);
    entry.dense_ms = fastest_ms(device, candidates.dense);
    entry.backend = entry.sparse_ms <= entry.dense_ms ? Backend::sparse : Backend::dense;
  }
  if (entry.backend == Backend::sparse) entry.algorithm = candidates.algorithm;
  entries_.insert_or_assign(key, entry);
  return entry.backend;
}

std::string plan_key(const std::string& product, const std::string& subject, std::int64_t tokens, bool gpu) {
  return product + " " + subject + " tokens " + std::to_string(tokens) + (gpu ? " cuda" : "");
}

std::string dense_choices(const std::map<std::string, PlanEntry>& entries) {
  std::string text;
  for (const auto& [key, entry] : entries) {
    if (entry.backend != Backend::dense) continue;
    std::string why = entry.refusal;
    if (why.empty() && entry.sparse_ms > 0.0) {
      char times[96];
      std::snprintf(times, sizeof times, "the dense product is faster, %.3g ms to %.3g", entry.dense_ms,
                    entry.sparse_ms);
      why = times;
    }
    text += "\n  " + key + ": " + (why.empty() ? "so its checkpoint says" : why);
  }
  return text;
}

std::string stored_backends(const std::map<std::string, PlanEntry>& entries, const std::string& subject,
                            std::int64_t tokens, Mode mode) {
  std::string text;
  for (const bool gpu : {false, true}) {
    std::string line;
    bool any = false;
    for (const char* product : {"forward", "dx", "dw"}) {
      if (mode == Mode::inference && std::string(product) != "forward") continue;
      const auto found = entries.find(plan_key(product, subject, tokens, gpu));
      any = any || found != entries.end();
      line += std::string(line.empty() ? "" : ", ") + product + " " +
              name_of(found == entries.end() ? Backend::dense : found->second.backend);
    }
    if (any) text += text.empty() ? line : "; on a GPU " + line;
  }
  return text;
}

}  // namespace filigree
