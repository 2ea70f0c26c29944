// The metadata of cuSPARSELt's matrices: how much there is of it for a shape, and writing it. Included by
// nm_cusparselt*.cpp alone.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/nm/nm_cusparselt_library.h"
#include "kernels/nm/nm_format.h"
#include "kernels/nm/nm_metadata_cuda.h"

namespace filigree::cuda {

class CusparseltPacking {
 public:
  struct Matrix {
    std::string refusal;        // why the library does not take the shape; "": it does
    std::string order_unknown;  // why the library must write the metadata; "": we can
    bool described = false;
    cusparseLtMatDescriptor_t descriptor{};
    std::size_t compressed = 0, workspace = 0;  // bytes that the library's compression writes and needs
    std::size_t metadata = 0;                   // of `compressed`: what lies behind the values

    std::size_t workspace_begin() const { return (compressed + 255) / 256 * 256; }
  };

  // Both outlive this.
  CusparseltPacking(const CusparseltLibrary& library, const cusparseLtHandle_t& handle)
      : library_(library), handle_(handle) {}
  ~CusparseltPacking();
  CusparseltPacking(const CusparseltPacking&) = delete;
  CusparseltPacking& operator=(const CusparseltPacking&) = delete;

  // What is known of a shape; found out when it is first asked for.
  const Matrix& shape(Device& device, std::int64_t rows, std::int64_t columns);
  // As cusparselt_pack (nm_cusparselt.h).
  void pack(Device& device, const NmMatrix& matrix, bool by_library);

 private:
  // Memory for the library's compression: its own, or the device's scratch memory, which stays.
  struct Room {
    Tensor ones;               // (rows, columns) bf16
    std::byte* out = nullptr;  // compressed, and the library's workspace
    OwnedTensor owned_ones;
    Buffer owned_out;

    static Room made(Device& device, const Matrix& matrix, const Shape& shape);
    static Room scratch(Device& device, const Matrix& matrix, const Shape& shape);
  };

  void describe(Matrix& matrix, std::int64_t rows, std::int64_t columns) const;
  std::vector<std::uint32_t> spelled_numbers(Device& device, const Matrix& matrix) const;
  void learn_order(Device& device);
  std::string check_order(Device& device, const Matrix& matrix, Shape shape);
  Tensor compress_by_library(Device& device, const Matrix& matrix, const Tensor& mask, const Room& room) const;

  const CusparseltLibrary& library_;
  const cusparseLtHandle_t& handle_;
  std::map<std::pair<std::int64_t, std::int64_t>, Matrix> matrices_;  // by (rows, columns)
  bool order_sought_ = false;
  std::optional<MetadataTiles> tiles_;  // this GPU's order; empty: not understood
  OwnedTensor places_;                  // tiles_->places on the device
};

}  // namespace filigree::cuda
