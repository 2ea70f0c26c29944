#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "io/safetensors.h"

namespace filigree {

namespace {

// An IEEE half, 1 sign, 5 exponent and 10 mantissa bits, as the fp32 of the same value.
struct Half {
  std::uint16_t bits = 0;
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 31u;
    const std::uint32_t mantissa = bits & 1023u;
    if (exponent == 0) {  // zero and subnormal: mantissa · 2^-24
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t rebiased = exponent == 31 ? 255u : exponent + 112u;
    return std::bit_cast<float>(sign | rebiased << 23 | mantissa << 13);
  }
};

// The source may be unaligned.
template <typename From, typename To>
void convert(To* out, const std::byte* in, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, in + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
    out[i] = To(static_cast<float>(value));
  }
}

// False when the stored type is no float.
template <typename To>
bool convert_floats(To* out, StoredType stored, const std::byte* in, std::int64_t count) {
  switch (stored) {
    case StoredType::f32:
      convert<float>(out, in, count);
      return true;
    case StoredType::bf16:
      convert<bf16>(out, in, count);
      return true;
    case StoredType::f16:
      convert<Half>(out, in, count);
      return true;
    case StoredType::i32:
    case StoredType::i64:
    case StoredType::u8:
    case StoredType::boolean:
      return false;
  }
  return false;
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + ")";
}

std::size_t size_of(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return 4;
    case StoredType::bf16:
      return 2;
    case StoredType::f16:
      return 2;
    case StoredType::i32:
      return 4;
    case StoredType::i64:
      return 8;
    case StoredType::u8:
    case StoredType::boolean:
      return 1;
  }
  return 0;
}

std::string_view name_of(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return "F32";
    case StoredType::bf16:
      return "BF16";
    case StoredType::f16:
      return "F16";
    case StoredType::i32:
      return "I32";
    case StoredType::i64:
      return "I64";
    case StoredType::u8:
      return "U8";
    case StoredType::boolean:
      return "BOOL";
  }
  return "?";
}

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return StoredType::f32;
    case DType::bf16:
      return StoredType::bf16;
    case DType::i32:
      return StoredType::i32;
    case DType::u8:
      return StoredType::u8;
  }
  throw Error("safetensors: no stored type for this element type");
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), index_(parse_safetensors(file_.bytes(), path.string())) {
  for (std::size_t i = 0; i < index_.tensors.size(); ++i) by_name_.emplace(index_.tensors[i].name, i);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &index_.tensors[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr)
    throw UserError(path().string() + ": tensor '" + std::string(name) + "' is missing; the file has " +
                    std::to_string(tensors().size()) + " tensors" +
                    (tensors().empty() ? "" : ", the first is '" + tensors().front().name + "'"));
  return *tensor;
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  return file_.bytes().subspan(index_.data_offset + tensor.begin, tensor.bytes());
}

void SafetensorsFile::load(std::string_view name, const Tensor& out) const {
  const StoredTensor& tensor = at(name);
  bool same_shape = tensor.shape.size() == static_cast<std::size_t>(out.shape.rank());
  for (int axis = 0; same_shape && axis < out.shape.rank(); ++axis)
    same_shape = tensor.shape[static_cast<std::size_t>(axis)] == out.shape[axis];
  if (!same_shape)
    throw UserError(path().string() + ": tensor '" + tensor.name + "' has shape " + shape_text(tensor.shape) +
                    ", expected " + to_string(out.shape));
  copy(tensor, 0, out);
}

void SafetensorsFile::load_rows(std::string_view name, std::int64_t first, const Tensor& out) const {
  const StoredTensor& tensor = at(name);
  const int rank = out.shape.rank();
  bool fits = rank > 0 && tensor.shape.size() == static_cast<std::size_t>(rank) && first >= 0 &&
              first <= tensor.shape[0] && out.shape[0] <= tensor.shape[0] - first;
  std::int64_t row = 1;  // elements
  for (int axis = 1; fits && axis < rank; ++axis) {
    row *= out.shape[axis];
    fits = tensor.shape[static_cast<std::size_t>(axis)] == out.shape[axis];
  }
  if (!fits)
    throw UserError(path().string() + ": tensor '" + tensor.name + "' has shape " + shape_text(tensor.shape) +
                    ", expected " + to_string(out.shape) + " from row " + std::to_string(first) + " on");
  copy(tensor, first * row, out);
}

// Elements from `first` on, which are there.
void SafetensorsFile::copy(const StoredTensor& tensor, std::int64_t first, const Tensor& out) const {
  if (out.count() == 0) return;
  const std::byte* stored = bytes(tensor).data() + static_cast<std::size_t>(first) * size_of(tensor.type);
  if (tensor.type == stored_type(out.dtype)) {
    std::memcpy(out.data, stored, out.bytes());
    return;
  }
  bool converted = false;
  if (out.dtype == DType::f32) converted = convert_floats(out.as<float>(), tensor.type, stored, out.count());
  if (out.dtype == DType::bf16) converted = convert_floats(out.as<bf16>(), tensor.type, stored, out.count());
  if (!converted)
    throw UserError(path().string() + ": tensor '" + tensor.name + "' has dtype " + std::string(name_of(tensor.type)) +
                    ", expected " + std::string(name_of(stored_type(out.dtype))));
}

}  // namespace filigree
