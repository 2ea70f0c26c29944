// Operands of products that a plan times or verifies.
#pragma once

#include <algorithm>
#include <vector>

#include "core/device.h"
#include "core/random.h"

namespace filigree {

// A random tensor, made when it is first asked for: where a plan knows its choices, nothing is allocated. Zeros would
// flatter whatever they are timed with. Large ones repeat a piece: the numbers' worth is that they are not alike.
class RandomOperand {
 public:
  RandomOperand(Device& device, const Random& random, DType dtype, Shape shape)
      : device_(device), random_(random), dtype_(dtype), shape_(shape) {}

  const Tensor& get() {
    if (tensor_.empty()) make();
    return tensor_;
  }

 private:
  void make() {
    tensor_ = device_.memory().tensor(Purpose::workspace, dtype_, shape_);
    const std::int64_t count = shape_.count(), piece = std::min(count, std::int64_t{1} << 20);
    with_compute_type(dtype_, [&]<typename T>() {
      std::vector<T> values(static_cast<std::size_t>(piece));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(random_.uniform(i) - 0.5f);
      T* to = tensor_.view().as<T>();
      for (std::int64_t begin = 0; begin < count; begin += piece)
        device_.copy_from_host({to + begin, dtype_, {std::min(piece, count - begin)}}, values.data());
    });
  }

  Device& device_;
  Random random_;
  DType dtype_;
  Shape shape_;
  OwnedTensor tensor_;
};

}  // namespace filigree
