#include "kernels/nm/nm_cusparselt.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/cuda_error.h"
#include "kernels/matmul/matmul_bias_cuda.h"
#include "kernels/nm/nm_cusparselt_plan.h"
#include "kernels/nm/nm_metadata_cuda.h"

namespace filigree::cuda {
namespace {

// How the metadata of one shape is written.
struct Packing {
  std::string refusal;
  bool described = false;
  cusparseLtMatDescriptor_t descriptor{};
  std::size_t compressed = 0, workspace = 0;  // bytes that the library's compression writes and needs
  std::size_t metadata = 0;                   // of `compressed`: what lies behind the values
  std::optional<MetadataTiles> tiles;         // empty: not understood, the library writes it
  OwnedTensor places;                         // tiles->places on the device
};

struct Plans {
  std::unique_ptr<CusparseltPlan> plain;   // null: refused
  std::unique_ptr<CusparseltPlan> biased;  // null: not asked for, or the library has none that is right
  bool bias_asked = false;
  std::string refusal;
};

class State final : public LibraryState {
 public:
  State() : library(load_cusparselt()), refusal(library.refusal) {
    if (!refusal.empty()) return;
    const cusparseStatus_t status = library.init(&handle);
    if (status != CUSPARSE_STATUS_SUCCESS) refusal = std::string("cuSPARSELt: ") + library.get_error_string(status);
  }
  ~State() override {
    if (!refusal.empty()) return;
    plans.clear();
    for (auto& [shape, packing] : packings)
      if (packing.described) library.mat_descriptor_destroy(&packing.descriptor);
    library.destroy(&handle);
  }

  CusparseltLibrary library;
  std::string refusal;
  cusparseLtHandle_t handle{};
  std::map<std::pair<std::int64_t, std::int64_t>, Packing> packings;  // by (rows, columns)
  std::map<CusparseltShape, Plans> plans;
};

State& state_of(Device& device) {
  return device.library<State>(Library::cusparselt, [] { return std::make_unique<State>(); });
}

// The metadata that the library gives a dense matrix of ones, in scratch memory: packing.metadata bytes.
void* compress_by_library(Device& device, const State& state, const Packing& packing, const Tensor& ones) {
  const std::size_t values = packing.compressed - packing.metadata;
  const std::size_t place = (packing.compressed + 255) / 256 * 256;
  auto* out = static_cast<std::byte*>(device.scratch(Scratch::kernel, place + packing.workspace));
  state.library.check(state.library.compress(&state.handle, &packing.descriptor, 1, CUSPARSE_OPERATION_NON_TRANSPOSE,
                                             ones.data, out, out + place, device.stream()));
  return out + values;
}

// For each word of the library's metadata, its number in the matrix; empty when it is not the metadata of what was
// spelled.
std::vector<std::uint32_t> spelled_numbers(Device& device, const State& state, const Packing& packing, Shape shape) {
  const OwnedTensor dense = device.memory().tensor(Purpose::workspace, DType::bf16, shape);
  const auto words = static_cast<std::size_t>(shape.count() / kWordEntries);
  std::vector<std::uint16_t> metadata(words);
  std::vector<std::uint32_t> numbers(words, 0);
  for (std::uint64_t divisor = 1; divisor < words; divisor *= kWordPatterns) {
    write_spelled(device, dense, static_cast<std::uint32_t>(divisor));
    void* written = compress_by_library(device, state, packing, dense);
    device.copy_to_host(metadata.data(), {written, DType::u8, {static_cast<std::int64_t>(2 * words)}});
    for (std::size_t word = 0; word < words; ++word) {
      const int code = read_code(metadata[word]);
      if (code < 0) return {};
      numbers[word] += static_cast<std::uint32_t>(static_cast<std::uint64_t>(code) * divisor);
    }
  }
  return numbers;
}

void learn(Device& device, const State& state, Packing& packing, std::int64_t rows, std::int64_t columns) {
  const CusparseltLibrary& library = state.library;
  cusparseStatus_t status =
      library.structured_descriptor_init(&state.handle, &packing.descriptor, rows, columns, columns, 16, CUDA_R_16BF,
                                         CUSPARSE_ORDER_ROW, CUSPARSELT_SPARSITY_50_PERCENT);
  packing.described = status == CUSPARSE_STATUS_SUCCESS;
  if (packing.described)
    status = library.compressed_size(&state.handle, &packing.descriptor, &packing.compressed, &packing.workspace);
  if (status != CUSPARSE_STATUS_SUCCESS) {
    packing.refusal = std::string("cuSPARSELt does not take the shape: ") + library.get_error_string(status);
    return;
  }
  const auto values = static_cast<std::size_t>(rows * columns), metadata = values / 8;  // bytes; half of all, in bf16
  if (packing.compressed < values + metadata) {
    packing.refusal = "cuSPARSELt keeps (" + std::to_string(rows) + ", " + std::to_string(columns) + ") in " +
                      std::to_string(packing.compressed) + " bytes: no format that is known here";
    return;
  }
  packing.metadata = packing.compressed - values;
  if (packing.metadata != metadata) return;  // padded: its order is left to the library
  packing.tiles = find_metadata_tiles(spelled_numbers(device, state, packing, {rows, columns}), rows, columns);
  if (!packing.tiles) return;
  const std::vector<std::uint16_t>& places = packing.tiles->places;
  packing.places = device.memory().tensor(Purpose::metadata, DType::u8,
                                          {static_cast<std::int64_t>(places.size() * sizeof(std::uint16_t))});
  device.copy_from_host(packing.places, places.data());
}

Packing& packing_of(Device& device, std::int64_t rows, std::int64_t columns) {
  State& state = state_of(device);
  const auto [found, fresh] = state.packings.try_emplace({rows, columns});
  if (fresh) learn(device, state, found->second, rows, columns);
  return found->second;
}

}  // namespace

std::string cusparselt_refuses(Device& device, std::int64_t rows, std::int64_t columns, Pattern pattern, DType dtype) {
  if (pattern != Pattern{2, 4} || dtype != DType::bf16) return "sparse products on a GPU are those of 2:4 in bf16";
  if (rows % 64 != 0 || columns % 64 != 0) return "sparse products on a GPU need extents that are multiples of 64";
  if (const State& state = state_of(device); !state.refusal.empty()) return state.refusal;
  return packing_of(device, rows, columns).refusal;
}

std::int64_t cusparselt_metadata_bytes(Device& device, std::int64_t rows, std::int64_t columns) {
  return static_cast<std::int64_t>(packing_of(device, rows, columns).metadata);
}

void cusparselt_pack(Device& device, const NmMatrix& matrix, bool by_library) {
  const Packing& packing = packing_of(device, matrix.rows, matrix.columns);
  require(packing.refusal.empty() && !matrix.metadata.empty() && matrix.metadata.bytes() == packing.metadata,
          "cusparselt_pack: the matrix has no metadata, or of another size");
  if (packing.tiles && !by_library) {
    write_metadata(device, matrix.metadata, matrix.mask, matrix.columns, *packing.tiles,
                   static_cast<const std::uint16_t*>(packing.places.view().data));
    return;
  }
  // Ones in place of the values: the library gives entries that are zero no place.
  const Shape shape{matrix.rows, matrix.columns};
  const auto bytes = static_cast<std::size_t>(shape.count()) * sizeof(bf16);
  const Tensor ones{device.scratch(Scratch::layer, bytes), DType::bf16, shape};
  write_ones(device, ones, matrix.mask);
  device.copy(matrix.metadata,
              {compress_by_library(device, state_of(device), packing, ones), DType::u8, matrix.metadata.shape});
}

CusparseltPlanned cusparselt_planned(Device& device, const CusparseltShape& shape) {
  const State& state = state_of(device);
  const auto found = state.plans.find(shape);
  if (found == state.plans.end()) return {.refusal = "no plan was made"};
  const Plans& plans = found->second;
  return {.algorithm = plans.plain ? plans.plain->algorithm() : -1,
          .refusal = plans.refusal,
          .asked = true,
          .bias_asked = plans.bias_asked};
}

CusparseltPlanned cusparselt_plan(Device& device, const NmMatmulArgs& args, int algorithm) {
  State& state = state_of(device);
  require(!args.weight.metadata.empty(), "cusparselt_plan: the matrix has no metadata");
  const auto find = [&](const NmMatmulArgs& of, int which, std::string& refusal) {
    return find_cusparselt_plan(device, state.library, state.handle, of, which, refusal);
  };
  const auto [found, fresh] = state.plans.try_emplace(shape_of(args));
  Plans& plans = found->second;
  if (fresh) {
    NmMatmulArgs plain = args;
    plain.bias = {};
    plans.plain = find(plain, algorithm, plans.refusal);
  }
  if (!args.bias.empty() && !plans.bias_asked) {
    std::string ignored;  // the bias is written first, then
    if (plans.plain) plans.biased = find(args, plans.plain->algorithm(), ignored);
    plans.bias_asked = true;
  }
  return cusparselt_planned(device, shape_of(args));
}

void nm_matmul(Device& device, const NmMatmulArgs& args) {
  const State& state = state_of(device);
  const auto found = state.plans.find(shape_of(args));
  require(!args.weight.metadata.empty() && found != state.plans.end() && found->second.plain,
          "nm_matmul: on a GPU a product of this shape needs metadata and a plan (cusparselt_plan)");
  const Tensor& values = args.weight.values;
  require(
      static_cast<std::byte*>(values.data) + values.bytes() == args.weight.metadata.data && args.y.dtype == DType::bf16,
      "nm_matmul: on a GPU the metadata must lie behind the values, and y be bf16");
  const Plans& plans = found->second;
  NmMatmulArgs rest = args;
  if (!args.bias.empty() && !plans.biased) {
    write_bias(device, args.y, args.bias, args.accumulate);
    rest.bias = {};
    rest.accumulate = true;
  }
  state.library.check((rest.bias.empty() ? plans.plain : plans.biased)->run(device, rest));
}

}  // namespace filigree::cuda
