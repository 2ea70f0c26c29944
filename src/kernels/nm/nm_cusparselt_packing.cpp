#include "kernels/nm/nm_cusparselt_packing.h"

#include <vector>

namespace filigree::cuda {
namespace {

OwnedTensor new_mask(Device& device, Shape shape) {
  return device.memory().tensor(Purpose::workspace, DType::u8, {shape[0], mask_bytes(shape[1])});
}

}  // namespace

CusparseltPacking::~CusparseltPacking() {
  for (auto& [shape, matrix] : matrices_)
    if (matrix.described) library_.mat_descriptor_destroy(&matrix.descriptor);
}

void CusparseltPacking::describe(Matrix& matrix, std::int64_t rows, std::int64_t columns) const {
  cusparseStatus_t status =
      library_.structured_descriptor_init(&handle_, &matrix.descriptor, rows, columns, columns, 16, CUDA_R_16BF,
                                          CUSPARSE_ORDER_ROW, CUSPARSELT_SPARSITY_50_PERCENT);
  matrix.described = status == CUSPARSE_STATUS_SUCCESS;
  if (matrix.described)
    status = library_.compressed_size(&handle_, &matrix.descriptor, &matrix.compressed, &matrix.workspace);
  if (status != CUSPARSE_STATUS_SUCCESS) {
    matrix.refusal = std::string("cuSPARSELt does not take the shape: ") + library_.get_error_string(status);
    return;
  }
  const auto values = static_cast<std::size_t>(rows * columns), metadata = values / 8;  // bytes; half of all, in bf16
  if (matrix.compressed < values + metadata) {
    matrix.refusal = "cuSPARSELt keeps (" + std::to_string(rows) + ", " + std::to_string(columns) + ") in " +
                     std::to_string(matrix.compressed) + " bytes: no format that is known here";
    return;
  }
  matrix.metadata = matrix.compressed - values;
  if (matrix.metadata != metadata) matrix.order_unknown = "cuSPARSELt pads this shape's metadata";
}

CusparseltPacking::Room CusparseltPacking::Room::made(Device& device, const Matrix& matrix, const Shape& shape) {
  Room room;
  room.owned_ones = device.memory().tensor(Purpose::workspace, DType::bf16, shape);
  room.owned_out = device.memory().allocate(Purpose::workspace, matrix.workspace_begin() + matrix.workspace);
  room.ones = room.owned_ones;
  room.out = static_cast<std::byte*>(room.owned_out.data());
  return room;
}

CusparseltPacking::Room CusparseltPacking::Room::scratch(Device& device, const Matrix& matrix, const Shape& shape) {
  Room room;
  const auto bytes = static_cast<std::size_t>(shape.count()) * sizeof(bf16);
  room.ones = {device.scratch(Scratch::layer, bytes), DType::bf16, shape};
  room.out = static_cast<std::byte*>(device.scratch(Scratch::kernel, matrix.workspace_begin() + matrix.workspace));
  return room;
}

// The library's metadata for a mask, in `room`. It is given ones in place of the values, for it gives entries that are
// zero no place.
Tensor CusparseltPacking::compress_by_library(Device& device, const Matrix& matrix, const Tensor& mask,
                                              const Room& room) const {
  write_ones(device, room.ones, mask);
  library_.check(library_.compress(&handle_, &matrix.descriptor, 1, CUSPARSE_OPERATION_NON_TRANSPOSE, room.ones.data,
                                   room.out, room.out + matrix.workspace_begin(), device.stream()));
  return {room.out + (matrix.compressed - matrix.metadata), DType::u8, {static_cast<std::int64_t>(matrix.metadata)}};
}

// For each group of the small matrix's metadata, its number; empty when that is not what was spelled.
std::vector<std::uint32_t> CusparseltPacking::spelled_numbers(Device& device, const Matrix& matrix) const {
  constexpr auto kGroups = static_cast<std::size_t>(kLearnedRows * kLearnedColumns / kGroupEntries);
  if (!matrix.refusal.empty() || matrix.metadata != kGroups / 2) return {};
  const OwnedTensor mask = new_mask(device, {kLearnedRows, kLearnedColumns});
  const Room room = Room::made(device, matrix, {kLearnedRows, kLearnedColumns});
  std::vector<std::uint8_t> metadata(matrix.metadata);
  std::vector<std::uint32_t> numbers(kGroups, 0);
  std::uint32_t divisor = 1;
  for (int digit = 0; digit < kLearnedDigits; ++digit, divisor *= kGroupPatterns) {
    write_spelled(device, mask, divisor);
    device.copy_to_host(metadata.data(), compress_by_library(device, matrix, mask, room));
    for (std::size_t group = 0; group < kGroups; ++group) {
      const int pattern = pattern_of_metadata(metadata[group / 2] >> 4 * (group % 2) & 15u);
      if (pattern < 0) return {};
      numbers[group] += static_cast<std::uint32_t>(pattern) * divisor;
    }
  }
  return numbers;
}

void CusparseltPacking::learn_order(Device& device) {
  Matrix matrix;
  describe(matrix, kLearnedRows, kLearnedColumns);
  tiles_ = find_metadata_tiles(spelled_numbers(device, matrix), kLearnedRows, kLearnedColumns);
  if (matrix.described) library_.mat_descriptor_destroy(&matrix.descriptor);
  if (!tiles_) return;
  const std::vector<std::uint16_t>& places = tiles_->places;
  places_ = device.memory().tensor(Purpose::metadata, DType::u8,
                                   {static_cast<std::int64_t>(places.size() * sizeof(std::uint16_t))});
  device.copy_from_host(places_, places.data());
}

// Whether we write what the library writes, for a mask of this shape that has all patterns everywhere.
std::string CusparseltPacking::check_order(Device& device, const Matrix& matrix, Shape shape) {
  if (!order_sought_) learn_order(device);
  order_sought_ = true;
  if (!tiles_) return "cuSPARSELt's order of metadata is no order of tiles";
  if (shape[0] % tiles_->rows != 0 || shape[1] % tiles_->columns != 0)
    return "the shape is not made of whole tiles of cuSPARSELt's metadata";
  const OwnedTensor mask = new_mask(device, shape);
  write_scrambled(device, mask);
  const OwnedTensor ours =
      device.memory().tensor(Purpose::workspace, DType::u8, {static_cast<std::int64_t>(matrix.metadata)});
  write_metadata(device, ours, mask, shape[1], *tiles_, static_cast<const std::uint16_t*>(places_.view().data));
  const Room room = Room::made(device, matrix, shape);
  const std::uint64_t wrong = differing_words(device, ours, compress_by_library(device, matrix, mask, room));
  if (wrong == 0) return "";
  return "cuSPARSELt's order of metadata is another one for this shape (" + std::to_string(wrong) + " words differ)";
}

const CusparseltPacking::Matrix& CusparseltPacking::shape(Device& device, std::int64_t rows, std::int64_t columns) {
  const auto [found, fresh] = matrices_.try_emplace({rows, columns});
  Matrix& matrix = found->second;
  if (!fresh) return matrix;
  describe(matrix, rows, columns);
  if (matrix.refusal.empty() && matrix.order_unknown.empty())
    matrix.order_unknown = check_order(device, matrix, {rows, columns});
  return matrix;
}

void CusparseltPacking::pack(Device& device, const NmMatrix& matrix, bool by_library) {
  const Matrix& known = shape(device, matrix.rows, matrix.columns);
  require(known.refusal.empty() && !matrix.metadata.empty() && matrix.metadata.bytes() == known.metadata,
          "cusparselt_pack: the matrix has no metadata, or of another size");
  if (known.order_unknown.empty() && !by_library) {
    write_metadata(device, matrix.metadata, matrix.mask, matrix.columns, *tiles_,
                   static_cast<const std::uint16_t*>(places_.view().data));
    return;
  }
  const Room room = Room::scratch(device, known, {matrix.rows, matrix.columns});
  device.copy(matrix.metadata, compress_by_library(device, known, matrix.mask, room));
}

}  // namespace filigree::cuda
