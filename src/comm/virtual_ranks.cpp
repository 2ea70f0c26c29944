#include "comm/virtual_ranks.h"

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/agreement.h"
#include "core/cuda_runtime.h"
#include "kernels/elementwise/elementwise.h"

namespace filigree {
namespace {

// What the threads share: a place where all meet, and what each of them has put down there.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks), arrays_(slots()), texts_(slots()), events_(slots(), nullptr) {}

  // Returns when all ranks have called it.
  void meet() {
    std::unique_lock lock(mutex_);
    throw_if_lost();
    const std::uint64_t round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
      return;
    }
    all_here_.wait(lock, [&] { return round_ != round || lost_; });
    if (round_ == round) throw_if_lost();
  }
  void lose() {
    const std::scoped_lock lock(mutex_);
    lost_ = true;
    all_here_.notify_all();
  }

  int ranks() const { return ranks_; }
  std::span<const Tensor>& arrays(int rank) { return arrays_[static_cast<std::size_t>(rank)]; }
  std::string& text(int rank) { return texts_[static_cast<std::size_t>(rank)]; }
  CUevent_st*& event(int rank) { return events_[static_cast<std::size_t>(rank)]; }

 private:
  std::size_t slots() const { return static_cast<std::size_t>(ranks_); }
  void throw_if_lost() const {
    if (lost_) throw RankLost("another of the virtual ranks has failed");
  }

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  bool lost_ = false;
  std::vector<std::span<const Tensor>> arrays_;
  std::vector<std::string> texts_;
  std::vector<CUevent_st*> events_;
};

// Elements [begin, end) of an array as a vector.
Tensor piece(const Tensor& array, std::int64_t begin, std::int64_t end) {
  return array.reshaped({array.count()}).slice(begin, end - begin);
}

class VirtualRank final : public Communicator {
 public:
  VirtualRank(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  ~VirtualRank() override {
    if (event_) cuda::destroy_event(event_);
  }

  int rank() const override { return rank_; }
  int size() const override { return meeting_.ranks(); }
  std::string_view name() const override { return "virtual"; }

  using Communicator::all_gather;
  std::vector<std::string> all_gather(std::string_view text) override {
    meeting_.text(rank_) = text;
    meeting_.meet();
    std::vector<std::string> all;
    for (int other = 0; other < size(); ++other) all.push_back(meeting_.text(other));
    meeting_.meet();
    return all;
  }
  void give_up() noexcept override { meeting_.lose(); }

 protected:
  std::uint64_t start_all_reduce(Device& device, std::span<const Tensor> arrays) override {
    exchange(device, arrays, [&] {
      for (std::size_t index = 0; index < arrays.size(); ++index) {
        // Every rank adds one piece for all.
        const std::int64_t count = arrays[index].count();
        const std::int64_t begin = count * rank_ / size(), end = count * (rank_ + 1) / size();
        if (begin == end) continue;
        const Tensor total = add_pieces(device, index, begin, end);
        for (int other = 0; other < size(); ++other) convert(device, piece(theirs(other, index), begin, end), total);
      }
    });
    return 0;
  }

  std::uint64_t start_reduce_scatter(Device& device, const Tensor& part, const Tensor& array) override {
    exchange(device, std::span(&array, 1), [&] {
      const Tensor total = add_pieces(device, 0, part.count() * rank_, part.count() * (rank_ + 1));
      convert(device, piece(part, 0, part.count()), total);
    });
    return 0;
  }

  std::uint64_t start_all_gather(Device& device, const Tensor& array, const Tensor& part) override {
    exchange(device, std::span(&part, 1), [&] {
      for (int other = 0; other < size(); ++other) {
        const Tensor to = piece(array, part.count() * other, part.count() * (other + 1));
        const Tensor from = piece(theirs(other, 0), 0, part.count());
        if (to.data != from.data) device.copy(to, from);
      }
    });
    return 0;
  }

  std::uint64_t start_broadcast(Device& device, const Tensor& array, int root) override {
    exchange(device, std::span(&array, 1), [&] {
      if (rank_ != root) device.copy(array, theirs(root, 0));
    });
    return 0;
  }

  void wait(Device&, std::uint64_t) override {}  // all is done, or queued, when a call returns

 private:
  const Tensor& theirs(int rank, std::size_t index) { return meeting_.arrays(rank)[index]; }

  // The sum of these elements of array `index` over the ranks, in fp32 scratch memory.
  Tensor add_pieces(Device& device, std::size_t index, std::int64_t begin, std::int64_t end) {
    const Tensor own = piece(theirs(rank_, index), begin, end);
    Tensor total{device.scratch(Scratch::caller, static_cast<std::size_t>(end - begin) * sizeof(float)), DType::f32,
                 own.shape};
    convert(device, total, piece(theirs(0, index), begin, end));
    for (int other = 1; other < size(); ++other) add(device, total, piece(theirs(other, index), begin, end));
    return total;
  }

  // Calls work() when the arrays of all ranks are ready, and returns when every rank's work is done; on a GPU when it
  // is queued behind all of them, and what this rank queues next behind it.
  template <typename Work>
  void exchange(Device& device, std::span<const Tensor> arrays, const Work& work) {
    meeting_.arrays(rank_) = arrays;
    meet_in_stream(device);
    work();
    meet_in_stream(device);
  }
  void meet_in_stream(Device& device) {
    if (!device.is_cuda()) return meeting_.meet();
    if (!event_) event_ = cuda::create_event();
    meeting_.event(rank_) = event_;
    cuda::record(event_, device.stream());
    meeting_.meet();
    for (int other = 0; other < size(); ++other)
      if (other != rank_) cuda::wait(device.stream(), meeting_.event(other));
    meeting_.meet();  // the events are free again
  }

  Meeting& meeting_;
  const int rank_;
  CUevent_st* event_ = nullptr;
};

}  // namespace

void run_virtual_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  require(ranks >= 1, "at least one rank");
  Meeting meeting(ranks);
  std::mutex mutex;
  // What was thrown, by how much it says: that another rank was lost, that another rank says why, why.
  std::array<std::exception_ptr, 3> thrown;
  const auto keep = [&](std::size_t kind) {
    const std::scoped_lock lock(mutex);
    if (!thrown[kind]) thrown[kind] = std::current_exception();
    meeting.lose();
  };
  const auto run = [&](int rank) {
    try {
      VirtualRank communicator(meeting, rank);
      body(communicator);
    } catch (const RankLost&) {
      keep(0);
    } catch (const FailedElsewhere&) {
      keep(1);
    } catch (...) {
      keep(2);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t kind = thrown.size(); kind-- > 0;)
    if (thrown[kind]) std::rethrow_exception(thrown[kind]);
}

}  // namespace filigree
