#include "comm/mpi_engine.h"

#include <mpi.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/buffer_pool.h"
#include "comm/vigil.h"
#include "core/error.h"

namespace filigree {
namespace {

using Clock = Vigil::Clock;
using namespace std::chrono_literals;

// MPI counts in int: longer arrays are cut.
constexpr std::int64_t kLongest = std::int64_t{1} << 30;
// How long the thread sleeps when nothing is under way, and how long a word may take to leave a process that ends.
constexpr auto kNap = 2ms;
constexpr auto kLastWord = 500ms;
// What a rank without a message waits before it ends: launchers end all ranks when one has, and the one that says why
// comes first.
constexpr auto kAfterYou = 500ms;

// Words between the ranks: tags, and what they carry.
constexpr int kAlive = 1, kLost = 2, kGivenUp = 3, kStuck = 4;
struct Message {
  int about = 0;         // the rank that is lost, has given up, or is stuck
  Vigil::Report report;  // of the sender, with kAlive
};

constexpr const char* kBroken =
    "the connection to another rank is broken: the run stops on all ranks. Its last checkpoint is as it was; go on "
    "with "
    "--resume";

// A text's first bytes travel with its length: what ranks tell each other in a step fits.
struct Slot {
  std::uint64_t length = 0;
  char begin[56] = {};
};

// bf16 numbers, which MPI does not know, as 16 bits each.
void add_bf16(void* in, void* inout, int* length, MPI_Datatype*) {
  const auto* from = static_cast<const bf16*>(in);
  auto* to = static_cast<bf16*>(inout);
  for (int i = 0; i < *length; ++i) to[i] = bf16(static_cast<float>(to[i]) + static_cast<float>(from[i]));
}

MPI_Datatype type_of(DType dtype) {
  if (dtype == DType::f32) return MPI_FLOAT;
  if (size_of(dtype) == 4) return MPI_UINT32_T;
  return size_of(dtype) == 2 ? MPI_UINT16_T : MPI_BYTE;
}

}  // namespace

class MpiEngine::Thread {
 public:
  Thread(int size, std::chrono::duration<double> timeout)
      : expected_(size), timeout_(timeout), thread_([this] { run(); }) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_; });
    if (refusal_.empty()) return;
    lock.unlock();
    thread_.join();
    throw UserError(refusal_);
  }
  ~Thread() {
    vigil_->notice();
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  Vigil& vigil() { return *vigil_; }

  // Begins something: `start` makes requests, `end` is called when all of them are done. Both run in this thread.
  struct Work {
    std::function<void(std::vector<MPI_Request>&)> start;
    std::function<void()> end;
    std::vector<MPI_Request> requests = {};
    std::uint64_t number = 0;
  };
  std::uint64_t begin(Work work) {
    std::unique_lock lock(mutex_);
    if (vigil_->lost()) {
      changed_.wait(lock, [&] { return lost_; });
      lock.unlock();
      vigil_->throw_if_lost();
    }
    work.number = ++last_;
    fresh_.push_back(std::move(work));
    changed_.notify_all();
    return last_;
  }
  void wait(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number || lost_; });
    if (done_ >= number) return;
    lock.unlock();
    vigil_->throw_if_lost();
  }
  void give_up() {
    const std::scoped_lock lock(mutex_);
    giving_up_ = true;
    changed_.notify_all();
  }

  MPI_Comm arrays() const { return arrays_; }
  MPI_Comm values() const { return values_; }
  MPI_Op adding(DType dtype) const { return dtype == DType::f32 ? MPI_SUM : add_bf16_; }
  // Memory for what a collective sends or receives beside the caller's array.
  BufferPool& buffers() { return buffers_; }

 private:
  void run() {
    start_mpi();
    {
      const std::scoped_lock lock(mutex_);
      started_ = true;
      changed_.notify_all();
      if (!refusal_.empty()) return;
    }
    while (!ended()) {
      take_fresh();
      carry_on();
      talk();
      if (vigil_->lost()) return end_lost();
      if (!working_.empty()) {
        std::this_thread::yield();
        continue;
      }
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kNap, [&] { return !fresh_.empty() || ending_ || giving_up_; });
    }
    if (giving_up_) return end_given_up();
    leave();
  }

  void start_mpi() {
    int provided = 0, size = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    size_ = size;
    if (size != expected_) {
      refusal_ = "the launcher started " + std::to_string(expected_) + " ranks, but MPI knows " + std::to_string(size) +
                 " of them: it is another MPI than the one that filigree was built with, or under srun has no PMIx "
                 "(srun --mpi=pmix)";
      MPI_Finalize();
      return;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &arrays_);
    MPI_Comm_dup(MPI_COMM_WORLD, &values_);
    MPI_Comm_dup(MPI_COMM_WORLD, &words_);
    for (MPI_Comm communicator : {arrays_, values_, words_}) MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    MPI_Op_create(add_bf16, 1, &add_bf16_);
    vigil_.emplace(rank_, size_, timeout_);
  }

  bool ended() {
    const std::scoped_lock lock(mutex_);
    return giving_up_ || (ending_ && fresh_.empty() && working_.empty());
  }

  void take_fresh() {
    std::deque<Work> fresh;
    {
      const std::scoped_lock lock(mutex_);
      fresh.swap(fresh_);
    }
    for (Work& work : fresh) {
      work.start(work.requests);
      working_.push_back(std::move(work));
    }
  }

  void carry_on() {
    std::uint64_t done = 0;
    for (Work& work : working_) {
      int all = 0;
      if (MPI_Testall(static_cast<int>(work.requests.size()), work.requests.data(), &all, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS)
        vigil_->lose(kBroken, rank_ == 0);
      if (!all) break;
      work.end();
      done = work.number;
    }
    if (done == 0) return;
    while (!working_.empty() && working_.front().number <= done) working_.pop_front();
    const std::scoped_lock lock(mutex_);
    done_ = done;
    changed_.notify_all();
  }

  // Sends this rank's word where it is due, and hears the others'.
  void talk() {
    const auto now = Clock::now();
    if (now - last_talk_ < 1ms) return;
    last_talk_ = now;
    if (now - last_word_ >= vigil_->interval()) {
      last_word_ = now;
      for (const int other : vigil_->watched()) send(other, kAlive, 0);
    }
    listen();
    // What the rank has still taken part in may be on its way: this one may be about to learn by itself why.
    if (failed_ && (working_.empty() || now - failed_since_ > kLastWord)) return lose(*failed_, false);
    if (const auto overdue = vigil_->overdue()) return lose(*overdue, true);
    if (rank_ > 0) return;
    if (const auto stuck = vigil_->stuck()) {
      for (const int other : vigil_->watched()) send(other, kStuck, *stuck);
      vigil_->lose(vigil_->idleness(*stuck), vigil_->tells_of(*stuck));
    }
  }

  void listen() {
    for (int there = 1; there != 0;) {
      MPI_Status status;
      if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, words_, &there, &status) != MPI_SUCCESS || there == 0) return;
      Message message;
      MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, words_, MPI_STATUS_IGNORE);
      if (status.MPI_TAG == kAlive)
        vigil_->heard(status.MPI_SOURCE, message.report);
      else
        vigil_->heard(status.MPI_SOURCE);
      if ((status.MPI_TAG == kLost || status.MPI_TAG == kGivenUp) && !failed_) {
        failed_ = message.about;
        failed_since_ = Clock::now();
      }
      if (status.MPI_TAG == kStuck) vigil_->lose(vigil_->idleness(message.about), vigil_->tells_of(message.about));
    }
  }

  // Rank `other` is lost: by its silence, or because it, or the first, says so.
  void lose(int other, bool silent) {
    if (rank_ == 0)
      for (const int each : vigil_->watched())
        if (each != other) send(each, kLost, other);
    vigil_->lose(silent ? vigil_->silence(other) : "rank " + std::to_string(other) + " has failed",
                 silent && vigil_->tells_of(other));
  }

  struct Word {
    Message message;
    MPI_Request request;
  };
  void send(int to, int tag, int about) {
    // Words that have left make room. One to a rank that is stopped may stay: so be it.
    while (!sent_.empty()) {
      int gone = 0;
      MPI_Test(&sent_.front()->request, &gone, MPI_STATUS_IGNORE);
      if (!gone) break;
      sent_.pop_front();
    }
    sent_.push_back(std::make_unique<Word>(Word{{.about = about, .report = vigil_->own()}, MPI_REQUEST_NULL}));
    Word& word = *sent_.back();
    MPI_Isend(&word.message, sizeof word.message, MPI_BYTE, to, tag, words_, &word.request);
  }
  // Gives words a moment to leave, also those behind one that cannot.
  void flush() {
    for (const auto until = Clock::now() + kLastWord; Clock::now() < until;) {
      bool all = true;
      for (const auto& word : sent_) {
        int gone = 0;
        MPI_Test(&word->request, &gone, MPI_STATUS_IGNORE);
        all = all && gone;
      }
      if (all) return;
      std::this_thread::yield();
    }
  }

  void end_lost() {
    // While words leave the library may go on with what is under way. Only then may the others learn that the run is
    // lost, and give the arrays away.
    flush();
    {
      const std::scoped_lock lock(mutex_);
      lost_ = true;
      changed_.notify_all();
    }
    vigil_->end_unless_noticed();
    if (!vigil_->says_why()) std::this_thread::sleep_for(kAfterYou);
  }
  void end_given_up() {
    for (const int other : vigil_->watched()) send(other, kGivenUp, rank_);
    flush();
  }
  // All that was begun is done: the ranks leave together.
  void leave() {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(values_, &request);
    for (int all = 0; all == 0 && !vigil_->lost();) {
      MPI_Test(&request, &all, MPI_STATUS_IGNORE);
      if (all) break;
      talk();
      std::this_thread::sleep_for(100us);
    }
    if (vigil_->lost()) return end_lost();
    MPI_Finalize();
  }

  const int expected_;
  const std::chrono::duration<double> timeout_;
  int rank_ = 0, size_ = 1;
  MPI_Comm arrays_ = MPI_COMM_NULL, values_ = MPI_COMM_NULL, words_ = MPI_COMM_NULL;
  MPI_Op add_bf16_ = MPI_OP_NULL;
  std::optional<Vigil> vigil_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false, ending_ = false, giving_up_ = false, lost_ = false;
  std::string refusal_;
  std::deque<Work> fresh_;
  std::uint64_t last_ = 0, done_ = 0;

  // The thread's own.
  std::deque<Work> working_;
  BufferPool buffers_;
  std::deque<std::unique_ptr<Word>> sent_;
  Clock::time_point last_word_{}, last_talk_{}, failed_since_{};
  std::optional<int> failed_;  // a rank that has failed, as it says or the first
  std::thread thread_;
};

bool has_mpi() {
  return true;
}

MpiEngine::MpiEngine(int size, std::chrono::duration<double> timeout)
    : thread_(std::make_unique<Thread>(size, timeout)) {}
MpiEngine::~MpiEngine() = default;

int MpiEngine::rank() const {
  return thread_->rank();
}
int MpiEngine::size() const {
  return thread_->size();
}
void MpiEngine::wait(std::uint64_t number) {
  thread_->wait(number);
}
void MpiEngine::give_up() noexcept {
  thread_->give_up();
}
void MpiEngine::entered() noexcept {
  thread_->vigil().entered();
}
void MpiEngine::progress() noexcept {
  thread_->vigil().progress();
}

std::uint64_t MpiEngine::all_reduce(std::span<const Tensor> arrays) {
  // Not in place: Open MPI would not take the ring then.
  struct Copies {
    std::vector<Tensor> arrays;
    std::vector<BufferPool::Buffer> sent;
  };
  const auto copies = std::make_shared<Copies>();
  copies->arrays.assign(arrays.begin(), arrays.end());
  Thread& thread = *thread_;
  return thread.begin({.start =
                           [&thread, copies](std::vector<MPI_Request>& requests) {
                             for (const Tensor& array : copies->arrays) {
                               copies->sent.push_back(thread.buffers().borrow(array.bytes()));
                               std::memcpy(copies->sent.back().data(), array.data, array.bytes());
                               for (std::int64_t begin = 0; begin < array.count(); begin += kLongest) {
                                 const std::size_t offset = static_cast<std::size_t>(begin) * size_of(array.dtype);
                                 MPI_Iallreduce(
                                     copies->sent.back().data() + offset, static_cast<std::byte*>(array.data) + offset,
                                     static_cast<int>(std::min(kLongest, array.count() - begin)), type_of(array.dtype),
                                     thread.adding(array.dtype), thread.arrays(), &requests.emplace_back());
                               }
                             }
                           },
                       .end =
                           [&thread, copies] {
                             for (auto& memory : copies->sent) thread.buffers().give_back(std::move(memory));
                           }});
}

std::uint64_t MpiEngine::reduce_scatter(const Tensor& part, const Tensor& array) {
  require(part.count() <= kLongest, "a part of an array is too long for MPI");
  const auto sum = std::make_shared<BufferPool::Buffer>();
  Thread& thread = *thread_;
  return thread.begin({.start =
                           [&thread, sum, part, array](std::vector<MPI_Request>& requests) {
                             *sum = thread.buffers().borrow(part.bytes());
                             MPI_Ireduce_scatter_block(array.data, sum->data(), static_cast<int>(part.count()),
                                                       type_of(array.dtype), thread.adding(array.dtype),
                                                       thread.arrays(), &requests.emplace_back());
                           },
                       .end =
                           [&thread, sum, part] {
                             std::memcpy(part.data, sum->data(), part.bytes());
                             thread.buffers().give_back(std::move(*sum));
                           }});
}

std::uint64_t MpiEngine::all_gather(const Tensor& array, const Tensor& part) {
  require(part.count() <= kLongest, "a part of an array is too long for MPI");
  Thread& thread = *thread_;
  const auto* own = static_cast<const std::byte*>(array.data) + static_cast<std::size_t>(thread.rank()) * part.bytes();
  const bool in_place = own == part.data;
  return thread.begin({.start =
                           [&thread, array, part, in_place](std::vector<MPI_Request>& requests) {
                             const auto count = static_cast<int>(part.count());
                             const MPI_Datatype type = type_of(array.dtype);
                             MPI_Iallgather(in_place ? MPI_IN_PLACE : part.data, count, type, array.data, count, type,
                                            thread.arrays(), &requests.emplace_back());
                           },
                       .end = [] {}});
}

std::uint64_t MpiEngine::broadcast(const Tensor& array, int root) {
  Thread& thread = *thread_;
  return thread.begin({.start =
                           [&thread, array, root](std::vector<MPI_Request>& requests) {
                             for (std::int64_t begin = 0; begin < array.count(); begin += kLongest) {
                               const std::size_t offset = static_cast<std::size_t>(begin) * size_of(array.dtype);
                               MPI_Ibcast(static_cast<std::byte*>(array.data) + offset,
                                          static_cast<int>(std::min(kLongest, array.count() - begin)),
                                          type_of(array.dtype), root, thread.arrays(), &requests.emplace_back());
                             }
                           },
                       .end = [] {}});
}

std::vector<std::string> MpiEngine::all_gather(std::string_view text) {
  Thread& thread = *thread_;
  entered();
  const auto ranks = static_cast<std::size_t>(thread.size());
  Slot mine{.length = text.size()};
  std::memcpy(mine.begin, text.data(), std::min(text.size(), sizeof mine.begin));
  std::vector<Slot> slots(ranks);
  thread.wait(thread.begin({.start =
                                [&](std::vector<MPI_Request>& requests) {
                                  MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, slots.data(), sizeof mine, MPI_BYTE,
                                                 thread.values(), &requests.emplace_back());
                                },
                            .end = [] {}}));
  std::vector<std::string> all;
  std::vector<int> lengths, offsets;
  int total = 0;
  for (const Slot& slot : slots) {
    all.emplace_back(slot.begin, std::min<std::size_t>(slot.length, sizeof slot.begin));
    offsets.push_back(total);
    lengths.push_back(static_cast<int>(slot.length));
    total += lengths.back();
  }
  const auto fits = [](const Slot& slot) { return slot.length <= sizeof slot.begin; };
  if (std::all_of(slots.begin(), slots.end(), fits)) return all;
  std::string joined(static_cast<std::size_t>(total), '\0');
  thread.wait(thread.begin({.start =
                                [&](std::vector<MPI_Request>& requests) {
                                  MPI_Iallgatherv(text.data(), static_cast<int>(text.size()), MPI_BYTE, joined.data(),
                                                  lengths.data(), offsets.data(), MPI_BYTE, thread.values(),
                                                  &requests.emplace_back());
                                },
                            .end = [] {}}));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    all[rank] = joined.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(lengths[rank]));
  return all;
}

}  // namespace filigree
