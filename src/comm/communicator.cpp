#include "comm/communicator.h"

#include <algorithm>
#include <cstring>

namespace filigree {
namespace {

void require_addable(const Tensor& array) {
  require(array.dtype == DType::f32 || array.dtype == DType::bf16, "ranks add fp32 and bf16 arrays");
}

void require_parts(const Tensor& part, const Tensor& array, int size) {
  require(part.dtype == array.dtype && part.count() * size == array.count(), "an array must be one part a rank");
}

}  // namespace

void Pending::wait(Device& device) {
  if (communicator_) communicator_->wait(device, ticket_);
  communicator_ = nullptr;
}

void Communicator::count(const Tensor& array, double rounds) {
  ++traffic_.calls;
  traffic_.payload += static_cast<std::int64_t>(array.bytes());
  traffic_.wire += rounds * (size() - 1) / size() * static_cast<double>(array.bytes());
}

Pending Communicator::all_reduce(Device& device, std::span<const Tensor> arrays) {
  for (const Tensor& array : arrays) {
    require_addable(array);
    require(array.count() > 0, "an empty array cannot be exchanged");
    count(array, 2.0);
  }
  if (size() == 1 || arrays.empty()) return {};
  entered();
  return {*this, start_all_reduce(device, arrays)};
}

Pending Communicator::reduce_scatter(Device& device, const Tensor& part, const Tensor& array) {
  require_addable(array);
  require_parts(part, array, size());
  count(array, 1.0);
  if (size() == 1 || array.count() == 0) {
    if (part.data != array.data && array.count() > 0) device.copy(part, array);
    return {};
  }
  entered();
  return {*this, start_reduce_scatter(device, part, array)};
}

Pending Communicator::all_gather(Device& device, const Tensor& array, const Tensor& part) {
  require_parts(part, array, size());
  count(array, 1.0);
  if (size() == 1 || array.count() == 0) {
    if (part.data != array.data && array.count() > 0) device.copy(array, part);
    return {};
  }
  entered();
  return {*this, start_all_gather(device, array, part)};
}

Pending Communicator::broadcast(Device& device, const Tensor& array, int root) {
  require(root >= 0 && root < size(), "there is no such rank");
  count(array, 1.0);
  if (size() == 1 || array.count() == 0) return {};
  entered();
  return {*this, start_broadcast(device, array, root)};
}

std::string Communicator::broadcast(std::string_view text, int root) {
  return all_gather(rank() == root ? text : std::string_view())[static_cast<std::size_t>(root)];
}

std::vector<double> Communicator::sum(std::span<const double> values) {
  const std::string mine(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  std::vector<double> total(values.size(), 0.0), theirs(values.size());
  for (const std::string& text : all_gather(mine)) {
    require(text.size() == values.size_bytes(), "ranks add different numbers of values");
    std::memcpy(theirs.data(), text.data(), text.size());
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += theirs[i];
  }
  return total;
}

bool Communicator::agree(std::uint64_t value) {
  const std::string mine(reinterpret_cast<const char*>(&value), sizeof value);
  const std::vector<std::string> all = all_gather(mine);
  return std::all_of(all.begin(), all.end(), [&](const std::string& text) { return text == mine; });
}

}  // namespace filigree
