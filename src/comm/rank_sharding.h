// The optimizer's state shared out among the ranks of a communicator (distributed.zero; sparsity/state_sharding.h).
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "sparsity/parameter.h"

namespace filigree {

class RankSharding final : public StateSharding {
 public:
  // The communicator must outlive it.
  explicit RankSharding(Communicator& communicator) : communicator_(communicator) {}
  int rank() const override { return communicator_.rank(); }
  int ranks() const override { return communicator_.size(); }
  void gather(Device& device, const Tensor& whole, const Tensor& part) const override {
    communicator_.all_gather(device, whole, part).wait(device);
  }

 private:
  Communicator& communicator_;
};

// Each rank has updated what it keeps of the parameters: the values of the sharded ones become whole again.
void gather_values(Device& device, Communicator& communicator, const std::vector<Parameter*>& parameters);

}  // namespace filigree
