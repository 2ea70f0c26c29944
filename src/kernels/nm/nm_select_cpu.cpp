// Choosing masks. Once a run: plain loops, by the host for a GPU too.
#include <algorithm>
#include <bit>
#include <vector>

#include "core/parallel.h"
#include "kernels/nm/nm_pack.h"
#include "kernels/nm/nm_vectors.h"

namespace filigree {
namespace {

void check(const char* name, const Tensor& mask, std::int64_t rows, std::int64_t columns, Pattern pattern) {
  require(pattern.keep >= 1 && pattern.keep < pattern.of && pattern.of <= 32,
          std::string(name) + ": no such pattern: " + to_string(pattern));
  require(columns % pattern.of == 0, std::string(name) + ": columns are no multiple of the pattern's group");
  require(mask.dtype == DType::u8 && mask.shape == Shape{rows, mask_bytes(columns)},
          std::string(name) + ": mask has another shape or type than the matrix says");
}

// Fills the mask with choose(row, group), the bits of one group. A thread owns whole rows, hence whole bytes.
template <typename Choose>
void fill_mask(Device& device, const Tensor& mask, std::int64_t rows, std::int64_t columns, Pattern pattern,
               Choose choose) {
  std::vector<std::uint8_t> staged(device.is_cuda() ? mask.bytes() : 0);
  auto* bytes = device.is_cuda() ? staged.data() : mask.as<std::uint8_t>();
  parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::uint8_t* out = bytes + row * mask_bytes(columns);
      std::fill_n(out, mask_bytes(columns), std::uint8_t{0});
      for (std::int64_t group = 0; group < columns / pattern.of; ++group)
        store_mask_bits(out, group * pattern.of, pattern.of, choose(row, group));
    }
  });
  if (device.is_cuda()) device.copy_from_host(mask, bytes);
}

}  // namespace

void nm_select_magnitude(Device& device, const Tensor& mask, const Tensor& weights, Pattern pattern) {
  require(weights.shape.rank() == 2, "nm_select_magnitude: weights must have two extents");
  const std::int64_t columns = weights.shape[1];
  check("nm_select_magnitude", mask, weights.shape[0], columns, pattern);
  with_compute_type(weights.dtype, [&]<typename T>() {
    std::vector<T> staged(static_cast<std::size_t>(device.is_cuda() ? weights.count() : 0));
    if (device.is_cuda()) device.copy_to_host(staged.data(), weights);
    const T* data = device.is_cuda() ? staged.data() : weights.as<T>();
    fill_mask(device, mask, weights.shape[0], columns, pattern, [&](std::int64_t row, std::int64_t group) {
      std::uint32_t magnitude[32];  // of finite numbers the bits have the order of the values
      for (int i = 0; i < pattern.of; ++i)
        magnitude[i] = std::bit_cast<std::uint32_t>(static_cast<float>(data[row * columns + group * pattern.of + i])) &
                       0x7fffffffu;
      std::uint64_t bits = 0;
      for (int i = 0; i < pattern.of; ++i) {
        int beaten = 0;
        for (int j = 0; j < pattern.of; ++j)
          beaten += j < i ? magnitude[j] >= magnitude[i] : magnitude[j] > magnitude[i];
        if (beaten < pattern.keep) bits |= std::uint64_t{1} << i;
      }
      return bits;
    });
  });
}

void nm_select_random(Device& device, const Tensor& mask, std::int64_t rows, std::int64_t columns, Pattern pattern,
                      const Random& random) {
  check("nm_select_random", mask, rows, columns, pattern);
  const std::int64_t groups = columns / pattern.of;
  const int blocks = (pattern.keep + 3) / 4;  // of four random words, one word a draw
  fill_mask(device, mask, rows, columns, pattern, [&](std::int64_t row, std::int64_t group) {
    const auto first = static_cast<std::uint64_t>((row * groups + group) * blocks);
    std::uint64_t bits = 0;
    for (int draw = 0; draw < pattern.keep; ++draw) {
      const std::uint32_t word =
          random.words(first + static_cast<std::uint64_t>(draw / 4))[static_cast<std::size_t>(draw % 4)];
      // The n-th place that is still free, n uniform: every choice of `keep` places is equally likely.
      auto n = static_cast<int>((std::uint64_t{word} * static_cast<std::uint64_t>(pattern.of - draw)) >> 32);
      int place = 0;
      while ((bits >> place & 1) != 0 || n-- > 0) ++place;
      bits |= std::uint64_t{1} << place;
    }
    return bits;
  });
}

}  // namespace filigree
