// The safetensors format: named arrays in one file.
//
//   8 bytes    length n of the header, little-endian
//   n bytes    JSON {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {...}}
//   the rest   the arrays' bytes, little-endian and row-major; offsets count from here
//
// Written files: the header is padded with spaces to a multiple of 8, arrays of larger elements stand first, so that
// every array is aligned to its element size; equal contents give equal bytes.
// Read files: the arrays must cover the data part without holes or overlaps, in any order; every violation is a
// UserError with the file and the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "io/atomic_file.h"

namespace filigree {

enum class StoredType : std::uint8_t { f32, bf16, f16, i32, i64, u8, boolean };

std::size_t size_of(StoredType type);
std::string_view name_of(StoredType type);                       // "F32", "BF16", ...
std::string shape_text(const std::vector<std::int64_t>& shape);  // "(2, 3)"
StoredType stored_type(DType dtype);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  // outermost first; empty for a scalar
  std::uint64_t begin = 0;          // bytes [begin, end) of the data part
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

// Writing is a protocol: declare every tensor, then write each, then finish. A call out of turn throws Error.
//
//   SafetensorsWriter writer(folder / "model.safetensors");
//   writer.declare("head.weight", DType::f32, {vocab, width});
//   writer.write("head.weight", tensor);     // or in pieces
//   writer.finish();
class SafetensorsWriter {
 public:
  // The file appears under its name at finish(), complete and flushed; without finish() nothing remains.
  explicit SafetensorsWriter(const std::filesystem::path& path);

  void metadata(std::string key, std::string value);
  void declare(std::string name, StoredType type, std::vector<std::int64_t> shape);
  void declare(std::string name, DType dtype, const Shape& shape);

  // The first write fixes the layout. Pieces of one tensor follow each other; tensors come in any order.
  void write(std::string_view name, const void* data, std::size_t bytes);
  // A whole tensor, of the declared type and shape.
  void write(std::string_view name, const Tensor& tensor);
  // Every tensor must have all its bytes.
  void finish();

 private:
  void lay_out();
  StoredTensor& declared(std::string_view name);

  AtomicFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<StoredTensor> tensors_;                      // in the order of the file once laid out
  std::map<std::string, std::size_t, std::less<>> index_;  // name -> place in tensors_
  std::vector<std::uint64_t> written_;                     // bytes, beside tensors_
  std::uint64_t data_offset_ = 0;                          // of the data part in the file; 0: not laid out
};

// What a file's header says, checked against the file's length.
struct SafetensorsIndex {
  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;
};
// `file` is the whole file; `name` stands in messages.
SafetensorsIndex parse_safetensors(std::span<const std::byte> file, const std::string& name);

// A file, mapped for reading.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<StoredTensor>& tensors() const { return index_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return index_.metadata; }
  const std::filesystem::path& path() const { return file_.path(); }

  const StoredTensor* find(std::string_view name) const;
  const StoredTensor& at(std::string_view name) const;  // UserError when there is none
  // The tensor's bytes in the map, valid as long as this object. Files of other writers may leave them unaligned.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;

  // Copies a tensor into `out`, whose shape must be the stored one. fp32 and bf16 take F32, BF16 and F16, rounded to
  // nearest even where they have fewer bits; int32 takes I32 and uint8 takes U8.
  void load(std::string_view name, const Tensor& out) const;
  // The same of rows [first, first + rows of out) of the outermost extent; the other extents must be the stored ones.
  void load_rows(std::string_view name, std::int64_t first, const Tensor& out) const;

 private:
  void copy(const StoredTensor& tensor, std::int64_t first, const Tensor& out) const;

  MappedFile file_;
  SafetensorsIndex index_;
  std::map<std::string_view, std::size_t> by_name_;  // views into index_
};

}  // namespace filigree
