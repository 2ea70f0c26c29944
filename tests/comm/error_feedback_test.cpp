// topk, randomk and powersgd: exchanges that keep what they did not send.
#include <numeric>
#include <set>

#include "comm/dense_exchange.h"
#include "comm/powersgd_exchange.h"
#include "comm/randomk_exchange.h"
#include "comm/topk_exchange.h"
#include "toy_training.h"

namespace filigree {
namespace {

using namespace testing;  // NOLINT: the tests' own helpers

constexpr WireOptions kWire = {.dtype = DType::f32, .bucket_bytes = 4096, .in_place = kToyInPlace};

MakeExchange dense() {
  return [](Communicator& communicator) {
    return std::make_unique<DenseExchange>(communicator, DType::f32, kWire.bucket_bytes);
  };
}
MakeExchange topk(double density, std::int64_t warmup = 0, double start = 0.0, DType wire = DType::f32) {
  return [=](Communicator& communicator) {
    return std::make_unique<TopkExchange>(
        communicator,
        TopkSettings{.density = density,
                     .start = start,
                     .warmup = warmup,
                     .wire = {.dtype = wire, .bucket_bytes = kWire.bucket_bytes, .in_place = kToyInPlace}});
  };
}
MakeExchange randomk(double density, double start = 0.0) {
  return [=](Communicator& communicator) {
    return std::make_unique<RandomkExchange>(
        communicator, RandomkSettings{.density = density, .start = start, .seed = 3, .wire = kWire});
  };
}

MakeExchange powersgd(std::int64_t rank, double start = 0.0) {
  return [=](Communicator& communicator) {
    return std::make_unique<PowerSgdExchange>(
        communicator, PowerSgdSettings{.rank = rank, .start = start, .seed = 3, .bucket_bytes = kWire.bucket_bytes});
  };
}

TEST(ErrorFeedback, OfDensityOneIsDense) {
  for (const int ranks : {1, 2, 4}) {
    const auto expected = train_toy(ranks, {.steps = 5, .clip = 0.5}, dense());
    for (const MakeExchange& make : {topk(1.0), topk(0.1, 0, 1.0), randomk(1.0), randomk(0.1, 1.0), powersgd(4, 1.0)})
      EXPECT_TRUE(train_toy(ranks, {.steps = 5, .clip = 0.5}, make) == expected) << ranks;
  }
}

// With beta1 = 0 and no clipping m is what the optimizer has seen of the gradient.
TEST(ErrorFeedback, WhatWasSentAndWhatWaitsIsTheSumOfGradients) {
  const ToySettings toy = {.steps = 9, .beta1 = 0.0f};
  for (const int ranks : {1, 2, 4})
    for (const MakeExchange& make :
         {topk(0.05), topk(0.05, 4), topk(0.1, 0, 0.4), randomk(0.3), randomk(0.3, 0.4), powersgd(2)}) {
      std::vector<std::vector<double>> seen(toy_shapes().size());
      ToyCheckpoint checkpoint;
      train_toy(ranks, toy, make,
                [&](Toy& trained, GradientExchange& exchange, Communicator& communicator, std::int64_t step) {
                  if (communicator.is_first())
                    for (std::size_t tensor = 0; tensor < seen.size(); ++tensor) {
                      const std::vector<float> m = trained.on_host(trained.all[tensor]->m());
                      seen[tensor].resize(m.size());
                      for (std::size_t i = 0; i < m.size(); ++i) seen[tensor][i] += static_cast<double>(m[i]);
                    }
                  if (step + 1 < toy.steps) return;
                  ToyCheckpoint::Sink sink(checkpoint, trained.device(), communicator.rank());
                  exchange.save(sink);
                });
      for (std::size_t tensor = 0; tensor < seen.size(); ++tensor) {
        std::vector<double> waits = checkpoint.sum("residual." + toy_shapes()[tensor].name);
        waits.resize(seen[tensor].size());
        for (std::size_t i = 0; i < waits.size(); ++i) {
          double given = 0.0;
          for (std::int64_t step = 0; step < toy.steps; ++step)
            for (int rank = 0; rank < ranks; ++rank)
              given += static_cast<double>(toy_gradient(step, rank, tensor, static_cast<std::int64_t>(i)));
          ASSERT_NEAR(seen[tensor][i] + waits[i], given, 1e-5) << toy_shapes()[tensor].name << " " << i;
        }
      }
    }
}

// Each rank's own largest entries, in plain loops.
TEST(Topk, AddsEachRanksOwnChoice) {
  constexpr int kRanks = 3;
  std::vector<std::vector<float>> seen;
  train_toy(kRanks, {.steps = 1, .beta1 = 0.0f}, topk(0.05),
            [&](Toy& toy, GradientExchange&, Communicator& communicator, std::int64_t) {
              if (communicator.is_first())
                for (const Parameter* parameter : toy.all) seen.push_back(toy.on_host(parameter->m()));
            });
  for (std::size_t tensor = 0; tensor < seen.size(); ++tensor) {
    const std::size_t count = seen[tensor].size();
    std::vector<float> expected(count, 0.0f);
    for (int rank = 0; rank < kRanks && count > 0; ++rank) {
      std::vector<std::int64_t> order(count);
      std::iota(order.begin(), order.end(), 0);
      const auto size = [&](std::int64_t i) { return std::abs(toy_gradient(0, rank, tensor, i)); };
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return size(a) > size(b); });
      for (std::int64_t j = 0; j < chosen_entries(0.05, static_cast<std::int64_t>(count)); ++j) {
        const std::int64_t i = order[static_cast<std::size_t>(j)];
        expected[static_cast<std::size_t>(i)] += toy_gradient(0, rank, tensor, i);
      }
    }
    EXPECT_TRUE(seen[tensor] == expected) << toy_shapes()[tensor].name;
  }
}

TEST(Topk, ItsDensityFallsByTheRunsStep) {
  const TopkSettings settings = {.density = 0.01, .warmup = 1000, .wire = {}};
  EXPECT_NEAR(topk_density(settings, 0), std::pow(0.01, 1.0 / 1001.0), 1e-12);
  EXPECT_NEAR(topk_density(settings, 499), std::pow(0.01, 500.0 / 1001.0), 1e-12);
  EXPECT_DOUBLE_EQ(topk_density(settings, 1000), 0.01);
  EXPECT_DOUBLE_EQ(topk_density(settings, 100000), 0.01);
}

TEST(Topk, SendsListsOfIndicesAndValues) {
  for (const DType wire : {DType::f32, DType::bf16}) {
    std::int64_t list = 0;
    for (const ToyShape& shape : toy_shapes())
      if (const std::int64_t count = shape.shape.count(); count > 0) {
        const std::int64_t keep = chosen_entries(0.05, count);
        list += 4 * keep + (wire == DType::f32 ? 4 * keep : (2 * keep + 3) / 4 * 4);
      }
    Traffic traffic;
    train_toy(4, {.steps = 2}, topk(0.05, 0, 0.0, wire), {}, &traffic);
    EXPECT_EQ(traffic.wire, 2.0 * 3.0 * static_cast<double>(list));  // (P - 1) lists a step
  }
}

TEST(Randomk, SendsKEntriesOfATensorAndOthersAtEachStep) {
  std::int64_t sent = 0;
  for (const ToyShape& shape : toy_shapes())
    if (shape.shape.count() > 0) sent += chosen_entries(0.3, shape.shape.count());
  Traffic traffic;
  std::vector<std::set<std::size_t>> chosen;
  train_toy(
      2, {.steps = 3, .beta1 = 0.0f}, randomk(0.3),
      [&](Toy& toy, GradientExchange&, Communicator& communicator, std::int64_t) {
        if (!communicator.is_first()) return;
        chosen.emplace_back();
        const std::vector<float> m = toy.on_host(toy.all[0]->m());
        for (std::size_t i = 0; i < m.size(); ++i)
          if (m[i] != 0.0f) chosen.back().insert(i);
      },
      &traffic);
  EXPECT_EQ(traffic.payload, 3 * 4 * sent);
  EXPECT_NEAR(static_cast<double>(chosen[0].size()), 0.3 * 67 * 40, 5.0);  // a sum may be 0
  EXPECT_NE(chosen[0], chosen[1]);
  EXPECT_NE(chosen[1], chosen[2]);
}

TEST(ErrorFeedback, ResumesWithEqualBits) {
  const ToySettings toy = {.steps = 8};
  for (const MakeExchange& make : {topk(0.05, 3), randomk(0.3), powersgd(2)}) {
    const auto expected = train_toy(2, toy, make);
    ToyCheckpoint checkpoint;
    std::vector<std::vector<float>> state;
    run_virtual_ranks(2, [&](Communicator& communicator) {
      Toy trained(toy);
      const auto first = make(communicator);
      first->attach(trained.device(), trained.all);
      for (std::int64_t step = 0; step < 5; ++step) trained.step(*first, step, communicator.rank());
      ToyCheckpoint::Sink sink(checkpoint, trained.device(), communicator.rank());
      first->save(sink);
      communicator.barrier();
      const auto second = make(communicator);
      second->attach(trained.device(), trained.all);
      second->load(trained.device(), ToyCheckpoint::Source(checkpoint, communicator.rank()));
      for (std::int64_t step = 5; step < toy.steps; ++step) trained.step(*second, step, communicator.rank());
      if (communicator.is_first()) state = trained.state();
    });
    EXPECT_TRUE(state == expected);
  }
}

TEST(PowerSgd, OrthogonalizesColumns) {
  const Random random(1, RandomPurpose::test);
  std::vector<float> matrix;
  for (std::uint64_t i = 0; i < 40; ++i) matrix.push_back(random.normal(i));
  for (std::size_t row = 0; row < 10; ++row) matrix[row * 4 + 3] = 2.0f * matrix[row * 4 + 1] - matrix[row * 4];
  orthogonalize(matrix, 10, 4);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < 4; ++b) {
      double product = 0.0;
      for (std::size_t row = 0; row < 10; ++row)
        product += static_cast<double>(matrix[row * 4 + a]) * static_cast<double>(matrix[row * 4 + b]);
      EXPECT_NEAR(product, a == b && a < 3 ? 1.0 : 0.0, 1e-6) << a << " " << b;  // the last depends on the others
    }
}

// A gradient of rank 1, the same on all ranks, is sent exactly once its direction is known.
TEST(PowerSgd, SendsWhatHasItsRankExactly) {
  ToySettings toy = {.steps = 3, .beta1 = 0.0f};
  toy.gradient = [](std::int64_t, int rank, std::size_t, std::int64_t i) {
    return static_cast<float>((1 + rank) * (1 + i / 40 % 7) * (1 + i % 40 % 5)) * 1e-3f;
  };
  Traffic traffic;
  std::vector<float> seen;
  train_toy(
      2, toy, powersgd(1),
      [&](Toy& trained, GradientExchange&, Communicator& communicator, std::int64_t) {
        if (communicator.is_first()) seen = trained.on_host(trained.all[0]->m());
      },
      &traffic);
  for (std::size_t i = 0; i < seen.size(); ++i)
    ASSERT_NEAR(seen[i], 3e-3 * static_cast<double>((1 + i / 40 % 7) * (1 + i % 40 % 5)), 1e-5) << i;
  std::int64_t values = 67 + 1;
  for (const auto& [rows, columns] : {std::pair{67, 40}, {41, 25}, {4, 8}}) values += rows + columns;
  EXPECT_EQ(traffic.payload, 3 * 4 * values);
}

TEST(PowerSgd, RefusesCompressedWeights) {
  const auto device = Device::cpu(1);
  Parameter compressed(*device, {.name = "blocks.0.mlp.up.weight.values", .shape = {8, 4}}, Mode::training);
  SingleRank communicator;
  PowerSgdExchange exchange(communicator, {});
  try {
    exchange.attach(*device, {&compressed});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("is stored compressed"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace filigree
