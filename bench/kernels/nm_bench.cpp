// Speed of the N:M kernels beside oneDNN's dense products of the same shape.
//
//   filigree_nm_bench [products] [decode] [pack] [fp32] [bf16]
//
// Without words everything is measured. Dense weights are prepacked (format_tag::any) for forward and dX, plain for dW:
// what a training engine can do for each. Both sides use memory of the device (huge pages). Sparse and dense runs
// alternate; medians; random operands; 2:4. GFLOP/s are those of the dense product. With
// DNNL_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment oneDNN leaves AMX alone.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/nm/nm_matmul.h"
#include "kernels/nm/nm_pack.h"
#include "kernels/nm/nm_target.h"

namespace {

using namespace filigree;
using Clock = std::chrono::steady_clock;

OwnedTensor random_tensor(Device& device, DType dtype, Shape shape) {
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, shape);
  const Random random(1, RandomPurpose::benchmark);
  for (std::int64_t i = 0; i < tensor.view().count(); ++i) {
    const float value = 2.0f * random.uniform(static_cast<std::uint64_t>(i & 0xffff)) - 1.0f;
    if (dtype == DType::f32) tensor.view().as<float>()[i] = value;
    if (dtype == DType::bf16) tensor.view().as<bf16>()[i] = bf16(value);
  }
  return tensor;
}

struct Weight {
  OwnedTensor values, mask;
  NmMatrix view;

  Weight(Device& device, DType dtype, std::int64_t rows, std::int64_t columns)
      : values(random_tensor(device, dtype, {rows, kept_columns(columns, {2, 4})})),
        mask(device.memory().tensor(Purpose::metadata, DType::u8, {rows, mask_bytes(columns)})),
        view{values, mask, rows, columns, {2, 4}} {
    nm_select_random(device, mask, rows, columns, {2, 4}, Random(1, RandomPurpose::mask));
  }
};

// A dense product by oneDNN, y (M, N) = op(a) (M, K) · b (K, N).
class Dense {
 public:
  Dense(Device& device, std::int64_t m, std::int64_t k, std::int64_t n, DType dtype, DType out, bool transpose_a,
        bool prepack) {
    using dnnl::memory;
    const auto type = dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
    const auto out_type = out == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
    const memory::desc a({m, k}, type, transpose_a ? memory::format_tag::ba : memory::format_tag::ab);
    const memory::desc b({k, n}, type, prepack ? memory::format_tag::any : memory::format_tag::ab);
    const memory::desc y({m, n}, out_type, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, y), engine_);
    product_ = dnnl::matmul(description);
    const auto place = [&](int argument, const memory::desc& what) {
      buffers_.push_back(device.memory().allocate(Purpose::workspace, what.get_size()));
      arguments_.emplace(argument, memory(what, engine_, buffers_.back().data()));
    };
    place(DNNL_ARG_SRC, description.src_desc());
    place(DNNL_ARG_WEIGHTS, description.weights_desc());
    place(DNNL_ARG_DST, description.dst_desc());
    const Random random(2, RandomPurpose::benchmark);
    for (const int argument : {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS}) {
      const memory& operand = arguments_.at(argument);
      const std::size_t count = operand.get_desc().get_size() / size_of(dtype);
      for (std::size_t i = 0; i < count; ++i) {
        const float value = 2.0f * random.uniform(i & 0xffff) - 1.0f;
        if (dtype == DType::f32) static_cast<float*>(operand.get_data_handle())[i] = value;
        if (dtype == DType::bf16) static_cast<bf16*>(operand.get_data_handle())[i] = bf16(value);
      }
    }
  }

  void run() {
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul product_;
  std::vector<Buffer> buffers_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

template <typename Body>
double seconds(Body&& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Alternates the two for about half a second and prints one line.
template <typename Sparse, typename Reference>
void compare(const std::string& what, double work, const char* unit, Sparse&& sparse, Reference&& reference) {
  sparse();
  reference();
  std::vector<double> ours, theirs;
  const auto begin = Clock::now();
  while (ours.size() < 5 || (ours.size() < 200 && Clock::now() - begin < std::chrono::milliseconds(500))) {
    ours.push_back(seconds(sparse));
    theirs.push_back(seconds(reference));
  }
  fmt::print("{:<44} {:9.3f} ms {:8.1f} {} | dense {:9.3f} ms {:8.1f} | ratio {:.2f}\n", what, median(ours) * 1e3,
             work / median(ours) * 1e-9, unit, median(theirs) * 1e3, work / median(theirs) * 1e-9,
             median(theirs) / median(ours));
  std::fflush(stdout);
}

void products(Device& device, const std::vector<DType>& types) {
  struct Case {
    std::int64_t tokens, inputs, outputs;
  };
  for (const DType dtype : types)
    for (const auto& [tokens, inputs, outputs] : {Case{2048, 768, 768},
                                                  {2048, 768, 3072},
                                                  {2048, 3072, 768},
                                                  {4096, 1024, 1024},
                                                  {2048, 2048, 2048},
                                                  {2048, 4096, 4096}}) {
      const Weight weight(device, dtype, outputs, inputs);
      const Weight transposed(device, dtype, inputs, outputs);
      nm_double_prune(device, transposed.view, weight.view, true, 0, outputs);
      const OwnedTensor x = random_tensor(device, dtype, {tokens, inputs});
      const OwnedTensor y = random_tensor(device, dtype, {tokens, outputs});
      const OwnedTensor dx = random_tensor(device, dtype, {tokens, inputs});
      const OwnedTensor gradient = random_tensor(device, DType::f32, {outputs, inputs / 2});
      const double work =
          2.0 * static_cast<double>(tokens) * static_cast<double>(inputs) * static_cast<double>(outputs);
      const std::string name = fmt::format("{} T {} K {} N {}", name_of(dtype), tokens, inputs, outputs);
      {
        Dense dense(device, tokens, inputs, outputs, dtype, dtype, false, true);
        compare(
            name + " forward", work, "GFLOP/s", [&] { nm_matmul(device, {.y = y, .x = x, .weight = weight.view}); },
            [&] { dense.run(); });
      }
      {
        Dense dense(device, tokens, outputs, inputs, dtype, dtype, false, true);
        compare(
            name + " dX", work, "GFLOP/s", [&] { nm_matmul(device, {.y = dx, .x = y, .weight = transposed.view}); },
            [&] { dense.run(); });
      }
      {
        Dense dense(device, outputs, tokens, inputs, dtype, DType::f32, true, false);
        compare(
            name + " dW", work, "GFLOP/s",
            [&] {
              nm_matmul_gradient(device,
                                 {.gradient = gradient, .dy = y, .x = x, .mask = weight.mask, .pattern = {2, 4}});
            },
            [&] { dense.run(); });
      }
    }
}

void decode(Device& device, const std::vector<DType>& types) {
  struct Layer {
    std::int64_t inputs, outputs;
  };
  for (const DType dtype : types)
    for (const auto& [inputs, outputs] : {Layer{1600, 4800}, {1600, 6400}, {6400, 1600}, {4096, 4096}})
      for (const std::int64_t tokens : {1, 4, 8}) {
        // Several layers in turn, so that weights come from where a model's weights come from.
        std::vector<Weight> weights;
        std::vector<Dense> dense;
        for (int layer = 0; layer < 6; ++layer) {
          weights.emplace_back(device, dtype, outputs, inputs);
          dense.emplace_back(device, tokens, inputs, outputs, dtype, dtype, false, true);
        }
        const OwnedTensor x = random_tensor(device, dtype, {tokens, inputs});
        const OwnedTensor y = random_tensor(device, dtype, {tokens, outputs});
        std::size_t next = 0, next_dense = 0;
        const double bytes = static_cast<double>(inputs * outputs) * static_cast<double>(size_of(dtype));
        compare(
            fmt::format("{} decode T {} K {} N {}", name_of(dtype), tokens, inputs, outputs), bytes, "GB/s",
            [&] { nm_matmul(device, {.y = y, .x = x, .weight = weights[next++ % weights.size()].view}); },
            [&] { dense[next_dense++ % dense.size()].run(); });
      }
}

void pack(Device& device, const std::vector<DType>& types) {
  for (const DType dtype : types)
    for (const std::int64_t width : {768, 2048, 4096}) {
      const Weight weight(device, dtype, width, width);
      const Weight transposed(device, dtype, width, width);
      const OwnedTensor dense = random_tensor(device, dtype, {width, width});
      const OwnedTensor copy = random_tensor(device, dtype, {width, width});
      const double bytes = static_cast<double>(dense.view().bytes());
      const auto copy_dense = [&] { std::memcpy(copy.view().data, dense.view().data, dense.view().bytes()); };
      const auto line = [&](const char* what, auto&& body) {
        compare(fmt::format("{} {} {}", name_of(dtype), width, what), bytes, "GB/s", body, copy_dense);
      };
      fmt::print("(\"dense\": a copy of the dense matrix by one thread)\n");
      line("double prune", [&] { nm_double_prune(device, transposed.view, weight.view, true, 0, width); });
      line("double prune, same mask", [&] { nm_double_prune(device, transposed.view, weight.view, false, 0, width); });
      line("compress", [&] { nm_compress(device, weight.view, dense); });
      line("expand", [&] { nm_expand(device, dense, weight.view); });
      line("expand transposed", [&] { nm_expand_transposed(device, dense, weight.view); });
    }
}

}  // namespace

int main(int count, char** words) {
  const auto device = Device::cpu();
  fmt::print("{}\n", device->description());
  const auto among = [&](std::initializer_list<const char*> names) {
    return std::any_of(words + 1, words + count, [&](const char* word) {
      return std::any_of(names.begin(), names.end(), [&](const char* name) { return !std::strcmp(word, name); });
    });
  };
  const bool all = !among({"products", "decode", "pack"});
  std::vector<DType> types;
  if (among({"fp32"}) || !among({"bf16"})) types.push_back(DType::f32);
  if (among({"bf16"}) || !among({"fp32"})) types.push_back(DType::bf16);
  if (all || among({"products"})) products(*device, types);
  if (all || among({"decode"})) decode(*device, types);
  if (all || among({"pack"})) pack(*device, types);
}
