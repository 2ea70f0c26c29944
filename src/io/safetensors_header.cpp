// Reading a safetensors header. The JSON library's event interface is used instead of its tree: duplicate keys are
// seen, and nothing is built that the format does not have.
#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "io/safetensors.h"

namespace filigree {

namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

std::optional<StoredType> type_named(std::string_view name) {
  for (const StoredType type : {StoredType::f32, StoredType::bf16, StoredType::f16, StoredType::i32, StoredType::i64,
                                StoredType::u8, StoredType::boolean})
    if (name_of(type) == name) return type;
  return {};
}

// Names come from the file: cut, and without control characters.
std::string shown(std::string_view text) {
  constexpr std::size_t most = 80;
  std::string out;
  for (const char c : text.substr(0, most)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return "'" + out + (text.size() > most ? "...'" : "'");
}

// Receives the events of the parser; each handler returns false to stop, with the reason in problem_.
class HeaderHandler {
 public:
  explicit HeaderHandler(SafetensorsIndex& index) : index_(index) {}
  const std::string& problem() const { return problem_; }

  bool start_object(std::size_t) {
    if (place_ == Place::start) return enter(Place::root);
    if (place_ == Place::root) return enter(in_metadata_ ? Place::metadata : Place::tensor);
    return unexpected("an object");
  }
  bool end_object() {
    if (place_ == Place::tensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!keys_.contains(field)) return stop(std::string(field) + " is missing");
      place_ = Place::root;
    } else if (place_ == Place::metadata) {
      place_ = Place::root;
    }
    return true;
  }
  bool key(std::string& name) {
    if (place_ == Place::root) {
      tensor_name_ = name;
      if (!names_.insert(name).second) return stop("the name appears twice");
      in_metadata_ = name == "__metadata__";
      keys_.clear();
      if (!in_metadata_) index_.tensors.push_back({name, StoredType::f32, {}, 0, 0});
      return true;
    }
    if (!keys_.insert(name).second) return stop("the key " + shown(name) + " appears twice");
    if (place_ == Place::tensor && name != "dtype" && name != "shape" && name != "data_offsets")
      return stop("unknown key " + shown(name) + ", expected dtype, shape and data_offsets");
    field_ = name;
    return true;
  }
  bool string(std::string& text) {
    if (place_ == Place::metadata) {
      index_.metadata[field_] = text;
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") return unexpected("a text");
    const auto type = type_named(text);
    if (!type) return stop("dtype " + shown(text) + " is not one of F32, BF16, F16, I32, I64, U8");
    index_.tensors.back().type = *type;
    return true;
  }
  bool start_array(std::size_t) {
    if (place_ != Place::tensor || field_ == "dtype") return unexpected("a list");
    offsets_ = 0;
    return enter(Place::list);
  }
  bool end_array() {
    place_ = Place::tensor;
    if (field_ == "data_offsets" && offsets_ != 2) return stop("data_offsets has not two numbers");
    return true;
  }
  bool number_unsigned(std::uint64_t value) {
    if (place_ != Place::list) return unexpected("a number");
    if (value > kMaxBytes) return stop(field_ + " has the number " + std::to_string(value) + ", above 2^63 - 1");
    StoredTensor& tensor = index_.tensors.back();
    if (field_ == "shape") {
      tensor.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (offsets_ < 2) (offsets_ == 0 ? tensor.begin : tensor.end) = value;
    ++offsets_;
    return true;
  }
  bool number_integer(std::int64_t) { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) { return unexpected("a fraction"); }
  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a truth value"); }
  bool binary(nlohmann::json::binary_t&) { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    problem_ = "the header is not valid JSON at its byte " + std::to_string(position);
    return false;
  }

 private:
  enum class Place { start, root, metadata, tensor, list };

  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool stop(const std::string& text) {
    problem_ = (in_metadata_ ? "" : "tensor ") + shown(tensor_name_) + ": " + text;
    return false;
  }
  bool unexpected(const std::string& what) {
    if (place_ == Place::start) {
      problem_ = "the header is " + what + ", expected an object";
      return false;
    }
    if (place_ == Place::metadata) return stop(what + " as the value of " + shown(field_) + ", expected a text");
    if (place_ == Place::root) return stop(what + ", expected an object");
    const bool text = field_ == "dtype";
    return stop(what + " in " + field_ + (text ? ", expected a text" : ", expected a list of whole numbers"));
  }

  SafetensorsIndex& index_;
  std::string problem_;
  Place place_ = Place::start;
  bool in_metadata_ = false;
  std::string tensor_name_;
  std::string field_;
  int offsets_ = 0;
  std::set<std::string, std::less<>> names_;  // of the root
  std::set<std::string, std::less<>> keys_;   // of the object below it
};

class IndexCheck {
 public:
  explicit IndexCheck(const std::string& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& text) const { throw UserError(file_ + ": " + text); }
  [[noreturn]] void fail(const StoredTensor& tensor, const std::string& text) const {
    fail("tensor " + shown(tensor.name) + ": " + text);
  }

  void size(const StoredTensor& tensor) const {
    if (tensor.end < tensor.begin) fail(tensor, "data_offsets " + offsets(tensor) + " run backwards");
    std::uint64_t bytes = size_of(tensor.type);
    for (const std::int64_t extent : tensor.shape)
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
        fail(tensor, "the shape has more than 2^64 bytes");
    if (bytes != tensor.bytes())
      fail(tensor, "dtype and shape need " + std::to_string(bytes) + " bytes, data_offsets " + offsets(tensor) +
                       " hold " + std::to_string(tensor.bytes()));
  }

  // `tensors` sorted by place; they must cover [0, data) exactly.
  void coverage(const std::vector<StoredTensor>& tensors, std::uint64_t data) const {
    std::uint64_t covered = 0;
    for (const StoredTensor& tensor : tensors) {
      if (tensor.begin < covered)
        fail(tensor, "overlaps the tensor before it: it begins at byte " + std::to_string(tensor.begin) +
                         ", the other ends at " + std::to_string(covered));
      if (tensor.begin > covered)
        fail(tensor, "a hole before it: bytes " + std::to_string(covered) + " to " + std::to_string(tensor.begin) +
                         " belong to no tensor");
      if (tensor.end > data)
        fail(tensor, "data_offsets " + offsets(tensor) + " reach beyond the file's " + std::to_string(data) +
                         " bytes of data: the file is cut short");
      covered = tensor.end;
    }
    if (covered != data) fail("the last " + std::to_string(data - covered) + " bytes belong to no tensor");
  }

 private:
  static std::string offsets(const StoredTensor& tensor) {
    std::string text = "[";
    text += std::to_string(tensor.begin) + ", " + std::to_string(tensor.end);
    return text + "]";
  }
  const std::string& file_;
};

}  // namespace

SafetensorsIndex parse_safetensors(std::span<const std::byte> file, const std::string& name) {
  const IndexCheck check(name);
  if (file.size() < kLengthBytes)
    check.fail("not a safetensors file: it has " + std::to_string(file.size()) + " bytes, expected at least 8");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes)
    check.fail("not a safetensors file: a header of " + std::to_string(length) +
               " bytes, at most 100000000 are allowed");
  if (length > file.size() - kLengthBytes)
    check.fail("the header has " + std::to_string(length) + " bytes, the file only " +
               std::to_string(file.size() - kLengthBytes) + " after its first 8: the file is cut short");

  SafetensorsIndex index;
  index.data_offset = kLengthBytes + length;
  const auto* header = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (length == 0 || header[0] != '{') check.fail("not a safetensors file: the header does not begin with {");
  HeaderHandler handler(index);
  if (!nlohmann::json::sax_parse(header, header + length, &handler)) check.fail(handler.problem());

  for (const StoredTensor& tensor : index.tensors) check.size(tensor);
  // Empty tensors stand before the one that begins at the same byte.
  std::stable_sort(index.tensors.begin(), index.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check.coverage(index.tensors, file.size() - index.data_offset);
  return index;
}

}  // namespace filigree
