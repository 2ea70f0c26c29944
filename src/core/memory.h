// Owning memory, counted by purpose. Everything an engine run holds is allocated through a Memory, so that the table
// printed at start-up, `filigree inspect` and the test "the loop allocates nothing" all read the same counters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/tensor.h"

namespace filigree {

enum class Purpose : std::uint8_t {
  weights,
  metadata,
  masters,
  moments,
  gradients,
  activations,
  workspace,
  cache,
  data
};
inline constexpr int kPurposeCount = 9;

constexpr std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, kPurposeCount> names = {
      "weights", "metadata", "masters", "moments", "gradients", "activations", "workspace", "cache", "data"};
  return names[static_cast<std::size_t>(purpose)];
}

class Memory;

// A block of memory, 64-byte aligned (256 on a GPU), zeroed when it is allocated. Movable; freed on destruction.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

 private:
  friend class Memory;
  Buffer(Memory* memory, Purpose purpose, void* data, std::size_t bytes)
      : memory_(memory), data_(data), bytes_(bytes), purpose_(purpose) {}

  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Purpose purpose_ = Purpose::workspace;
};

// An owning tensor.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(Buffer buffer, DType dtype, Shape shape)
      : buffer_(std::move(buffer)), view_{buffer_.data(), dtype, shape} {}
  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // NOLINT: a view is what every kernel takes
  bool empty() const { return buffer_.empty(); }

 private:
  Buffer buffer_;
  Tensor view_;
};

// Allocates and counts: in the host's memory, in a GPU's, or, as a plan, only counts: its buffers have a size but no
// data, so that a model of any size can be laid out and its bytes be known exactly, by the code that would allocate
// them. Not thread-safe: allocation happens at set-up, on one thread. It must outlive its Buffers.
class Memory {
 public:
  enum class Kind : std::uint8_t { host, gpu, plan };
  explicit Memory(Kind kind = Kind::host) : kind_(kind) {}
  Kind kind() const { return kind_; }
  bool is_plan() const { return kind_ == Kind::plan; }

  // What needs less memory, for the message when there is too little: the caller knows what its user can set.
  void set_advice(std::string advice) { advice_ = std::move(advice); }
  // Throws Error naming the purpose and the bytes when the system refuses.
  Buffer allocate(Purpose purpose, std::size_t bytes);
  OwnedTensor tensor(Purpose purpose, DType dtype, Shape shape);

  std::int64_t bytes(Purpose purpose) const { return bytes_[static_cast<std::size_t>(purpose)]; }
  std::int64_t total() const;
  std::int64_t peak() const { return peak_; }
  // Number of allocations so far; equal before and after a training step once the loop is warm.
  std::int64_t allocations() const { return allocations_; }

 private:
  friend class Buffer;
  void* allocate_zeroed(Purpose purpose, std::size_t bytes) const;
  void release(Purpose purpose, void* data, std::size_t bytes) noexcept;

  Kind kind_;
  std::string advice_ = "a smaller batch or a shorter context needs less";
  std::array<std::int64_t, kPurposeCount> bytes_{};
  std::int64_t peak_ = 0;
  std::int64_t allocations_ = 0;
};

}  // namespace filigree
