// One step of AdamW, and which part of which parameter it is of.
#pragma once

#include "kernels/adamw/adamw.h"
#include "sparsity/parameter.h"

namespace filigree {

// A parameter's update as plain AdamW would be called: adamw(device, {args}) is right unless an exchange of gradients
// has more to say (which entries were sent, what else the moments take). args are of elements [begin, begin +
// args.count): all of them, or, where the optimizer's state is sharded, what this rank keeps.
struct ParameterUpdate {
  Parameter* parameter = nullptr;
  std::int64_t begin = 0;
  AdamWArgs args;
};

}  // namespace filigree
