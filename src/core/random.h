// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A number depends on its key and its index alone, so that a resumed run needs no generator state, ranks agree without
// talking, and any element can be drawn in any order by any thread.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

// Called in kernels of a GPU, too. The compiler of one takes plain constexpr functions there; those that need the
// mathematical library are marked.
#ifdef __CUDACC__
#define FILIGREE_HOST_DEVICE __host__ __device__
#else
#define FILIGREE_HOST_DEVICE
#endif

namespace filigree {

// What a stream of numbers is for. Values are part of a run's identity: append, never renumber.
enum class RandomPurpose : std::uint32_t {
  initialization = 1,
  mask = 2,
  shuffle = 3,
  adapter = 4,
  sampling = 5,
  benchmark = 6,
  test = 7,
  exchange = 8,
};

class Random {
 public:
  // `stream` separates layers or tensors, `step` separates steps, under one seed and purpose.
  constexpr Random(std::uint64_t seed, RandomPurpose purpose, std::uint32_t stream = 0, std::uint32_t step = 0)
      : key_{static_cast<std::uint32_t>(seed),
             static_cast<std::uint32_t>(seed >> 32) ^ (static_cast<std::uint32_t>(purpose) * 0x9E3779B9u)},
        stream_(stream),
        step_(step) {}

  // Four independent 32-bit words for element block `index`.
  constexpr std::array<std::uint32_t, 4> words(std::uint64_t index) const {
    std::array<std::uint32_t, 4> x = {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                                      stream_, step_};
    std::uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * x[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * x[2];
      x = {static_cast<std::uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<std::uint32_t>(p0)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return x;
  }
  std::uint64_t u64(std::uint64_t index) const {
    const auto w = words(index);
    return (std::uint64_t{w[1]} << 32) | w[0];
  }
  // Uniform in [0, bound), without modulo bias worth mentioning (64-bit multiply-shift; bound < 2^32).
  std::uint32_t below(std::uint64_t index, std::uint32_t bound) const {
    return static_cast<std::uint32_t>((std::uint64_t{words(index)[0]} * bound) >> 32);
  }
  // Uniform in [0, 1), 24 bits.
  float uniform(std::uint64_t index) const { return static_cast<float>(words(index)[0] >> 8) * 0x1p-24f; }
  // Standard normal by Box-Muller from one block, in double so that every platform's libm agrees to fp32 rounding.
  FILIGREE_HOST_DEVICE float normal(std::uint64_t index) const {
    const auto w = words(index);
    const double u = (static_cast<double>(w[0]) + 1.0) * 0x1p-32;  // (0, 1]
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(w[1]) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(angle));
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t stream_;
  std::uint32_t step_;
};

}  // namespace filigree
