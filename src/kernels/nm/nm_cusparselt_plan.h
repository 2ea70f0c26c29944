// One product planned by cuSPARSELt, and the search for the best one. Included by nm_cusparselt*.cpp alone.
#pragma once

#include <memory>

#include "kernels/nm/nm_cusparselt.h"
#include "kernels/nm/nm_cusparselt_library.h"

namespace filigree::cuda {

// y (T, N) = x (T, K) Wᵀ as the library sees it, without a transposition of anything: W (N, K) row-major, structured;
// times xᵀ, which is x row-major, transposed; gives yᵀ (N, T) column-major.
class CusparseltPlan {
 public:
  CusparseltPlan(Device& device, const CusparseltLibrary& library, const cusparseLtHandle_t& handle,
                 const CusparseltShape& shape, bool bias, int algorithm);
  ~CusparseltPlan();
  CusparseltPlan(const CusparseltPlan&) = delete;
  CusparseltPlan& operator=(const CusparseltPlan&) = delete;

  // Whether the library takes shape and algorithm. Nothing else may be asked of a plan that it does not take.
  cusparseStatus_t status() const { return status_; }
  int algorithm() const { return algorithm_; }
  int algorithms() const { return algorithms_; }  // those of this shape are 0 to here
  // Asynchronous, in the device's stream.
  cusparseStatus_t run(Device& device, const NmMatmulArgs& args) const;

 private:
  bool take(cusparseStatus_t status);

  const CusparseltLibrary& library_;
  const cusparseLtHandle_t& handle_;
  cusparseStatus_t status_ = CUSPARSE_STATUS_SUCCESS;
  int algorithm_ = 0, algorithms_ = 0;
  int described_ = 0;  // of the three matrices
  bool selected_ = false, planned_ = false;
  std::size_t workspace_ = 0;  // bytes
  OwnedTensor bias_;           // (N) bf16: the library's bias has y's type
  // The library keeps pointers between these.
  cusparseLtMatDescriptor_t weight_{}, x_{}, y_{};
  cusparseLtMatmulDescriptor_t matmul_{};
  cusparseLtMatmulAlgSelection_t selection_{};
  cusparseLtMatmulPlan_t plan_{};
};

CusparseltShape shape_of(const NmMatmulArgs& args);

// The plan that `algorithm` asks for (nm_cusparselt.h), with a bias when args have one, verified on args' operands;
// null with a reason.
std::unique_ptr<CusparseltPlan> find_cusparselt_plan(Device& device, const CusparseltLibrary& library,
                                                     const cusparseLtHandle_t& handle, const NmMatmulArgs& args,
                                                     int algorithm, std::string& refusal);

}  // namespace filigree::cuda
