#include "eval/log_likelihood.h"

#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "model/tiny_models.h"

namespace filigree {
namespace {

struct Fixture {
  std::unique_ptr<Device> device = Device::named(FILIGREE_TEST_DEVICE);
  Config config;
  Transformer model;

  explicit Fixture(const std::string& arch, DType precision = DType::f32)
      : config(testing::tiny_config(arch, precision)), model(*device, config, Mode::inference, false) {
    model.initialize(*device);
    for (Parameter* parameter : model.parameters())  // far from uniform, so that a wrong place shows
      if (parameter->name() == "embedding.tokens") scale(*device, parameter->values(), 50.0f);
  }
  std::vector<Likelihood> score(const std::vector<Continuation>& texts, std::int64_t batch) {
    Activations activations(*device, config.model, config.run.precision, batch, config.model.context,
                            Recompute::inference);
    return log_likelihoods(*device, model, activations, texts);
  }
  // Log-probabilities of ids[1 ..), each given all before it, from the logits of a plain pass over this one text; and
  // the most probable token at each place.
  std::vector<double> plain(const std::vector<std::int32_t>& ids, std::vector<std::int32_t>* best = nullptr) {
    const auto length = static_cast<std::int64_t>(ids.size()) - 1, vocab = config.model.vocab;
    Activations activations(*device, config.model, DType::f32, 1, length, Recompute::inference);
    const OwnedTensor tokens = device->memory().tensor(Purpose::data, DType::i32, {1, length});
    const OwnedTensor logits = device->memory().tensor(Purpose::activations, DType::f32, {length, vocab});
    device->copy_from_host(tokens, ids.data());
    model.logits(*device, activations, tokens, logits);
    std::vector<float> values(static_cast<std::size_t>(length * vocab));
    device->copy_to_host(values.data(), logits);
    std::vector<double> result;
    for (std::int64_t row = 0; row < length; ++row) {
      const float* of_row = values.data() + row * vocab;
      if (best) best->push_back(static_cast<std::int32_t>(std::max_element(of_row, of_row + vocab) - of_row));
      double sum = 0.0;
      for (std::int64_t id = 0; id < vocab; ++id) sum += std::exp(static_cast<double>(of_row[id]));
      result.push_back(static_cast<double>(of_row[ids[static_cast<std::size_t>(row + 1)]]) - std::log(sum));
    }
    return result;
  }
};

std::vector<std::int32_t> random_ids(std::int64_t count, std::uint32_t stream) {
  const Random random(9, RandomPurpose::test, stream);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), 61)));
  return ids;
}

double sum(const std::vector<double>& values, std::size_t first = 0) {
  double total = 0.0;
  for (std::size_t i = first; i < values.size(); ++i) total += values[i];
  return total;
}

TEST(LogLikelihood, OfManyTextsIsThatOfEachAlone) {
  for (const char* arch : {"gpt2", "llama"}) {
    Fixture fixture(arch);
    std::vector<Continuation> texts;
    for (std::uint32_t i = 0; i < 40; ++i) texts.push_back({random_ids(2 + i * 7 % 15, i), 1});
    texts.push_back({random_ids(9, 3), 6});       // only the last three tokens count
    for (const std::int64_t first : {1, 4, 6}) {  // what the model would say itself, behind three tokens
      Continuation greedy{random_ids(3, 8), first};
      for (int i = 0; i < 4; ++i) {
        std::vector<std::int32_t> ids = greedy.ids, best;
        ids.push_back(0);
        fixture.plain(ids, &best);
        greedy.ids.push_back(best.back());
      }
      texts.push_back(greedy);
    }
    for (const std::int64_t batch : {1, 3, 8}) {
      const std::vector<Likelihood> scores = fixture.score(texts, batch);
      ASSERT_EQ(scores.size(), texts.size());
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto before = static_cast<std::size_t>(texts[i].first - 1);
        std::vector<std::int32_t> best;
        EXPECT_NEAR(scores[i].log, sum(fixture.plain(texts[i].ids, &best), before),
                    testing::tolerance(DType::f32, 64, 16.0))
            << arch << " text " << i << " batch " << batch;
        EXPECT_EQ(scores[i].greedy, std::equal(best.begin() + static_cast<std::ptrdiff_t>(before), best.end(),
                                               texts[i].ids.begin() + static_cast<std::ptrdiff_t>(before) + 1));
      }
    }
  }
}

TEST(LogLikelihood, OfALongTextSeesTheNearestTokens) {
  Fixture fixture("gpt2");  // context 16
  const std::vector<std::int32_t> ids = random_ids(21, 5);
  // 20 targets: the last 8 .. from the last 16 inputs, the 12 before them from the beginning.
  const std::vector<double> begin = fixture.plain({ids.begin(), ids.begin() + 13});
  const std::vector<double> end = fixture.plain({ids.end() - 17, ids.end()});
  const double expected = sum(begin) - sum(begin, 11) + sum(end, 7);
  EXPECT_NEAR(fixture.score({{ids, 1}}, 2).front().log, expected, testing::tolerance(DType::f32, 64, 16.0));
}

TEST(LogLikelihood, OfEqualTextsIsEqual) {
  Fixture fixture("llama", DType::bf16);
  std::vector<Continuation> texts;
  for (std::uint32_t i = 0; i < 50; ++i) texts.push_back({random_ids(3 + i % 13, i), 1});
  texts.push_back(texts.front());
  std::int64_t passes = 0;
  Activations activations(*fixture.device, fixture.config.model, DType::bf16, 2, 16, Recompute::inference);
  const std::vector<Likelihood> scores =
      log_likelihoods(*fixture.device, fixture.model, activations, texts, [&](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(done, ++passes);
        EXPECT_LE(done, total);
      });
  EXPECT_EQ(scores.front().log, scores.back().log);
  EXPECT_LT(passes, 30) << "texts share passes";
}

TEST(Windows, ScoreEveryTargetOnceWithHalfAContextAtLeast) {
  for (const std::int64_t context : {1, 2, 7, 16})
    for (std::int64_t size = 2; size < 60; ++size)
      for (const std::int64_t first : {std::int64_t{1}, size / 2, size - 1}) {
        if (first < 1) continue;
        const Continuation text{std::vector<std::int32_t>(static_cast<std::size_t>(size)), first};
        std::vector<int> scored(static_cast<std::size_t>(size), 0);
        for (const Window& window : windows_of(text, 0, context)) {
          EXPECT_LE(window.length(), context);
          EXPECT_GE(window.begin, 0);
          for (std::int64_t at = window.first; at < window.end; ++at) {
            ++scored[static_cast<std::size_t>(at)];
            if (size - first > context)
              EXPECT_GE(at - window.begin, std::min(at, std::max<std::int64_t>(context / 2, 1)));
            else
              EXPECT_EQ(window.begin, std::max<std::int64_t>(0, size - 1 - context)) << "only the beginning is lost";
          }
        }
        for (std::int64_t at = 0; at < size; ++at)
          EXPECT_EQ(scored[static_cast<std::size_t>(at)], at >= first ? 1 : 0) << context << " " << size << " " << at;
      }
}

TEST(Passes, HaveEqualRowsAndLittleWaste) {
  std::vector<Window> windows;
  for (std::int64_t length = 100; length > 0; --length)
    for (int i = 0; i < 30; ++i) windows.push_back({.text = 0, .begin = 0, .first = 1, .end = length + 1});
  const std::int64_t context = 1024, rows = 12 * context;
  std::size_t next = 0;
  std::int64_t used = 0, total = 0;
  for (const Pass& pass : plan_passes(windows, rows, context)) {
    EXPECT_EQ(pass.first, next);
    EXPECT_EQ(rows % pass.sequence, 0);
    EXPECT_LE(pass.sequence * static_cast<std::int64_t>(pass.count), rows);
    EXPECT_LE(windows[pass.first].length(), pass.sequence);
    for (std::size_t i = 0; i < pass.count; ++i) used += windows[next + i].length();
    next += pass.count;
    total += rows;
  }
  EXPECT_EQ(next, windows.size());
  EXPECT_GT(static_cast<double>(used) / static_cast<double>(total), 0.7);
}

}  // namespace
}  // namespace filigree
