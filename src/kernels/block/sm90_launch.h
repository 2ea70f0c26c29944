// Launches a kernel of the Hopper family: clusters of kSm90Cluster thread blocks, all of an SM's shared memory.
#pragma once

#include "core/cuda_error.h"
#include "kernels/block/block_plan.h"

namespace filigree::sm90 {

// A launch configuration, and the attribute that it points to.
struct ClusterLaunch {
  cudaLaunchAttribute cluster;
  cudaLaunchConfig_t config{};

  ClusterLaunch(int clusters, int threads, int shared_bytes, cudaStream_t stream) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {kSm90Cluster, 1, 1};
    config.gridDim = dim3(static_cast<unsigned>(clusters * kSm90Cluster));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;
};

template <typename... Parameters, typename... Arguments>
void launch_clusters(void (*kernel)(Parameters...), int clusters, int threads, int shared_bytes, cudaStream_t stream,
                     const Arguments&... arguments) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const ClusterLaunch launch(clusters, threads, shared_bytes, stream);
  check(cudaLaunchKernelEx(&launch.config, kernel, arguments...));
}

}  // namespace filigree::sm90
