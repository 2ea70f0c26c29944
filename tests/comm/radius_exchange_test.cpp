#include "comm/radius_exchange.h"

#include <array>
#include <numeric>
#include <set>

#include "comm/agreement.h"
#include "comm/dense_exchange.h"
#include "radius_modes.h"

namespace filigree {
namespace {

using namespace testing;  // NOLINT: the tests' own helpers

MakeExchange dense(DType wire = DType::f32) {
  return [wire](Communicator& communicator) { return std::make_unique<DenseExchange>(communicator, wire, kBucket); };
}

// ---------------------------------------------------------------------------------------------- equal to dense, bit by
// bit

TEST(Radius, OfDensityOneIsDense) {
  for (const int ranks : {1, 2, 4}) {
    const auto expected = train_toy(ranks, {.steps = 8, .clip = 0.5}, dense());
    for (const RadiusSettings& settings : all_modes(1.0, 3))
      ASSERT_TRUE(train_toy(ranks, {.steps = 8, .clip = 0.5}, radius(settings)) == expected)
          << ranks << " ranks, flush " << static_cast<int>(settings.flush);
  }
}

TEST(Radius, OfIntervalOneIsDense) {
  for (const int ranks : {1, 2, 4}) {
    const auto expected = train_toy(ranks, {.steps = 6, .clip = 0.5}, dense());
    for (const RadiusSettings& settings : all_modes(0.3, 1))
      ASSERT_TRUE(train_toy(ranks, {.steps = 6, .clip = 0.5}, radius(settings)) == expected)
          << ranks << " ranks, flush " << static_cast<int>(settings.flush);
  }
}

TEST(Radius, IsDenseBeforeItsStart) {
  RadiusSettings settings = faithful(0.1, 3, 1.0);
  for (const DType wire : {DType::f32, DType::bf16}) {
    settings.wire.dtype = wire;
    EXPECT_TRUE(train_toy(2, {}, radius(settings)) == train_toy(2, {}, dense(wire)));
  }
}

// ------------------------------------------------------------------------------------------------------ the algorithm

// The published algorithm in plain loops over `ranks` ranks: delayed gradients, a sort for the choice, and adamw.
std::vector<std::vector<float>> published(int ranks, const ToySettings& toy_settings, const RadiusSettings& settings) {
  Toy toy(toy_settings);
  const std::size_t tensors = toy.all.size();
  std::vector<std::vector<std::vector<float>>> residual(static_cast<std::size_t>(ranks));
  for (auto& of_rank : residual)
    for (const Parameter* parameter : toy.all) of_rank.emplace_back(static_cast<std::size_t>(parameter->count()), 0.0f);
  std::vector<std::set<std::int64_t>> masks(tensors);
  const auto start = static_cast<std::int64_t>(std::llround(settings.start * static_cast<double>(toy_settings.steps)));
  bool chosen = false;
  for (std::int64_t step = 0; step < toy_settings.steps; ++step) {
    const bool dense = step < start;
    const bool flush = !dense && (!chosen || step % settings.interval == 0);
    std::vector<Tensor> gradients;
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      const bool bias = toy.all[tensor]->name().find("bias") != std::string::npos;
      const std::int64_t count = toy.all[tensor]->count();
      std::vector<float> sum(static_cast<std::size_t>(count), 0.0f);
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          float g = toy_gradient(step, static_cast<int>(rank), tensor, i);
          float& waits = residual[rank][tensor][at];
          if (!dense && !bias && !flush && !masks[tensor].contains(i)) {
            waits += g;
            continue;
          }
          if (flush) g += waits, waits = 0.0f;
          sum[at] = rank == 0 ? g : sum[at] + g;
        }
      if (count == 0) continue;
      std::copy(sum.begin(), sum.end(), toy.all[tensor]->gradient().as<float>());
      gradients.push_back(toy.all[tensor]->gradient());
    }
    double squares = 0.0;
    for (const Tensor& gradient : gradients)
      for (const double g : values_of(gradient)) squares += g * g;
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      Parameter& parameter = *toy.all[tensor];
      const AdamWArgs args = toy.arguments(parameter, step, std::sqrt(squares));
      const std::vector<float> old = toy.on_host(parameter.master());
      adamw(toy.device(), args);
      if (!flush || parameter.count() == 0) continue;
      std::vector<float> direction;
      for (std::size_t i = 0; i < old.size(); ++i)
        direction.push_back(std::abs((args.m[i] / args.step.bias_correction1) /
                                         (std::sqrt(args.v[i] / args.step.bias_correction2) + args.epsilon) +
                                     args.decay * old[i]));
      std::vector<std::int64_t> order(old.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return direction[static_cast<std::size_t>(a)] > direction[static_cast<std::size_t>(b)];
      });
      const auto keep =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(settings.density * static_cast<double>(old.size())));
      masks[tensor].clear();
      for (std::int64_t rank = 0; rank < keep; ++rank) {
        const std::int64_t centre = order[static_cast<std::size_t>(rank)];
        for (std::int64_t i = centre - settings.range; i <= centre + settings.range; ++i)
          if (i >= 0 && i < parameter.count()) masks[tensor].insert(i);
      }
    }
    chosen = chosen || flush;
  }
  return toy.state();
}

TEST(Radius, FaithfulIsThePublishedAlgorithm) {
  if (std::string_view(FILIGREE_TEST_DEVICE) != "cpu") GTEST_SKIP() << "the plain loops write host memory";
  for (const int ranks : {1, 2, 4})
    for (const std::int64_t range : {0, 3}) {
      RadiusSettings settings = faithful(range > 0 ? 0.05 : 0.4, 4);
      settings.range = range;
      const ToySettings toy = {.steps = 15, .clip = 0.0};
      ASSERT_TRUE(train_toy(ranks, toy, radius(settings)) == published(ranks, toy, settings))
          << ranks << " ranks, range " << range;
    }
}

TEST(Radius, ClipsByTheNormAfterTheExchange) {
  if (std::string_view(FILIGREE_TEST_DEVICE) != "cpu") GTEST_SKIP() << "the plain loops write host memory";
  const RadiusSettings settings = faithful(0.4, 4);
  const ToySettings toy = {.steps = 15, .clip = 1.5};
  const auto found = train_toy(2, toy, radius(settings)), expected = published(2, toy, settings);
  // The norm is summed in another order: the last bit of the factor may differ.
  for (std::size_t tensor = 0; tensor < found.size(); ++tensor)
    for (std::size_t i = 0; i < found[tensor].size(); ++i)
      ASSERT_NEAR(found[tensor][i], expected[tensor][i], 1e-5 * (1.0 + std::abs(expected[tensor][i])));
}

TEST(Radius, BucketsChangeNothing) {
  for (RadiusSettings settings : {faithful(0.4, 4), all_modes(0.4, 4)[10]}) {
    const auto expected = train_toy(2, {}, radius(settings));
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1} << 30}) {
      settings.wire.bucket_bytes = bytes;
      const auto found = train_toy(
          2, {}, [&](Communicator& communicator) { return std::make_unique<RadiusExchange>(communicator, settings); });
      EXPECT_TRUE(found == expected) << bytes;
    }
  }
}

// -------------------------------------------------------------------------------------------------------- invariants

// With beta1 = 0 and no clipping m is what the optimizer has seen of the gradient.
TEST(Radius, WhatWasSentAndWhatWaitsIsTheSumOfGradients) {
  const ToySettings toy = {.steps = 14, .beta1 = 0.0f};
  for (const int ranks : {1, 2, 4})
    for (const RadiusSettings& settings : all_modes(0.3, 4)) {
      if (settings.frozen || settings.stagger) continue;  // m keeps what an earlier step has seen; ages differ
      std::vector<std::vector<double>> seen(toy_shapes().size()), given(toy_shapes().size());
      ToyCheckpoint checkpoint;
      train_toy(ranks, toy, radius(settings),
                [&](Toy& trained, GradientExchange& exchange, Communicator& communicator, std::int64_t step) {
                  communicator.barrier();
                  if (communicator.is_first()) checkpoint.arrays.clear();
                  communicator.barrier();
                  ToyCheckpoint::Sink sink(checkpoint, trained.device(), communicator.rank());
                  exchange.save(sink);
                  communicator.barrier();
                  if (!communicator.is_first()) return;
                  for (std::size_t tensor = 0; tensor < trained.all.size(); ++tensor) {
                    const std::vector<float> m = trained.on_host(trained.all[tensor]->m());
                    seen[tensor].resize(m.size());
                    given[tensor].resize(m.size());
                    for (std::size_t i = 0; i < m.size(); ++i) {
                      seen[tensor][i] += static_cast<double>(m[i]);
                      for (int rank = 0; rank < ranks; ++rank)
                        given[tensor][i] +=
                            static_cast<double>(toy_gradient(step, rank, tensor, static_cast<std::int64_t>(i)));
                    }
                    std::vector<double> waits = checkpoint.sum("residual." + trained.all[tensor]->name());
                    // Of a flush that is spread, what later steps will add.
                    std::vector<double> later = checkpoint.sum("spread." + trained.all[tensor]->name());
                    waits.resize(m.size());
                    later.resize(m.size());
                    for (double& value : later) value *= static_cast<double>(3 - step % 4);
                    for (std::size_t i = 0; i < m.size(); ++i)
                      ASSERT_NEAR(seen[tensor][i] + waits[i] + later[i], given[tensor][i], 1e-5)
                          << "step " << step << ", " << trained.all[tensor]->name() << " " << i;
                  }
                });
    }
}

TEST(Radius, ChoosesExactlyKEntriesAndNothingWaitsAfterAFlush) {
  for (const RadiusSettings& settings : all_modes(0.3, 4)) {
    if (settings.stagger) continue;
    ToyCheckpoint checkpoint;
    train_toy(2, {.steps = 14}, radius(settings),
              [&](Toy& toy, GradientExchange& exchange, Communicator& communicator, std::int64_t step) {
                communicator.barrier();
                if (communicator.is_first()) checkpoint.arrays.clear();
                communicator.barrier();
                ToyCheckpoint::Sink sink(checkpoint, toy.device(), communicator.rank());
                exchange.save(sink);  // masks are compared across the ranks there
                communicator.barrier();
                if (!communicator.is_first() || step < 4) return;
                for (const Parameter* parameter : toy.all) {
                  const bool none = parameter->count() == 0 || parameter->name() == "a.bias";
                  const auto mask = checkpoint.arrays.find({"mask." + parameter->name(), -1});
                  ASSERT_EQ(mask == checkpoint.arrays.end(), none) << parameter->name();
                  const bool waits =
                      !none && step % 4 != 0 && chosen_entries(0.3, parameter->count()) < parameter->count();
                  EXPECT_EQ(checkpoint.arrays.contains({"residual." + parameter->name(), 0}), waits);
                  if (none) continue;
                  std::int64_t chosen = 0;
                  for (const std::byte byte : mask->second) chosen += std::popcount(static_cast<std::uint8_t>(byte));
                  EXPECT_EQ(chosen, chosen_entries(0.3, parameter->count()));
                }
              });
  }
}

TEST(Radius, SendsTheBytesThatItsDensityAndIntervalSay) {
  std::int64_t sent = 0, all = 0;  // values of a step
  for (const ToyShape& shape : toy_shapes()) {
    const std::int64_t count = shape.shape.count();
    all += count;
    if (count > 0) sent += shape.name == "a.bias" ? count : chosen_entries(0.4, count);
  }
  const std::int64_t interval = 10;
  for (const DType wire : {DType::f32, DType::bf16})
    for (const Flush flush : {Flush::sum, Flush::split}) {
      RadiusSettings settings = faithful(0.4, interval, 0.0);
      settings.flush = flush;
      settings.wire.dtype = wire;
      Traffic traffic;
      train_toy(4, {.steps = 3 * interval}, radius(settings), {}, &traffic);
      const auto bytes = static_cast<std::int64_t>(size_of(wire));
      std::int64_t expected = 3 * (all + (interval - 1) * sent) * bytes;
      if (flush == Flush::split)
        expected += 2 * (all - 67 - 1) * 4;  // residuals at the second and third flush: not of what is sent whole
      EXPECT_EQ(traffic.payload, expected);
    }
}

TEST(Radius, ResumesAnywhereWithEqualBits) {
  for (RadiusSettings settings : all_modes(0.3, 4)) {
    const ToySettings toy = {.steps = 12};
    const auto expected = train_toy(2, toy, radius(settings));
    for (const std::int64_t pause : {2, 5, 8, 9}) {
      ToyCheckpoint checkpoint;
      std::vector<std::vector<float>> state;
      run_virtual_ranks(2, [&](Communicator& communicator) {
        Toy first(toy);
        const auto exchange = radius(settings)(communicator);
        exchange->attach(first.device(), first.all);
        for (std::int64_t step = 0; step < pause; ++step) first.step(*exchange, step, communicator.rank());
        ToyCheckpoint::Sink sink(checkpoint, first.device(), communicator.rank());
        exchange->save(sink);
        communicator.barrier();
        // The same parameters under an exchange that knows nothing but the checkpoint.
        const auto second = radius(settings)(communicator);
        second->attach(first.device(), first.all);
        second->load(first.device(), ToyCheckpoint::Source(checkpoint, communicator.rank()));
        for (std::int64_t step = pause; step < toy.steps; ++step) first.step(*second, step, communicator.rank());
        if (communicator.is_first()) state = first.state();
      });
      ASSERT_TRUE(state == expected) << "flush " << static_cast<int>(settings.flush) << ", pause " << pause;
    }
  }
}

TEST(Radius, KeepsItsStateWhenOtherParametersJoin) {
  const RadiusSettings settings = faithful(0.3, 4);
  const auto expected = train_toy(1, {}, radius(settings));
  const auto attached_again =
      train_toy(1, {}, radius(settings), [](Toy& toy, GradientExchange& exchange, Communicator&, std::int64_t step) {
        if (step == 5) exchange.attach(toy.device(), toy.all);
      });
  EXPECT_TRUE(attached_again == expected);
}

// train.steps may change on resume, and with it where gradients.start lies.
TEST(Radius, HavingBegunGoesOnWhereTheStartMoves) {
  for (const RadiusSettings& settings : all_modes(0.3, 4)) {
    if (settings.stagger) continue;  // how long its first interval was follows from the start
    const auto trained = [&](std::int64_t later_steps) {
      std::vector<std::vector<float>> state;
      run_virtual_ranks(2, [&](Communicator& communicator) {
        Toy before({.steps = 12});
        const auto exchange = radius(settings)(communicator);
        exchange->attach(before.device(), before.all);
        for (std::int64_t step = 0; step < 6; ++step) before.step(*exchange, step, communicator.rank());
        before.set_steps(later_steps);  // the start is at a quarter of them
        for (std::int64_t step = 6; step < 12; ++step) before.step(*exchange, step, communicator.rank());
        if (communicator.is_first()) state = before.state();
      });
      return state;
    };
    ASSERT_TRUE(trained(1000) == trained(12)) << "flush " << static_cast<int>(settings.flush);
  }
}

TEST(Radius, StopsWhenRanksChooseDifferently) {
  std::array<bool, 2> says{true, true};
  const auto fail = [&] {
    run_virtual_ranks(2, [&](Communicator& communicator) {
      Toy toy({});
      const auto exchange = radius(faithful(0.3, 4, 0.0))(communicator);
      exchange->attach(toy.device(), toy.all);
      if (communicator.rank() == 1) fill_normal(toy.all[0]->values(), 99);  // has lost its way
      try {
        for (std::int64_t step = 0; step < 3; ++step) toy.step(*exchange, step, communicator.rank());
      } catch (const FailedElsewhere&) {
        says[static_cast<std::size_t>(communicator.rank())] = false;
        throw;
      }
    });
  };
  if (std::string_view(FILIGREE_TEST_DEVICE) != "cpu") GTEST_SKIP() << "the test writes host memory";
  try {
    fail();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("different entries"), std::string::npos) << error.what();
  }
  EXPECT_EQ(says, (std::array<bool, 2>{true, false})) << "one of them says it";
}

TEST(Radius, MeasuresShareAndSurvival) {
  std::map<std::int64_t, std::map<std::string, double>> reports;
  train_toy(1, {.steps = 13}, radius(faithful(0.4, 4, 0.46)),
            [&](Toy&, GradientExchange& exchange, Communicator&, std::int64_t step) {
              for (const auto& [name, value] : exchange.report()) reports[step][name] = value;
            });
  // Dense until step 6, where the first flush is; flushes at 8 and 12. Masks of the dense phase are measured as well.
  const std::map<std::int64_t, std::int64_t> ages = {{1, 1}, {2, 2}, {4, 4}, {5, 1},  {6, 2},
                                                     {7, 1}, {8, 2}, {9, 1}, {10, 2}, {12, 4}};
  for (std::int64_t step = 0; step < 13; ++step) {
    const auto& report = reports[step];
    ASSERT_EQ(report.contains("mask_survival"), ages.contains(step)) << step;
    EXPECT_EQ(report.contains("update_share"), step % 4 == 0 || step == 6) << step;
    if (!ages.contains(step)) continue;
    EXPECT_EQ(report.at("mask_age"), static_cast<double>(ages.at(step))) << step;
    EXPECT_GT(report.at("mask_survival.a.weight"), 0.3);
    EXPECT_LE(report.at("mask_survival.a.weight"), 1.0);
  }
  EXPECT_GT(reports[4]["update_share.a.weight"], 0.4);
  EXPECT_LT(reports[4]["update_share.a.weight"], 1.0);
}

// How far an entry that is never chosen moves between two flushes, in units of the learning rate, from the steady state
// of dense training (betas 0.9 and 0.999, interval 200): mean over flushes 11 to 30.
double movement(Flush flush, const std::function<float(std::int64_t)>& gradient) {
  SingleRank one;
  const auto device = Device::cpu(1);
  Parameter parameter(*device, {.name = "weight", .shape = {2}}, Mode::training);
  RadiusSettings settings = faithful(0.5, 200, 0.0);
  settings.flush = flush;
  settings.score = Score::gradient;  // the first entry's is always the largest
  settings.measure = false;
  RadiusExchange exchange(one, settings);
  exchange.attach(*device, {&parameter});
  for (const Tensor& moment : {parameter.m(), parameter.v()}) std::fill_n(moment.as<float>(), 2, 1.0f);
  float* const g = parameter.gradient().as<float>();
  double before = 0.0;
  for (std::int64_t step = 0; step < 30 * 200 + 200; ++step) {
    g[0] = 1e4f;
    g[1] = gradient(step);
    if (step == 11 * 200) before = static_cast<double>(parameter.values().as<float>()[1]);
    exchange.begin_step(*device, {.step = step, .steps = 1 << 20});
    exchange.gradient_ready(*device, parameter);
    exchange.finish(*device);
    const ParameterUpdate update = {.parameter = &parameter,
                                    .args = {.values = parameter.values(),
                                             .master = parameter.values().as<float>(),
                                             .gradient = g,
                                             .m = parameter.m().as<float>(),
                                             .v = parameter.v().as<float>(),
                                             .count = 2,
                                             .step = {.lr = 1e-4f},
                                             .beta2 = 0.999f}};
    exchange.update(*device, {&update, 1});
  }
  return (before - static_cast<double>(parameter.values().as<float>()[1])) / 1e-4 / 20.0;
}

TEST(Radius, FlushesMoveASteadyEntryAsTheirRulesSay) {
  const auto constant = [](std::int64_t) { return 1.0f; };
  EXPECT_NEAR(movement(Flush::sum, constant), 14.0, 1.0);  // under-trained: the flush spoils v
  EXPECT_NEAR(movement(Flush::frozen_v, constant), 200.0, 3.0);
  EXPECT_NEAR(movement(Flush::split, constant), 200.0, 3.0);
  EXPECT_NEAR(movement(Flush::spread, constant), 200.0, 3.0);
}

TEST(Radius, KeepsAtLeastOneEntryOfATensor) {
  EXPECT_EQ(chosen_entries(0.4, 10), 4);
  EXPECT_EQ(chosen_entries(0.4, 1), 1);
  EXPECT_EQ(chosen_entries(1e-6, 1000), 1);
  EXPECT_EQ(chosen_entries(1.0, 7), 7);
}

}  // namespace
}  // namespace filigree
