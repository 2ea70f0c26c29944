// Linked into test programs that compute on a GPU: skips all their tests, with the reason, where none can be used.
#include <gtest/gtest.h>

#include "core/cuda_runtime.h"

namespace filigree::testing {
namespace {

class NeedsGpu final : public ::testing::Environment {
  void SetUp() override {
    if (const std::string reason = cuda::unusable(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

const ::testing::Environment* const kNeedsGpu = ::testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace filigree::testing
