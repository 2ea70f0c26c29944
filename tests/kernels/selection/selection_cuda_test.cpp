#include "kernels/cuda_test.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/selection/selected_adamw.h"
#include "kernels/selection/selection_support.h"

namespace filigree::testing {
namespace {

constexpr std::int64_t kCounts[] = {1, 31, 33, 1023, 1024, 1025, 5000, 300001};

class SelectionCuda : public CudaTest {
 protected:
  struct OnGpu {
    OwnedTensor bits, before;
    Selection view;
  };
  Tensor bits_of(const OwnedSelection& host) const {
    return {const_cast<std::uint32_t*>(host.bits.data()), DType::i32, {static_cast<std::int64_t>(host.bits.size())}};
  }
  Tensor before_of(const OwnedSelection& host) const {
    return {const_cast<std::int32_t*>(host.before.data()), DType::i32, {static_cast<std::int64_t>(host.before.size())}};
  }
  OnGpu selection_on_gpu(const OwnedSelection& host) {
    OnGpu made{on_gpu(bits_of(host)), on_gpu(before_of(host)), {}};
    made.view = {.bits = static_cast<std::uint32_t*>(made.bits.view().data),
                 .before = static_cast<std::int32_t*>(made.before.view().data),
                 .count = host.view.count};
    return made;
  }
  void expect_same_selection(const OnGpu& found, const OwnedSelection& expected, const std::string& what) {
    expect_same(found.bits, bits_of(expected), what + ", bits");
    expect_same(found.before, before_of(expected), what + ", counts");
  }
};

TEST_F(SelectionCuda, ChoosesWhatTheProcessorChooses) {
  for (const std::int64_t radius : {0, 1, 50, 5000})
    for (const std::uint32_t distinct : {0u, 1u, 100u}) {
      // More arrays than one launch takes, of all lengths.
      std::vector<std::vector<float>> scores;
      std::vector<OwnedTensor> on_device;
      std::vector<OwnedSelection> expected;
      std::vector<OnGpu> found;
      std::vector<LargestArgs> cpu_args, gpu_args;
      for (std::uint32_t round = 0; round < 4; ++round)
        for (const std::int64_t count : kCounts) {
          scores.push_back(test_scores(count, distinct, round * 100 + distinct));
          on_device.push_back(on_gpu({scores.back().data(), DType::f32, {count}}));
          expected.emplace_back(count);
          found.push_back(selection_on_gpu(expected.back()));
          const std::int64_t keep = std::max<std::int64_t>(1, count * (round + 1) / (radius > 0 ? 100 : 4));
          cpu_args.push_back(
              {.chosen = expected.back().view, .scores = scores.back().data(), .keep = keep, .radius = radius});
          gpu_args.push_back({.chosen = found.back().view,
                              .scores = on_device.back().view().as<float>(),
                              .keep = keep,
                              .radius = radius});
        }
      select_largest(cpu(), cpu_args);
      select_largest(gpu(), gpu_args);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expect_same_selection(found[i], expected[i],
                              "array " + std::to_string(i) + ", radius " + std::to_string(radius));
    }
}

TEST_F(SelectionCuda, CompactsScattersAndListsAsTheProcessor) {
  for (const DType wire : {DType::f32, DType::bf16})
    for (const bool pass : {false, true})
      for (const bool clear : {false, true})
        for (const std::int64_t count : kCounts) {
          const OwnedSelection chosen = OwnedSelection::random(count, 0.4f, 3);
          const OnGpu chosen_gpu = selection_on_gpu(chosen);
          const std::int64_t sent = chosen.before.back();
          const OwnedTensor gradient = random_tensor(cpu(), DType::f32, {count}, 1);
          const OwnedTensor residual = random_tensor(cpu(), DType::f32, {count}, 2);
          const OwnedTensor packed = random_tensor(cpu(), wire, {sent + 1}, 3);
          const OwnedTensor gradient_gpu = on_gpu(gradient), residual_gpu = on_gpu(residual),
                            packed_gpu = on_gpu(packed);
          const auto args = [&](const Tensor& g, const Tensor& r, const Tensor& p, const Selection& selection) {
            return CompactArgs{.packed = p.slice(0, sent),
                               .gradient = g.as<float>(),
                               .residual = r.as<float>(),
                               .chosen = selection,
                               .pass_residual = pass,
                               .clear = clear};
          };
          const CompactArgs on_host = args(gradient, residual, packed, chosen.view);
          const CompactArgs on_device = args(gradient_gpu, residual_gpu, packed_gpu, chosen_gpu.view);
          compact(cpu(), {&on_host, 1});
          compact(gpu(), {&on_device, 1});
          const std::string what = std::to_string(count) + " entries";
          expect_same(packed_gpu, packed, what + ", packed");
          expect_same(residual_gpu, residual, what + ", residual");
          expect_same(gradient_gpu, gradient, what + ", gradient");

          const ScatterArgs back = {.gradient = on_host.gradient, .packed = on_host.packed, .chosen = chosen.view};
          const ScatterArgs back_gpu = {
              .gradient = on_device.gradient, .packed = on_device.packed, .chosen = chosen_gpu.view};
          scatter(cpu(), {&back, 1});
          scatter(gpu(), {&back_gpu, 1});
          expect_same(gradient_gpu, gradient, what + ", scattered");

          if (sent == 0) continue;
          const OwnedTensor indices = cpu().memory().tensor(Purpose::workspace, DType::i32, {sent});
          const OwnedTensor indices_gpu = on_gpu(indices);
          const IndicesArgs list = {.indices = indices.view().as<std::int32_t>(), .chosen = chosen.view};
          const IndicesArgs list_gpu = {.indices = indices_gpu.view().as<std::int32_t>(), .chosen = chosen_gpu.view};
          list_indices(cpu(), {&list, 1});
          list_indices(gpu(), {&list_gpu, 1});
          expect_same(indices_gpu, indices, what + ", indices");
          add_at(cpu(), on_host.gradient, list.indices, on_host.packed);
          add_at(gpu(), on_device.gradient, list_gpu.indices, on_device.packed);
          expect_same(gradient_gpu, gradient, what + ", added");
        }
}

TEST_F(SelectionCuda, MeasuresAndHashesAsTheProcessor) {
  std::vector<OwnedSelection> hosts;
  std::vector<OnGpu> copies;
  std::vector<Selection> views, views_gpu;
  for (std::uint32_t i = 0; i < 30; ++i) {
    hosts.push_back(OwnedSelection::random(kCounts[i % std::size(kCounts)], 0.3f, i));
    copies.push_back(selection_on_gpu(hosts.back()));
    views_gpu.push_back(copies.back().view);
  }
  for (const OwnedSelection& host : hosts) views.push_back(host.view);
  EXPECT_EQ(selection_hash(gpu(), views_gpu), selection_hash(cpu(), views));

  const std::int64_t count = 300001;
  const OwnedSelection a = OwnedSelection::random(count, 0.3f, 1), b = OwnedSelection::random(count, 0.5f, 2);
  const OnGpu a_gpu = selection_on_gpu(a), b_gpu = selection_on_gpu(b);
  std::vector<float> scores = test_scores(count, 50, 3);  // whole numbers: sums are exact
  const OwnedTensor scores_gpu = on_gpu({scores.data(), DType::f32, {count}});
  const MeasureArgs host = {.chosen = a.view, .other = b.view, .scores = scores.data()};
  const MeasureArgs device = {.chosen = a_gpu.view, .other = b_gpu.view, .scores = scores_gpu.view().as<float>()};
  const SelectionMeasure expected = measure(cpu(), {&host, 1})[0], found = measure(gpu(), {&device, 1})[0];
  EXPECT_EQ(found.chosen, expected.chosen);
  EXPECT_EQ(found.common, expected.common);
  EXPECT_EQ(found.chosen_squares, expected.chosen_squares);
  EXPECT_EQ(found.all_squares, expected.all_squares);
}

TEST_F(SelectionCuda, UpdatesWithTheProcessorsBits) {
  for (const OtherEntries others :
       {OtherEntries::decay, OtherEntries::hold, OtherEntries::window, OtherEntries::frozen})
    for (const bool packed : {false, true})
      for (const bool selects : {false, true})
        for (const DType dtype : {DType::f32, DType::bf16})
          for (const std::int64_t count : kCounts) {
            if (packed && !selects) continue;
            const OwnedSelection chosen = OwnedSelection::random(count, 0.4f, 3);
            const std::int64_t sent = chosen.before.back();
            if (packed && sent == 0) continue;
            const OnGpu chosen_gpu = selection_on_gpu(chosen);
            // master, gradient, m, v, extra, direction, bf16 values, packed
            std::vector<OwnedTensor> host, device;
            for (std::uint32_t array = 0; array < 8; ++array) {
              const bool half = array >= 6;
              host.push_back(random_tensor(cpu(), half ? dtype : DType::f32, {array == 7 ? sent : count}, array, 0.1));
              if (array == 3)
                for (std::int64_t i = 0; i < count; ++i) host[3].view().as<float>()[i] *= host[3].view().as<float>()[i];
              if (array == 6) convert(cpu(), host[6], host[0]);  // values are their masters, rounded
              device.push_back(on_gpu(host.back()));
            }
            const auto args = [&](const std::vector<OwnedTensor>& arrays, const Selection& selection) {
              const auto at = [&](std::size_t array) { return arrays[array].view().as<float>(); };
              return SelectedAdamWArgs{
                  .adamw = {.values = dtype == DType::bf16 ? arrays[6].view() : arrays[0].view(),
                            .master = at(0),
                            .gradient = at(1),
                            .m = at(2),
                            .v = at(3),
                            .count = count,
                            .step = {.lr = 3e-3f, .clip = 0.7f, .bias_correction1 = 0.271f, .bias_correction2 = 0.14f},
                            .decay = 0.1f},
                  .chosen = selects ? selection : Selection{},
                  .packed = packed ? arrays[7].view() : Tensor{},
                  .extra = others == OtherEntries::decay ? nullptr : at(4),
                  .extra_factor = 0.3f,
                  .extra_in_v = others == OtherEntries::hold,
                  .others = others,
                  .beta2_window = 0.8f,
                  .direction = at(packed ? 5 : 1)};
            };
            const SelectedAdamWArgs on_host = args(host, chosen.view), on_device = args(device, chosen_gpu.view);
            selected_adamw(cpu(), {&on_host, 1});
            selected_adamw(gpu(), {&on_device, 1});
            for (const std::size_t array : {0u, 1u, 2u, 3u, 5u, 6u})
              expect_same(device[array], host[array],
                          std::to_string(count) + " entries, array " + std::to_string(array));
          }
}

}  // namespace
}  // namespace filigree::testing
