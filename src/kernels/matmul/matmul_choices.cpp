#include "kernels/matmul/matmul_choices.h"

#include <charconv>
#include <cstdio>
#include <string_view>

#include "core/hash.h"

namespace filigree {
namespace {

constexpr std::string_view kSeparate = "separate";
constexpr std::string_view kForms[] = {"plain ", "epilogue ", "before "};  // by BiasForm

template <typename T>
std::string hexadecimal(T value) {
  char digits[2 * sizeof(T) + 1];
  std::snprintf(digits, sizeof digits, "%0*llx", static_cast<int>(2 * sizeof(T)),
                static_cast<unsigned long long>(value));
  return digits;
}

template <typename T>
std::optional<T> hexadecimal_of(std::string_view digits) {
  T value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
  if (digits.size() != 2 * sizeof(T) || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

const char* name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::gelu_forward:
      return ", gelu_forward";
    case Epilogue::gelu_backward:
      return ", gelu_backward";
    case Epilogue::relu_forward:
      return ", relu_forward";
  }
  return "";
}

}  // namespace

std::string to_text(const MatmulShape& shape) {
  std::string text = std::to_string(shape.rows) + "x" + std::to_string(shape.columns) + "x" +
                     std::to_string(shape.depth) + " " + std::string(name_of(shape.operands)) + " to " +
                     std::string(name_of(shape.result));
  if (shape.transpose_a) text += ", a transposed";
  if (shape.transpose_b) text += ", b transposed";
  if (shape.accumulate) text += ", accumulate";
  if (shape.bias) text += ", bias";
  if (shape.scaled) text += ", scaled";
  if (shape.deterministic) text += ", deterministic";
  text += name_of(shape.epilogue);
  if (shape.a_stride != 0) text += ", a_stride " + std::to_string(shape.a_stride);
  text += ", aligned";
  for (const std::uint32_t alignment :
       {shape.y_alignment, shape.a_alignment, shape.b_alignment, shape.bias_alignment, shape.pre_activation_alignment})
    text.append(" ").append(std::to_string(alignment));
  return text;
}

std::string to_text(const MatmulChoice& choice) {
  std::string text;
  if (choice.separate) {
    text = kSeparate;
  } else {
    text = kForms[static_cast<std::size_t>(choice.bias)];
    for (const std::uint64_t word : choice.algorithm) text += hexadecimal(word);
  }
  return text + " " + hexadecimal(fnv1a32(text));
}

std::optional<MatmulChoice> matmul_choice_of(const std::string& text) {
  const std::size_t space = text.rfind(' ');
  if (space == std::string::npos) return std::nullopt;
  const std::string_view content = std::string_view(text).substr(0, space);
  const auto checksum = hexadecimal_of<std::uint32_t>(std::string_view(text).substr(space + 1));
  if (checksum != fnv1a32(content)) return std::nullopt;
  MatmulChoice choice;
  choice.separate = content == kSeparate;
  if (choice.separate) return choice;
  for (std::size_t form = 0; form < std::size(kForms); ++form) {
    if (!content.starts_with(kForms[form])) continue;
    choice.bias = static_cast<BiasForm>(form);
    const std::string_view digits = content.substr(kForms[form].size());
    if (digits.size() != 16 * choice.algorithm.size()) return std::nullopt;
    for (std::size_t word = 0; word < choice.algorithm.size(); ++word) {
      const auto value = hexadecimal_of<std::uint64_t>(digits.substr(16 * word, 16));
      if (!value) return std::nullopt;
      choice.algorithm[word] = *value;
    }
    return choice;
  }
  return std::nullopt;
}

MatmulChoices matmul_choices(Device& device) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::matmul_choices(device);
  return {};
}

std::string restore_matmul_choices(Device& device, const MatmulChoices& choices) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::restore_matmul_choices(device, choices);
  return {};
}

std::int64_t matmul_searches(Device& device) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::matmul_searches(device);
  return 0;
}

}  // namespace filigree
