// In place of attention_cudnn.cpp in a build that found no cuDNN frontend: every call goes to our own kernels.
#include "kernels/attention/attention_cuda.h"

namespace filigree::cuda {

std::string cudnn_name(Device&) {
  return "cuDNN";
}

std::string cudnn_refusal(Device&, const AttentionForwardArgs&) {
  return "this build has no cuDNN";
}

std::string cudnn_refusal(Device&, const AttentionBackwardArgs&) {
  return "this build has no cuDNN";
}

bool attention_forward_cudnn(Device&, const AttentionForwardArgs&) {
  return false;
}

bool attention_backward_cudnn(Device&, const AttentionBackwardArgs&) {
  return false;
}

}  // namespace filigree::cuda
