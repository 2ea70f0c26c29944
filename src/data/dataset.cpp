#include "data/dataset.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"

namespace filigree {

DatasetView::DatasetView(const std::vector<std::filesystem::path>& shards, std::int64_t vocab)
    : starts_{0}, vocab_(vocab) {
  require_user(!shards.empty(), "no files of tokens are given");
  shards_.reserve(shards.size());
  for (const std::filesystem::path& path : shards) {
    shards_.emplace_back(path);
    checksum_ = shards_.back().check_ids(vocab, checksum_);
    starts_.push_back(starts_.back() + shards_.back().tokens());
  }
}

void DatasetView::read(std::int64_t begin, std::span<std::int32_t> ids) const {
  const auto count = static_cast<std::int64_t>(ids.size());
  require(begin >= 0 && begin <= tokens() && count <= tokens() - begin, "tokens outside the data");
  auto shard = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) - 1;
  for (std::int64_t done = 0; done < count; ++shard) {
    const std::int64_t from = begin + done - starts_[shard];
    const std::int64_t part = std::min(count - done, shards_[shard].tokens() - from);
    shards_[shard].read(from, ids.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(part)));
    done += part;
  }
}

}  // namespace filigree
