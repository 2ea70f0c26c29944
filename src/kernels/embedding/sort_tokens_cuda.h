// Sorting tokens on a GPU, by cub's radix sort.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace filigree::cuda {

// Bytes of workspace that sort_tokens takes.
std::size_t sort_tokens_bytes(std::int64_t count, std::int64_t vocabulary);

// sorted (count) = tokens in ascending order, places (count) = where each of them was; equal tokens stay in their
// order. Tokens are in [0, vocabulary). `workspace` is aligned to 256 bytes. Asynchronous.
void sort_tokens(std::int32_t* sorted, std::int32_t* places, const std::int32_t* tokens, std::int64_t count,
                 std::int64_t vocabulary, void* workspace, CUstream_st* stream);

}  // namespace filigree::cuda
