// Element types, and the one switch over them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"

namespace filigree {

// The upper half of an fp32, as every processor and framework stores it. Conversion from fp32 rounds to nearest even;
// NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) : bits(round(value)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  friend bool operator==(bf16 a, bf16 b) { return static_cast<float>(a) == static_cast<float>(b); }

 private:
  static std::uint16_t round(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    if ((raw & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((raw >> 16) | 0x40u);  // quiet NaN
    return static_cast<std::uint16_t>((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(bf16) == 2);

enum class DType : std::uint8_t { f32, bf16, i32, u8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i32:
      return 4;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "int32";
    case DType::u8:
      return "uint8";
  }
  return "?";
}

template <typename T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this element type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

// Calls body.operator()<T>() with the compute type that `dtype` names: the only switch over fp32 and bf16 in the
// engine.
template <typename Body>
auto with_compute_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body.template operator()<float>();
  if (dtype == DType::bf16) return body.template operator()<bf16>();
  throw Error("not a compute type: " + std::string(name_of(dtype)));
}

}  // namespace filigree
