#include "comm/rank_sharding.h"

namespace filigree {

void gather_values(Device& device, Communicator& communicator, const std::vector<Parameter*>& parameters) {
  std::vector<Pending> pending;
  for (const Parameter* parameter : parameters) {
    if (!parameter->sharded()) continue;
    const StateShard& shard = parameter->shard();
    const Tensor values = parameter->values().reshaped({parameter->count()});
    pending.push_back(
        communicator.all_gather(device, values.slice(0, shard.rest_begin), values.slice(shard.begin, shard.part)));
  }
  for (Pending& one : pending) one.wait(device);
}

}  // namespace filigree
