// Steps that are left out, because a number was not finite.
#include "comm/powersgd_exchange.h"
#include "comm/randomk_exchange.h"
#include "comm/topk_exchange.h"
#include "radius_modes.h"

namespace filigree {
namespace {

using namespace testing;  // NOLINT: the tests' own helpers

std::vector<MakeExchange> with_error_feedback() {
  const WireOptions wire = {.dtype = DType::f32, .bucket_bytes = kBucket, .in_place = kToyInPlace};
  return {[=](Communicator& ranks) {
            return std::make_unique<TopkExchange>(ranks, TopkSettings{.density = 0.05, .wire = wire});
          },
          [=](Communicator& ranks) {
            return std::make_unique<RandomkExchange>(ranks, RandomkSettings{.density = 0.3, .wire = wire});
          },
          [=](Communicator& ranks) {
            return std::make_unique<PowerSgdExchange>(ranks, PowerSgdSettings{.rank = 2, .bucket_bytes = kBucket});
          }};
}

TEST(Radius, ASkippedStepDoesNotSpoilTheNextFlush) {
  for (const RadiusSettings& settings : all_modes(0.3, 4))
    run_virtual_ranks(2, [&](Communicator& communicator) {
      ToySettings toy = {.steps = 20};
      toy.gradient = [](std::int64_t step, int rank, std::size_t tensor, std::int64_t i) {
        return (step == 6 || step == 12) && rank == 1 ? std::nanf("") : toy_gradient(step, rank, tensor, i);
      };
      Toy trained(toy);
      const auto exchange = radius(settings)(communicator);
      exchange->attach(trained.device(), trained.all);
      for (std::int64_t step = 0; step < toy.steps; ++step) {
        const bool bad = step == 6 || step == 12;
        trained.step(*exchange, step, communicator.rank(), bad);
        ASSERT_EQ(std::isfinite(trained.norm), !bad) << step;
      }
      for (const std::vector<float>& values : trained.state())
        for (const float value : values) ASSERT_TRUE(std::isfinite(value));
    });
}

// A checkpoint may follow a step that was left out, whether it flushes (8) or not (6).
TEST(Radius, ResumesAfterASkippedStepWithEqualBits) {
  for (const RadiusSettings& settings : all_modes(0.3, 4))
    for (const std::int64_t bad : {6, 8}) {
      ToySettings toy = {.steps = 14};
      toy.gradient = [bad](std::int64_t step, int rank, std::size_t tensor, std::int64_t i) {
        return step == bad && rank == 1 && i == 0 ? std::nanf("") : toy_gradient(step, rank, tensor, i);
      };
      const auto trained = [&](bool pauses) {
        ToyCheckpoint checkpoint;
        std::vector<std::vector<float>> state;
        run_virtual_ranks(2, [&](Communicator& communicator) {
          Toy one(toy);
          auto exchange = radius(settings)(communicator);
          exchange->attach(one.device(), one.all);
          for (std::int64_t step = 0; step < toy.steps; ++step) {
            one.step(*exchange, step, communicator.rank(), step == bad);
            ASSERT_EQ(std::isfinite(one.norm), step != bad) << step;
            if (step != bad || !pauses) continue;
            ToyCheckpoint::Sink sink(checkpoint, one.device(), communicator.rank());
            exchange->save(sink);
            communicator.barrier();
            exchange = radius(settings)(communicator);
            exchange->attach(one.device(), one.all);
            exchange->load(one.device(), ToyCheckpoint::Source(checkpoint, communicator.rank()));
          }
          if (communicator.is_first()) state = one.state();
        });
        return state;
      };
      ASSERT_TRUE(trained(true) == trained(false)) << "flush " << static_cast<int>(settings.flush) << ", step " << bad;
    }
}

// What a flush has summed is gone with its step: it would count once a rank at the next one.
TEST(Radius, NothingWaitsAfterAFlushThatWasSkipped) {
  for (const RadiusSettings& settings : all_modes(0.3, 4)) {
    if (settings.stagger) continue;
    ToyCheckpoint checkpoint;
    run_virtual_ranks(2, [&](Communicator& communicator) {
      Toy toy({.steps = 12});
      const auto exchange = radius(settings)(communicator);
      exchange->attach(toy.device(), toy.all);
      for (std::int64_t step = 0; step <= 12; ++step) toy.step(*exchange, step, communicator.rank(), step == 12);
      ToyCheckpoint::Sink sink(checkpoint, toy.device(), communicator.rank());
      exchange->save(sink);
    });
    for (const ToyShape& shape : toy_shapes()) {
      EXPECT_FALSE(checkpoint.arrays.contains({"residual." + shape.name, 0})) << shape.name;
      EXPECT_FALSE(checkpoint.arrays.contains({"spread." + shape.name, -1})) << shape.name;
    }
  }
}

TEST(ErrorFeedback, ASkippedStepDoesNotSpoilTheResidual) {
  for (const MakeExchange& make : with_error_feedback())
    run_virtual_ranks(2, [&](Communicator& communicator) {
      ToySettings toy = {.steps = 6};
      toy.gradient = [](std::int64_t step, int rank, std::size_t tensor, std::int64_t i) {
        return step == 2 && rank == 1 ? std::nanf("") : toy_gradient(step, rank, tensor, i);
      };
      Toy trained(toy);
      const auto exchange = make(communicator);
      exchange->attach(trained.device(), trained.all);
      for (std::int64_t step = 0; step < toy.steps; ++step) {
        trained.step(*exchange, step, communicator.rank(), step == 2);
        ASSERT_EQ(std::isfinite(trained.norm), step != 2) << step;
      }
    });
}

TEST(ErrorFeedback, ResumesAfterASkippedStep) {
  for (const MakeExchange& make : with_error_feedback()) {
    ToyCheckpoint checkpoint;
    run_virtual_ranks(2, [&](Communicator& communicator) {
      ToySettings toy = {.steps = 6};
      toy.gradient = [](std::int64_t step, int rank, std::size_t tensor, std::int64_t i) {
        return step == 2 && rank == 1 ? std::nanf("") : toy_gradient(step, rank, tensor, i);
      };
      Toy trained(toy);
      auto exchange = make(communicator);
      exchange->attach(trained.device(), trained.all);
      for (std::int64_t step = 0; step < toy.steps; ++step) {
        trained.step(*exchange, step, communicator.rank(), step == 2);
        ASSERT_EQ(std::isfinite(trained.norm), step != 2) << step;
        if (step != 2) continue;
        ToyCheckpoint::Sink sink(checkpoint, trained.device(), communicator.rank());
        exchange->save(sink);
        communicator.barrier();
        exchange = make(communicator);
        exchange->attach(trained.device(), trained.all);
        exchange->load(trained.device(), ToyCheckpoint::Source(checkpoint, communicator.rank()));
      }
    });
  }
}

}  // namespace
}  // namespace filigree
