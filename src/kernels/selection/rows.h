// Matrices of which few rows are not zero, as the gradient of an embedding is: lists of such rows and their values.
// V rows, C columns. Bitwise reproducible; asynchronous on a GPU.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

// indices (capacity) int32: the rows of matrix (V, C) fp32 that have an entry other than 0, ascending, and -1 behind
// them. There must not be more than `capacity`.
void list_rows(Device& device, const Tensor& indices, const Tensor& matrix);
// values (capacity, C), fp32 or bf16: the rows that indices name, 0 where it is -1.
void gather_rows(Device& device, const Tensor& values, const Tensor& indices, const Tensor& matrix);
// matrix (V, C) += values at the rows that indices name, which differ from each other.
void add_rows(Device& device, const Tensor& matrix, const Tensor& indices, const Tensor& values);

namespace cuda {  // the same on a GPU; called by the functions above
void list_rows(Device& device, const Tensor& indices, const Tensor& matrix);
void gather_rows(Device& device, const Tensor& values, const Tensor& indices, const Tensor& matrix);
void add_rows(Device& device, const Tensor& matrix, const Tensor& indices, const Tensor& values);
}  // namespace cuda

}  // namespace filigree
