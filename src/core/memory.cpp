#include "core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "core/cuda_runtime.h"

namespace filigree {

namespace {
constexpr std::size_t kAlignment = 64;  // one cache line, one AVX-512 register
// Large buffers ask for huge pages: kernels that walk a matrix across its rows touch a page a row, and with 4 KB pages
// the N:M products lose 10 to 15 per cent to address translation (Xeon, 2048 x 2048).
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      purpose_(other.purpose_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (memory_) memory_->release(purpose_, data_, bytes_);
    memory_ = std::exchange(other.memory_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    purpose_ = other.purpose_;
  }
  return *this;
}

Buffer::~Buffer() {
  if (memory_) memory_->release(purpose_, data_, bytes_);
}

Buffer Memory::allocate(Purpose purpose, std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  if (kind_ != Kind::plan) data = allocate_zeroed(purpose, bytes);
  bytes_[static_cast<std::size_t>(purpose)] += static_cast<std::int64_t>(bytes);
  peak_ = std::max(peak_, total());
  ++allocations_;
  return Buffer(this, purpose, data, bytes);
}

void* Memory::allocate_zeroed(Purpose purpose, std::size_t bytes) const {
  if (kind_ == Kind::gpu) {
    void* data = cuda::allocate_zeroed(bytes);
    if (data == nullptr)
      throw Error("out of GPU memory: " + std::to_string(bytes) + " bytes for " + std::string(name_of(purpose)) + ", " +
                  std::to_string(cuda::free_bytes()) + " free, " + std::to_string(total()) + " already held; " +
                  advice_);
    return data;
  }
  const std::size_t alignment = bytes < kHugePage ? kAlignment : kHugePage;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (data == nullptr)
    throw Error("out of memory: " + std::to_string(bytes) + " bytes for " + std::string(name_of(purpose)) + ", " +
                std::to_string(total()) + " bytes already held; " + advice_);
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);  // a wish: refused where the system has none
  std::memset(data, 0, bytes);
  return data;
}

OwnedTensor Memory::tensor(Purpose purpose, DType dtype, Shape shape) {
  return OwnedTensor(allocate(purpose, static_cast<std::size_t>(shape.count()) * size_of(dtype)), dtype, shape);
}

std::int64_t Memory::total() const {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : bytes_) sum += bytes;
  return sum;
}

void Memory::release(Purpose purpose, void* data, std::size_t bytes) noexcept {
  if (kind_ == Kind::gpu)
    cuda::release(data);
  else
    std::free(data);
  bytes_[static_cast<std::size_t>(purpose)] -= static_cast<std::int64_t>(bytes);
}

}  // namespace filigree
