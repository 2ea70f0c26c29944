#include "comm/nccl_communicator.h"

#include <dlfcn.h>
#include <nccl.h>

#include <array>
#include <cstring>

#include "core/cuda_error.h"

namespace filigree {
namespace {

// The library, loaded when it is first asked for; it stays loaded to the program's end.
struct NcclLibrary {
  std::string refusal;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;

  void check(ncclResult_t status, std::source_location at = std::source_location::current()) const {
    if (status == ncclSuccess || status == ncclInProgress) return;
    throw Error(located(std::string("NCCL: ") + error_string(status) + ", " + last_error(nullptr), at));
  }
};

NcclLibrary load() {
  NcclLibrary found;
  constexpr const char* kName = "libnccl.so.2";
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen(FILIGREE_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    found.refusal = std::string("NCCL cannot be loaded: ") + (reason ? reason : kName);
    return found;
  }
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) found.refusal = std::string("NCCL has no ") + name + ": another version is needed";
  };
  find(found.get_unique_id, "ncclGetUniqueId");
  find(found.init_rank, "ncclCommInitRank");
  find(found.destroy, "ncclCommDestroy");
  find(found.abort, "ncclCommAbort");
  find(found.error_string, "ncclGetErrorString");
  find(found.last_error, "ncclGetLastError");
  find(found.group_start, "ncclGroupStart");
  find(found.group_end, "ncclGroupEnd");
  find(found.all_reduce, "ncclAllReduce");
  find(found.reduce_scatter, "ncclReduceScatter");
  find(found.all_gather, "ncclAllGather");
  find(found.broadcast, "ncclBroadcast");
  return found;
}

const NcclLibrary& nccl() {
  static const NcclLibrary library = load();
  return library;
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    default:
      require(size_of(dtype) == 1, "NCCL does not carry this type");
      return ncclUint8;
  }
}

std::size_t count_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.count());
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(std::unique_ptr<Control> control) : control_(std::move(control)) {}
  ~NcclCommunicator() override {
    if (!communicator_) return;
    // Destroying it would wait for a rank that is lost.
    if (failed_)
      nccl().abort(communicator_);
    else
      nccl().destroy(communicator_);
    for (cudaEvent_t event : done_) cudaEventDestroy(event);
    cudaEventDestroy(ready_);
    cudaStreamDestroy(stream_);
  }

  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }
  std::string_view name() const override { return "NCCL"; }
  using Communicator::all_gather;
  std::vector<std::string> all_gather(std::string_view text) override { return control_->all_gather(text); }
  void give_up() noexcept override {
    failed_ = true;
    control_->give_up();
  }
  void follow() noexcept override { failed_ = true; }
  void progress() noexcept override { control_->progress(); }

 protected:
  void entered() noexcept override { control_->entered(); }
  std::uint64_t start_all_reduce(Device& device, std::span<const Tensor> arrays) override {
    return start(device, [&] {
      nccl().check(nccl().group_start());
      for (const Tensor& array : arrays)
        nccl().check(nccl().all_reduce(array.data, array.data, count_of(array), type_of(array.dtype), ncclSum,
                                       communicator_, stream_));
      nccl().check(nccl().group_end());
    });
  }
  std::uint64_t start_reduce_scatter(Device& device, const Tensor& part, const Tensor& array) override {
    return start(device, [&] {
      nccl().check(nccl().reduce_scatter(array.data, part.data, count_of(part), type_of(part.dtype), ncclSum,
                                         communicator_, stream_));
    });
  }
  std::uint64_t start_all_gather(Device& device, const Tensor& array, const Tensor& part) override {
    return start(device, [&] {
      nccl().check(
          nccl().all_gather(part.data, array.data, count_of(part), type_of(part.dtype), communicator_, stream_));
    });
  }
  std::uint64_t start_broadcast(Device& device, const Tensor& array, int root) override {
    return start(device, [&] {
      nccl().check(nccl().broadcast(array.data, array.data, count_of(array), type_of(array.dtype), root, communicator_,
                                    stream_));
    });
  }
  void wait(Device& device, std::uint64_t ticket) override {
    check(cudaStreamWaitEvent(device.stream(), done_[ticket % done_.size()], 0));
  }

 private:
  // Queues a collective behind the device's work so far.
  template <typename Call>
  std::uint64_t start(Device& device, const Call& call) {
    require(device.is_cuda(), "NCCL carries arrays of a GPU");
    if (!communicator_) join();
    check(cudaEventRecord(ready_, device.stream()));
    check(cudaStreamWaitEvent(stream_, ready_, 0));
    call();
    // A later collective's event says no less: a slot may be used again.
    check(cudaEventRecord(done_[++last_ % done_.size()], stream_));
    return last_;
  }

  void join() {
    ncclUniqueId id{};
    if (rank() == 0) nccl().check(nccl().get_unique_id(&id));
    const std::string shared = broadcast(std::string_view(id.internal, sizeof id.internal));
    require(shared.size() == sizeof id.internal, "rank 0 has another NCCL");
    std::memcpy(id.internal, shared.data(), shared.size());
    nccl().check(nccl().init_rank(&communicator_, size(), id, rank()));
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    check(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    for (cudaEvent_t& event : done_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }

  using Communicator::broadcast;
  std::unique_ptr<Control> control_;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  std::array<cudaEvent_t, 64> done_{};
  std::uint64_t last_ = 0;
  bool failed_ = false;
};

}  // namespace

std::string nccl_refusal() {
  return nccl().refusal;
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Control> control) {
  return std::make_unique<NcclCommunicator>(std::move(control));
}

}  // namespace filigree
