#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace filigree {

Perplexity perplexity(Device& device, Transformer& model, Activations& activations, const DatasetView& data,
                      const PerplexityOptions& options) {
  const std::int64_t context = std::min(activations.sequence(), model.model().context);
  const Loader loader(data, context, SampleOrder::sequential);
  const std::int64_t total = options.max_tokens > 0 ? std::min(options.max_tokens, loader.targets()) : loader.targets();
  const Shape shape{options.batch, context};
  const OwnedTensor tokens = device.memory().tensor(Purpose::data, DType::i32, shape);
  const OwnedTensor targets = device.memory().tensor(Purpose::data, DType::i32, shape);
  std::vector<std::int32_t> read(static_cast<std::size_t>(shape.count())), following(read.size());

  double sum = 0.0;
  Perplexity result;
  std::int64_t index = 0;
  for (std::int64_t first = 0; first < loader.sequences() && result.targets < total; first += options.batch) {
    result.targets += loader.batch(first, options.batch, read.data(), following.data());
    if (index++ % options.parts != options.part) continue;
    device.copy_from_host(tokens, read.data());
    device.copy_from_host(targets, following.data());
    sum += model.loss(device, activations, tokens, targets);
    if (options.progress) options.progress(result.targets, total);
  }
  if (options.parts > 1) sum = options.sum(sum);
  require(result.targets > 0, "no target token to score");
  result.loss = sum / static_cast<double>(result.targets);
  result.perplexity = std::exp(result.loss);
  result.bits_per_byte = options.bytes_per_token > 0.0 ? result.loss / std::numbers::ln2 / options.bytes_per_token
                                                       : std::numeric_limits<double>::quiet_NaN();
  return result;
}

}  // namespace filigree
