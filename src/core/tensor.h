// A non-owning view of a contiguous row-major array. Kernels take Tensors; who owns the bytes is in memory.h.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"

namespace filigree {

// Up to four extents, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) {
    require(extents.size() <= kMaxRank, "a shape has at most four extents");
    for (const std::int64_t extent : extents) {
      require(extent >= 0, "negative extent");
      extents_[static_cast<std::size_t>(rank_++)] = extent;
    }
  }

  int rank() const { return rank_; }
  // Negative indices count from the innermost extent.
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis < 0 ? rank_ + axis : axis)]; }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= extents_[static_cast<std::size_t>(axis)];
    return product;
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int axis = 0; axis < a.rank_; ++axis)
      if (a[axis] != b[axis]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

inline std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank(); ++axis) text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + ")";
}

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t count() const { return shape.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * size_of(dtype); }
  bool empty() const { return data == nullptr; }

  // Typed access; throws if T is not the element type.
  template <typename T>
  T* as() const {
    require(dtype == dtype_of<T>, "tensor holds another element type");
    return static_cast<T*>(data);
  }

  // Rows [begin, begin + rows) of the outermost extent.
  Tensor slice(std::int64_t begin, std::int64_t rows) const {
    require(shape.rank() > 0 && begin >= 0 && rows >= 0 && begin + rows <= shape[0], "slice out of range");
    const std::int64_t row = shape[0] == 0 ? 0 : count() / shape[0];
    Tensor view = *this;
    view.data = static_cast<std::byte*>(data) + static_cast<std::size_t>(begin * row) * size_of(dtype);
    switch (shape.rank()) {
      case 1:
        view.shape = {rows};
        break;
      case 2:
        view.shape = {rows, shape[1]};
        break;
      case 3:
        view.shape = {rows, shape[1], shape[2]};
        break;
      default:
        view.shape = {rows, shape[1], shape[2], shape[3]};
        break;
    }
    return view;
  }
  // The same elements under another shape of equal count.
  Tensor reshaped(Shape other) const {
    require(other.count() == count(), "reshape changes the element count");
    Tensor view = *this;
    view.shape = other;
    return view;
  }
};

}  // namespace filigree
