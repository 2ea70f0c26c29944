#include "data/batch_feed.h"

namespace filigree {

BatchFeed::BatchFeed(Device& device, const Loader& loader, std::int64_t sequences, std::int64_t first)
    : loader_(loader),
      sequences_(sequences),
      first_(first),
      slots_{Slot(device, {sequences, loader.context()}), Slot(device, {sequences, loader.context()})} {}

void BatchFeed::read(std::int64_t index) {
  Slot& to = slot(index);
  loader_.batch(first_ + index * sequences_, sequences_, static_cast<std::int32_t*>(to.tokens.host()),
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
