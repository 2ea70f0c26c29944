#include "eval/log_likelihood.h"

#include <algorithm>
#include <map>

namespace filigree {
namespace {

// The texts that differ, and for each text the place of its equal among them.
struct Distinct {
  std::vector<const Continuation*> texts;
  std::vector<std::size_t> place;
};

Distinct distinct(std::span<const Continuation> texts) {
  Distinct result;
  const auto less = [](const Continuation* a, const Continuation* b) {
    return a->first != b->first ? a->first < b->first : a->ids < b->ids;
  };
  std::map<const Continuation*, std::size_t, decltype(less)> known(less);
  for (const Continuation& text : texts) {
    const auto [entry, is_new] = known.emplace(&text, result.texts.size());
    if (is_new) result.texts.push_back(&text);
    result.place.push_back(entry->second);
  }
  return result;
}

std::int64_t sequence_for(std::int64_t length, std::int64_t rows, std::int64_t context) {
  for (std::int64_t sequence = length; sequence < context; ++sequence)
    if (rows % sequence == 0) return sequence;
  return context;
}

}  // namespace

std::vector<Window> windows_of(const Continuation& text, std::size_t index, std::int64_t context) {
  const auto size = static_cast<std::int64_t>(text.ids.size());
  require(text.first >= 1 && text.first <= size, "a continuation needs a token before it");
  const bool fits = size - text.first <= context;
  std::vector<Window> windows;
  // From the end backwards: the last window reaches as far back as it can.
  for (std::int64_t end = size; end > text.first;) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - 1 - context);
    const std::int64_t seen = fits || begin == 0 ? 1 : std::max<std::int64_t>(context / 2, 1);
    const std::int64_t first = std::max(text.first, begin + seen);
    windows.push_back({index, begin, first, end});
    end = first;
  }
  return windows;
}

std::vector<Pass> plan_passes(std::span<const Window> sorted, std::int64_t rows, std::int64_t context) {
  std::vector<Pass> passes;
  for (std::size_t first = 0; first < sorted.size();) {
    const std::int64_t sequence = sequence_for(sorted[first].length(), rows, context);
    const std::size_t count = std::min(static_cast<std::size_t>(rows / sequence), sorted.size() - first);
    passes.push_back({first, count, sequence});
    first += count;
  }
  return passes;
}

std::vector<Likelihood> log_likelihoods(Device& device, Transformer& model, Activations& activations,
                                        std::span<const Continuation> texts,
                                        const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  const std::int64_t context = activations.sequence(), rows = activations.batch() * context;
  const Distinct all = distinct(texts);
  std::vector<Window> windows;
  for (std::size_t index = 0; index < all.texts.size(); ++index)
    for (const Window& window : windows_of(*all.texts[index], index, context)) windows.push_back(window);
  std::stable_sort(windows.begin(), windows.end(),
                   [](const Window& a, const Window& b) { return a.length() > b.length(); });
  const std::vector<Pass> passes = plan_passes(windows, rows, context);

  const OwnedTensor tokens = device.memory().tensor(Purpose::data, DType::i32, {rows});
  const OwnedTensor targets = device.memory().tensor(Purpose::data, DType::i32, {rows});
  const OwnedTensor greedy = device.memory().tensor(Purpose::data, DType::i32, {rows});
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(rows)), following(inputs.size()), best(inputs.size());
  std::vector<float> losses(inputs.size());
  std::vector<Likelihood> of_texts(all.texts.size());
  for (std::size_t done = 0; done < passes.size(); ++done) {
    const Pass& pass = passes[done];
    const Shape shape{rows / pass.sequence, pass.sequence};
    std::fill(inputs.begin(), inputs.end(), 0);
    std::fill(following.begin(), following.end(), -1);
    // Row of the target ids[at] of the i-th window of the pass.
    const auto row = [&](std::size_t i, const Window& window, std::int64_t at) {
      return static_cast<std::size_t>(static_cast<std::int64_t>(i) * pass.sequence + at - 1 - window.begin);
    };
    for (std::size_t i = 0; i < pass.count; ++i) {
      const Window& window = windows[pass.first + i];
      const auto& ids = all.texts[window.text]->ids;
      for (std::int64_t at = window.begin + 1; at < window.end; ++at) {
        inputs[row(i, window, at)] = ids[static_cast<std::size_t>(at - 1)];
        if (at >= window.first) following[row(i, window, at)] = ids[static_cast<std::size_t>(at)];
      }
    }
    device.copy_from_host(tokens, inputs.data());
    device.copy_from_host(targets, following.data());
    model.loss(device, activations, tokens.view().reshaped(shape), targets.view().reshaped(shape), greedy);
    device.copy_to_host(best.data(), greedy);
    device.copy_to_host(losses.data(), activations.losses(rows));
    for (std::size_t i = 0; i < pass.count; ++i) {
      const Window& window = windows[pass.first + i];
      Likelihood& text = of_texts[window.text];
      for (std::int64_t at = window.first; at < window.end; ++at) {
        text.log -= static_cast<double>(losses[row(i, window, at)]);
        text.greedy = text.greedy && best[row(i, window, at)] != 0;
      }
    }
    if (progress) progress(static_cast<std::int64_t>(done + 1), static_cast<std::int64_t>(passes.size()));
  }
  std::vector<Likelihood> results;
  for (const std::size_t place : all.place) results.push_back(of_texts[place]);
  return results;
}

}  // namespace filigree
