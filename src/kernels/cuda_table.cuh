// Kernels that work on many arrays in one launch (all parameters, all gradients) read their list from device memory.
// Arrays are cut into pieces, a block takes a piece; the list names arrays, and a block finds its own among them. So
// the list is short, and it is copied only when it differs from the last one.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda_common.cuh"

namespace filigree::cuda {

enum class Table : std::uint8_t { adamw, sum_of_squares };
inline constexpr int kTableCount = 2;

class KernelTables : public LibraryState {
 public:
  // The list's copy in device memory, valid until the next call for the same table. Asynchronous.
  template <typename Entry>
  static const Entry* on_device(Device& device, Table which, const std::vector<Entry>& entries) {
    static_assert(std::has_unique_object_representations_v<Entry>, "lists are compared by their bytes");
    auto& tables = device.library<KernelTables>(Library::tables, [] { return std::make_unique<KernelTables>(); });
    Kept& kept = tables.kept_[static_cast<std::size_t>(which)];
    kept.update(device, std::as_bytes(std::span(entries)));
    return static_cast<const Entry*>(kept.device.data());
  }

 private:
  struct Kept {
    std::vector<std::byte> host;  // what the device's copy holds
    Buffer device;

    void update(Device& owner, std::span<const std::byte> list) {
      if (host.size() == list.size() && std::memcmp(host.data(), list.data(), list.size()) == 0) return;
      host.clear();
      if (device.bytes() < list.size()) {
        device = Buffer();
        device = owner.memory().allocate(Purpose::workspace, list.size());
      }
      copy(device.data(), list.data(), list.size(), Copy::to_device, owner.stream());
      host.assign(list.begin(), list.end());
    }
  };

  std::array<Kept, kTableCount> kept_;
};

// The entry that a piece belongs to: the last one whose `first_piece` is not above it. A whole warp asks for one piece;
// each round compares 32 entries, so that two rounds find one in a thousand.
template <typename Entry>
__device__ __forceinline__ int entry_of(const Entry* __restrict__ entries, int count, std::int32_t piece) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int low = 0, high = count;  // entry `low` begins at or before the piece, entry `high` after it
  while (high - low > 1) {
    const int step = (high - low + kWarp - 1) / kWarp;
    const int at = low + lane * step;
    const unsigned int votes = __ballot_sync(0xffffffffu, at < high && entries[at].first_piece <= piece);
    low += (__popc(votes) - 1) * step;
    high = min(low + step, high);
  }
  return low;
}

}  // namespace filigree::cuda
