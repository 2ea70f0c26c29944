// A few parameters that are trained with random gradients, another set on each rank and at each step: what an exchange
// needs to be tried out, without a model.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include "comm/gradient_exchange.h"
#include "comm/virtual_ranks.h"
#include "core/random.h"
#include "support.h"

namespace filigree::testing {

struct ToyShape {
  std::string name;
  Shape shape;
};
inline constexpr std::int64_t kToyInPlace = 2000;
// Tensors of all kinds: one that travels in place (kToyInPlace), one past a group, biases, one entry, none.
inline const std::vector<ToyShape>& toy_shapes() {
  static const std::vector<ToyShape> shapes = {{"a.weight", {67, 40}}, {"a.bias", {67}},       {"b.gain", {1}},
                                               {"empty", {0}},         {"c.weight", {41, 25}}, {"b.weight", {4, 8}}};
  return shapes;
}

struct ToySettings {
  std::int64_t steps = 12;
  float beta1 = 0.9f, beta2 = 0.95f, lr = 1e-2f, decay = 0.1f;
  double clip = 0.0;  // 0: off
  // Of one entry; by default random, larger for some entries than for others, so that choices are not arbitrary.
  std::function<float(std::int64_t step, int rank, std::size_t tensor, std::int64_t i)> gradient = {};
};

inline float toy_gradient(std::int64_t step, int rank, std::size_t tensor, std::int64_t i) {
  const Random noise(5, RandomPurpose::test, static_cast<std::uint32_t>(tensor * 64 + static_cast<std::size_t>(rank)),
                     static_cast<std::uint32_t>(step));
  const auto index = static_cast<std::uint64_t>(i);
  const auto size = static_cast<int>((index * 2654435761u >> 13) % 8);
  return std::ldexp(noise.uniform(index) - 0.35f, size - 9);
}

class Toy {
 public:
  explicit Toy(const ToySettings& settings) : settings_(settings), device_(Device::named(FILIGREE_TEST_DEVICE, 1)) {
    for (const ToyShape& shape : toy_shapes()) {
      owned_.push_back(std::make_unique<Parameter>(
          *device_, ParameterOptions{.name = shape.name, .shape = shape.shape, .decay = true}, Mode::training));
      all.push_back(owned_.back().get());
      if (shape.shape.count() == 0) continue;
      std::vector<float> values;
      const Random random(7, RandomPurpose::test, static_cast<std::uint32_t>(all.size()));
      for (std::int64_t i = 0; i < shape.shape.count(); ++i)
        values.push_back(random.normal(static_cast<std::uint64_t>(i)));
      device_->copy_from_host(all.back()->values(), values.data());
    }
  }
  Device& device() { return *device_; }

  // One step as the trainer does it; `skip`: as where the norm is not finite.
  void step(GradientExchange& exchange, std::int64_t step, int rank, bool skip = false) {
    exchange.begin_step(*device_, {.step = step, .steps = settings_.steps});
    for (std::size_t tensor = 0; tensor < all.size(); ++tensor) {
      std::vector<float> gradient;
      for (std::int64_t i = 0; i < all[tensor]->count(); ++i)
        gradient.push_back(settings_.gradient ? settings_.gradient(step, rank, tensor, i)
                                              : toy_gradient(step, rank, tensor, i));
      if (!gradient.empty()) device_->copy_from_host(all[tensor]->gradient(), gradient.data());
      exchange.gradient_ready(*device_, *all[tensor]);
    }
    exchange.finish(*device_);
    norm = std::sqrt(exchange.sum_of_squares(*device_));
    if (skip) return exchange.leave_out(*device_);
    std::vector<ParameterUpdate> updates;
    for (Parameter* parameter : all)
      updates.push_back({.parameter = parameter, .args = arguments(*parameter, step, norm)});
    exchange.update(*device_, updates);
  }
  void set_steps(std::int64_t steps) { settings_.steps = steps; }
  AdamWArgs arguments(const Parameter& parameter, std::int64_t step, double gradient_norm) const {
    const double t = static_cast<double>(step + 1);
    const bool clips = settings_.clip > 0.0 && gradient_norm > settings_.clip;
    return {.values = parameter.values(),
            .master = parameter.master().as<float>(),
            .gradient = parameter.gradient().as<float>(),
            .m = parameter.m().as<float>(),
            .v = parameter.v().as<float>(),
            .count = parameter.count(),
            .step = {.lr = settings_.lr,
                     .clip = static_cast<float>(clips ? settings_.clip / gradient_norm : 1.0),
                     .bias_correction1 = static_cast<float>(1.0 - std::pow(settings_.beta1, t)),
                     .bias_correction2 = static_cast<float>(1.0 - std::pow(settings_.beta2, t))},
            .beta1 = settings_.beta1,
            .beta2 = settings_.beta2,
            .decay = settings_.decay};
  }
  std::vector<float> on_host(const Tensor& tensor) const {
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    if (!values.empty()) device_->copy_to_host(values.data(), tensor);
    return values;
  }
  // Masters, m and v of all parameters, one after the other.
  std::vector<std::vector<float>> state() const {
    std::vector<std::vector<float>> all_values;
    for (const Parameter* parameter : all)
      for (const Tensor& tensor : {parameter->master(), parameter->m(), parameter->v()})
        all_values.push_back(on_host(tensor));
    return all_values;
  }

  std::vector<Parameter*> all;
  double norm = 0.0;  // of the last step

 private:
  ToySettings settings_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Parameter>> owned_;
};

// What an exchange writes into a checkpoint, in memory; of all ranks.
class ToyCheckpoint {
 public:
  class Sink final : public ExchangeSink {
   public:
    Sink(ToyCheckpoint& to, const Device& device, int rank) : to_(to), device_(device), rank_(rank) {}
    void put_shared(const std::string& name, const Tensor& tensor) override { put(name, -1, tensor); }
    void put_per_rank(const std::string& name, const Tensor& tensor) override { put(name, rank_, tensor); }

   private:
    void put(const std::string& name, int rank, const Tensor& tensor) {
      std::vector<std::byte> bytes(tensor.bytes());
      device_.copy_to_host(bytes.data(), tensor);
      const std::scoped_lock lock(to_.mutex_);
      auto& at = to_.arrays[{name, rank}];
      EXPECT_TRUE(rank >= 0 || at.empty() || at == bytes) << name << " is not equal on all ranks";
      at = bytes;
    }
    ToyCheckpoint& to_;
    const Device& device_;
    int rank_;
  };
  class Source final : public ExchangeSource {
   public:
    Source(const ToyCheckpoint& from, int rank) : from_(from), rank_(rank) {}
    bool has(const std::string& name) const override {
      return from_.arrays.contains({name, -1}) || from_.arrays.contains({name, 0});
    }
    void load_shared(Device& device, const std::string& name, const Tensor& out) const override {
      device.copy_from_host(out, from_.arrays.at({name, -1}).data());
    }
    void load_per_rank(Device& device, const std::string& name, const Tensor& out) const override {
      device.copy_from_host(out, from_.arrays.at({name, rank_}).data());
    }

   private:
    const ToyCheckpoint& from_;
    int rank_;
  };
  // The sum over the ranks of a per-rank array, as doubles; empty where there is none.
  std::vector<double> sum(const std::string& name) const {
    std::vector<double> total;
    for (const auto& [key, bytes] : arrays) {
      if (key.first != name) continue;
      total.resize(bytes.size() / sizeof(float));
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += static_cast<double>(values[i]);
    }
    return total;
  }

  std::map<std::pair<std::string, int>, std::vector<std::byte>> arrays;  // rank -1: shared

 private:
  std::mutex mutex_;
};

using MakeExchange = std::function<std::unique_ptr<GradientExchange>(Communicator&)>;
// Called after each step, on every rank.
using AfterStep = std::function<void(Toy&, GradientExchange&, Communicator&, std::int64_t step)>;

// Trains on virtual ranks; the state at the end, which must be the same on all of them.
inline std::vector<std::vector<float>> train_toy(int ranks, const ToySettings& settings, const MakeExchange& make,
                                                 const AfterStep& after = {}, Traffic* traffic = nullptr) {
  std::vector<std::vector<float>> first;
  std::mutex mutex;
  run_virtual_ranks(ranks, [&](Communicator& communicator) {
    Toy toy(settings);
    const auto exchange = make(communicator);
    exchange->attach(toy.device(), toy.all);
    for (std::int64_t step = 0; step < settings.steps; ++step) {
      toy.step(*exchange, step, communicator.rank());
      if (after) after(toy, *exchange, communicator, step);
    }
    const auto state = toy.state();
    const std::scoped_lock lock(mutex);
    if (first.empty()) first = state;
    EXPECT_TRUE(state == first) << "rank " << communicator.rank();
    if (traffic && communicator.is_first()) *traffic = communicator.traffic();
  });
  return first;
}

}  // namespace filigree::testing
