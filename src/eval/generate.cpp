#include "eval/generate.h"

#include <algorithm>

namespace filigree {

Generator::Generator(Device& device, Transformer& model, std::int64_t vocabulary)
    : device_(device),
      model_(model),
      vocabulary_(vocabulary > 0 ? std::min(vocabulary, model.model().vocab) : model.model().vocab),
      activations_(device, model.model(), model.config().run.precision, 1,
                   std::min(kPromptPiece, model.model().context), Recompute::inference),
      cache_(model.make_cache(device, 1, model.model().context)),
      tokens_(device.memory().tensor(Purpose::data, DType::i32, {1, activations_.sequence()})),
      logits_(device.memory().tensor(Purpose::activations, model.config().run.precision, {1, model.model().vocab})),
      host_logits_(logits_.view().bytes()) {}

void Generator::read(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    const std::size_t piece = std::min(ids.size(), static_cast<std::size_t>(activations_.sequence()));
    Tensor view = tokens_;
    view.shape = {1, static_cast<std::int64_t>(piece)};
    device_.copy_from_host(view, ids.data());
    model_.forward_cached(device_, activations_, view, cache_, logits_);
    ids = ids.subspan(piece);
  }
}

std::vector<std::int32_t> Generator::generate(std::span<const std::int32_t> prompt, std::int64_t count,
                                              const SamplingOptions& options,
                                              const std::function<bool(std::int32_t)>& stop) {
  require(!prompt.empty(), "generation needs a prompt of at least one token");
  Sampler sampler(options);
  const auto context = static_cast<std::size_t>(model_.model().context);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  // A prompt that fills the context keeps its end.
  const auto restart = [&] {
    cache_.length = 0;
    const std::size_t kept = std::min(text.size(), std::max<std::size_t>(context / 2, 1));
    read(std::span<const std::int32_t>(text).last(kept));
  };
  cache_.length = 0;
  if (text.size() < context)
    read(text);
  else
    restart();
  for (std::int64_t made = 0; made < count; ++made) {
    device_.copy_to_host(host_logits_.data(), logits_);
    const Tensor choices{host_logits_.data(), logits_.view().dtype, {vocabulary_}};
    const std::int32_t next = sampler.sample(choices, static_cast<std::int64_t>(text.size()));
    text.push_back(next);
    if (stop(next)) break;
    if (made + 1 == count) break;
    if (cache_.length == static_cast<std::int64_t>(context))
      restart();
    else
      read(std::span<const std::int32_t>(text).last(1));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace filigree
