#include "data/batch_feed.h"

namespace filigree {

BatchFeed::BatchFeed(Device& device, const Loader& loader, const BatchShare& share)
    : loader_(loader),
      share_(share),
      slots_{Slot(device, {share.sequences, loader.context()}), Slot(device, {share.sequences, loader.context()})} {
  require(share.own % share.sequences == 0 && share.own <= share.all, "a share that is not whole micro-batches");
}

void BatchFeed::read(std::int64_t index) {
  Slot& to = slot(index);
  const std::int64_t per_batch = share_.own / share_.sequences;
  const std::int64_t sample = share_.first + index / per_batch * share_.all + index % per_batch * share_.sequences;
  loader_.batch(sample, share_.sequences, static_cast<std::int32_t*>(to.tokens.host()),
                static_cast<std::int32_t*>(to.targets.host()));
  to.tokens.send();
  to.targets.send();
  ready_ = index + 1;
}

BatchFeed::Batch BatchFeed::next() {
  if (ready_ == index_) read(index_);  // only the first: all others were read ahead
  const Slot& from = slot(index_);
  return {from.tokens.receive(), from.targets.receive()};
}

void BatchFeed::advance() {
  slot(index_).tokens.release();
  slot(index_).targets.release();
  ++index_;
  read(index_);
}

}  // namespace filigree
