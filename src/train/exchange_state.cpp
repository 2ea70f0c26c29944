#include "train/exchange_state.h"

#include <cstring>
#include <functional>
#include <vector>

namespace filigree {
namespace {

namespace fs = std::filesystem;

// First pass: what there will be.
class Declare final : public ExchangeSink {
 public:
  Declare(SafetensorsWriter* writer, int ranks) : writer_(writer), ranks_(ranks) {}
  void put_shared(const std::string& name, const Tensor& tensor) override {
    any_ = true;
    if (writer_) writer_->declare(name, tensor.dtype, tensor.shape);
  }
  void put_per_rank(const std::string& name, const Tensor& tensor) override {
    require(tensor.dtype == DType::f32, name + ": what differs from rank to rank is fp32");
    any_ = true;
    if (writer_) writer_->declare(name, tensor.dtype, Shape{ranks_, tensor.count()});
  }
  bool any() const { return any_; }

 private:
  SafetensorsWriter* writer_;
  std::int64_t ranks_;
  bool any_ = false;
};

// Second pass: the bytes. Those of other ranks come to the first by way of broadcasts, one at a time.
class Write final : public ExchangeSink {
 public:
  Write(SafetensorsWriter* writer, Communicator& communicator, Device& device)
      : writer_(writer), communicator_(communicator), device_(device) {}
  void put_shared(const std::string& name, const Tensor& tensor) override { write(name, tensor); }
  void put_per_rank(const std::string& name, const Tensor& tensor) override {
    write(name, tensor);
    if (communicator_.size() == 1) return;
    const OwnedTensor passing = device_.memory().tensor(Purpose::workspace, tensor.dtype, {tensor.count()});
    for (int rank = 1; rank < communicator_.size(); ++rank) {
      if (rank == communicator_.rank()) device_.copy(passing, tensor);
      communicator_.broadcast(device_, passing, rank).wait(device_);
      write(name, passing);
    }
  }

 private:
  void write(const std::string& name, const Tensor& tensor) {
    if (!writer_) return;
    host_.resize(tensor.bytes());
    device_.copy_to_host(host_.data(), tensor);
    writer_->write(name, host_.data(), host_.size());
  }

  SafetensorsWriter* writer_;
  Communicator& communicator_;
  Device& device_;
  std::vector<std::byte> host_;
};

}  // namespace

void save_exchange(const GradientExchange& exchange, Communicator& communicator, Device& device,
                   const fs::path& folder) {
  Declare asked(nullptr, communicator.size());
  exchange.save(asked);
  if (!asked.any()) return;
  std::optional<SafetensorsWriter> writer;
  if (communicator.is_first()) writer.emplace(folder / kExchangeFile);
  Declare declare(writer ? &*writer : nullptr, communicator.size());
  exchange.save(declare);
  Write write(writer ? &*writer : nullptr, communicator, device);
  exchange.save(write);
  if (writer) writer->finish();
}

ExchangeReader::ExchangeReader(const fs::path& checkpoint, const Communicator& communicator)
    : communicator_(communicator), path_(checkpoint / kExchangeFile) {
  if (fs::exists(path_)) file_.emplace(path_);
}

bool ExchangeReader::has(const std::string& name) const {
  return file_ && file_->find(name) != nullptr;
}

void ExchangeReader::load_shared(Device& device, const std::string& name, const Tensor& out) const {
  require_user(has(name), path_.string() + ": has no " + name);
  std::vector<std::byte> bytes(out.bytes());
  file_->load(name, {bytes.data(), out.dtype, out.shape});
  device.copy_from_host(out, bytes.data());
}

void ExchangeReader::load_per_rank(Device& device, const std::string& name, const Tensor& out) const {
  require_user(has(name), path_.string() + ": has no " + name);
  const StoredTensor& stored = file_->at(name);
  require_user(stored.type == StoredType::f32 && stored.shape.size() == 2 && stored.shape[0] >= 1 &&
                   stored.shape[1] == out.count(),
               path_.string() + ": " + name + " is not an array of " + std::to_string(out.count()) +
                   " fp32 values for each rank");
  const auto count = static_cast<std::size_t>(out.count());
  const std::byte* bytes = file_->bytes(stored).data();
  std::vector<float> values(count);
  const auto row = [&](std::int64_t rank) { return bytes + static_cast<std::size_t>(rank) * count * sizeof(float); };
  if (stored.shape[0] == communicator_.size()) {
    std::memcpy(values.data(), row(communicator_.rank()), count * sizeof(float));
  } else {
    std::vector<double> sums(count, 0.0);
    for (std::int64_t rank = 0; rank < stored.shape[0]; ++rank) {
      std::memcpy(values.data(), row(rank), count * sizeof(float));
      for (std::size_t i = 0; i < count; ++i) sums[i] += values[i];
    }
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(sums[i] / communicator_.size());
  }
  device.copy_from_host(out, values.data());
}

}  // namespace filigree
