#include "io/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>

#include "support.h"

namespace filigree {
namespace {

using ::filigree::testing::TemporaryFolder;
using ::testing::HasSubstr;

template <typename Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

// A file of the given header and data.
std::string file_of(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

SafetensorsIndex parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "a.safetensors");
}

// The UserError's text that a file gives, "(accepted)" when it gives none.
std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

std::string one_tensor(const std::string& fields) {
  return "{\"w\":{" + fields + "}}";
}

TEST(Safetensors, WrittenFileHasExactBytes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  {
    SafetensorsWriter writer(path);
    writer.metadata("format", "pt");
    writer.declare("mask", StoredType::u8, {3});
    writer.declare("w", StoredType::f32, {1, 2});
    const unsigned char mask[] = {1, 2, 3};
    writer.write("mask", mask, 3);
    const float values[] = {1.0f, -2.0f};
    writer.write("w", values, 4);
    writer.write("w", values + 1, 4);
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish();
  }
  // The fp32 tensor stands first, so that it is aligned; 8 + 152 bytes before the data.
  std::string header = R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("mask":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(header.size() % 8, 0u);
  EXPECT_EQ(read_file(path, 1000), file_of(header, std::string("\0\0\x80\x3f\0\0\0\xc0\1\2\3", 11)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Safetensors, EveryTypeRoundTrips) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const auto device = Device::cpu();
  const std::int64_t extents[] = {0, 1, 7};
  std::vector<OwnedTensor> tensors;
  for (const DType dtype : {DType::u8, DType::f32, DType::bf16, DType::i32})
    for (const std::int64_t extent : extents) {
      OwnedTensor tensor = device->memory().tensor(Purpose::workspace, dtype, {extent, 3});
      auto* bytes = static_cast<unsigned char*>(tensor.view().data);
      for (std::size_t i = 0; i < tensor.view().bytes(); ++i)
        bytes[i] = static_cast<unsigned char>(37 * i + tensors.size());
      tensors.push_back(std::move(tensor));
    }
  const auto name = [](std::size_t i) { return "blocks." + std::to_string(i) + ".\"weight\" é"; };
  const auto write = [&](const std::filesystem::path& to) {
    SafetensorsWriter writer(to);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      writer.declare(name(i), tensors[i].view().dtype, tensors[i].view().shape);
    for (std::size_t i = tensors.size(); i-- > 0;) writer.write(name(i), tensors[i].view());
    writer.finish();
  };
  write(path);
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& expected = tensors[i].view();
    const OwnedTensor loaded = device->memory().tensor(Purpose::workspace, expected.dtype, expected.shape);
    file.load(name(i), loaded.view());
    const auto content = [](const Tensor& tensor) {
      return std::string_view(static_cast<const char*>(tensor.data), tensor.bytes());
    };
    EXPECT_EQ(content(loaded.view()), content(expected)) << i;
    const auto address = reinterpret_cast<std::uintptr_t>(file.bytes(file.at(name(i))).data());
    EXPECT_EQ(address % size_of(expected.dtype), 0u) << i;
  }
  write(folder.path() / "b.safetensors");
  EXPECT_EQ(read_file(path, 10000), read_file(folder.path() / "b.safetensors", 10000));
}

TEST(Safetensors, EmptyFileAndScalar) {
  const TemporaryFolder folder;
  SafetensorsWriter empty(folder.path() / "empty");
  empty.finish();
  EXPECT_TRUE(SafetensorsFile(folder.path() / "empty").tensors().empty());

  SafetensorsWriter writer(folder.path() / "scalar");
  writer.declare("step", StoredType::i64, {});
  const std::int64_t step = 600;
  writer.write("step", &step, sizeof(step));
  writer.finish();
  const SafetensorsFile file(folder.path() / "scalar");
  EXPECT_EQ(file.at("step").bytes(), 8u);
  EXPECT_TRUE(file.at("step").shape.empty());
}

TEST(Safetensors, FloatsAreConverted) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a";
  // 1, -2, 65504 (largest), 2^-24 (smallest subnormal), -0, infinity
  const std::vector<std::uint16_t> halves = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000, 0x7c00};
  const std::vector<float> expected = {1.0f, -2.0f, 65504.0f, 0x1p-24f, -0.0f, INFINITY};
  const std::vector<float> fine = {1.0f + 0x1p-9f, 3.0f};  // the first rounds to 1 in bf16
  {
    SafetensorsWriter writer(path);
    writer.declare("half", StoredType::f16, {6});
    writer.declare("fine", StoredType::f32, {2});
    writer.declare("ids", StoredType::i32, {2});
    const std::int32_t ids[] = {7, 8};
    writer.write("half", halves.data(), 12);
    writer.write("fine", fine.data(), 8);
    writer.write("ids", ids, 8);
    writer.finish();
  }
  const SafetensorsFile file(path);
  std::vector<float> out(6);
  file.load("half", Tensor{out.data(), DType::f32, {6}});
  EXPECT_EQ(out, expected);
  EXPECT_TRUE(std::signbit(out[4]));
  std::vector<bf16> rounded(2);
  file.load("fine", Tensor{rounded.data(), DType::bf16, {2}});
  EXPECT_EQ(static_cast<float>(rounded[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(rounded[1]), 3.0f);

  EXPECT_EQ(message_of([&] {
              file.load("ids", Tensor{out.data(), DType::f32, {2}});
            }),
            path.string() + ": tensor 'ids' has dtype I32, expected F32");
  EXPECT_EQ(message_of([&] {
              file.load("half", Tensor{out.data(), DType::f32, {2, 3}});
            }),
            path.string() + ": tensor 'half' has shape (6), expected (2, 3)");
  EXPECT_EQ(message_of([&] {
              file.load("x", Tensor{out.data(), DType::f32, {6}});
            }),
            path.string() + ": tensor 'x' is missing; the file has 3 tensors, the first is 'fine'");
}

TEST(Safetensors, ProtocolIsEnforced) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a";
  const float values[4] = {};
  {
    SafetensorsWriter writer(path);
    writer.declare("w", DType::f32, {2});
    EXPECT_THAT(message_of([&] { writer.declare("w", DType::f32, {2}); }), HasSubstr("'w' declared twice"));
    EXPECT_THAT(message_of([&] { writer.declare("__metadata__", DType::f32, {2}); }), HasSubstr("__metadata__"));
    EXPECT_THAT(message_of([&] {
                  writer.declare("big", StoredType::f32, {1ll << 40, 1ll << 40});
                }),
                HasSubstr("too large"));
    EXPECT_THAT(message_of([&] { writer.declare("big", StoredType::f32, {-1}); }), HasSubstr("negative extent"));
    EXPECT_THAT(message_of([&] { writer.write("v", values, 4); }), HasSubstr("'v' was not declared"));
    EXPECT_THAT(message_of([&] { writer.declare("v", DType::f32, {2}); }), HasSubstr("after the first write"));
    EXPECT_THAT(message_of([&] { writer.metadata("a", "b"); }), HasSubstr("after the first write"));
    EXPECT_THAT(message_of([&] { writer.write("w", values, 12); }), HasSubstr("more than the 8 bytes"));
    EXPECT_THAT(message_of([&] {
                  writer.write("w", Tensor{const_cast<float*>(values), DType::f32, {4}});
                }),
                HasSubstr("another type or shape"));
    writer.write("w", values, 4);
    EXPECT_THAT(message_of([&] { writer.finish(); }), HasSubstr("'w' has 4 of its 8 bytes"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Safetensors, InvalidNamesAreNotWritten) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.path() / "a");
  writer.declare("\xff", DType::f32, {1});
  EXPECT_THAT(message_of([&] { writer.finish(); }), HasSubstr("not valid UTF-8"));
}

TEST(SafetensorsHeader, AcceptsWhatOthersWrite) {
  // Keys in another order, tensors out of order of their bytes, no padding, white space, an empty tensor in the middle.
  const auto index = parse(file_of(
      R"({ "b":{"data_offsets":[2,4],"shape":[1,2],"dtype":"U8"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
      R"("none":{"dtype":"I64","shape":[0,5],"data_offsets":[2,2]},"__metadata__":{"k":"v","l":""}} )",
      "1234"));
  ASSERT_EQ(index.tensors.size(), 3u);
  EXPECT_EQ(index.tensors[0].name, "a");
  EXPECT_EQ(index.tensors[1].name, "none");
  EXPECT_EQ(index.tensors[2].name, "b");
  EXPECT_EQ(index.tensors[2].shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(index.metadata, (std::map<std::string, std::string>{{"k", "v"}, {"l", ""}}));
}

TEST(SafetensorsHeader, EveryViolationIsNamed) {
  const std::string good = R"("dtype":"U8","shape":[2],"data_offsets":[0,2])";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1234567", "not a safetensors file: it has 7 bytes, expected at least 8"},
      {std::string(8, '\xff'),
       "not a safetensors file: a header of 18446744073709551615 bytes, at most 100000000 are allowed"},
      {file_of("{}").substr(0, 9), "the header has 2 bytes, the file only 1 after its first 8: the file is cut short"},
      {file_of(""), "not a safetensors file: the header does not begin with {"},
      {file_of("[]"), "not a safetensors file: the header does not begin with {"},
      {file_of(" {}"), "not a safetensors file: the header does not begin with {"},
      {file_of("{} x"), "the header is not valid JSON at its byte 4"},
      {file_of("{\"w\":"), "the header is not valid JSON at its byte 6"},
      {file_of("{\"\xff\":{}}"), "the header is not valid JSON at its byte 3"},
      {file_of("{\"w\":3}"), "tensor 'w': a number, expected an object"},
      {file_of("{\"w\":\"x\"}"), "tensor 'w': a text, expected an object"},
      {file_of("{\"w\":[]}"), "tensor 'w': a list, expected an object"},
      {file_of("{\"w\":null}"), "tensor 'w': null, expected an object"},
      {file_of("{\"w\":true}"), "tensor 'w': a truth value, expected an object"},
      {file_of("{\"w\":{}}"), "tensor 'w': dtype is missing"},
      {file_of(one_tensor(R"("dtype":"U8")")), "tensor 'w': shape is missing"},
      {file_of(one_tensor(R"("dtype":"U8","shape":[1])")), "tensor 'w': data_offsets is missing"},
      {file_of(one_tensor(good + ",\"dtype\":\"U8\""), "12"), "tensor 'w': the key 'dtype' appears twice"},
      {file_of(one_tensor(good + ",\"kind\":1"), "12"),
       "tensor 'w': unknown key 'kind', expected dtype, shape and data_offsets"},
      {file_of("{\"w\":{" + good + "},\"w\":{" + good + "}}", "12"), "tensor 'w': the name appears twice"},
      {file_of("{\"__metadata__\":{},\"__metadata__\":{}}"), "'__metadata__': the name appears twice"},
      {file_of("{\"__metadata__\":{\"a\":1}}"), "'__metadata__': a number as the value of 'a', expected a text"},
      {file_of("{\"__metadata__\":{\"a\":{}}}"), "'__metadata__': an object as the value of 'a', expected a text"},
      {file_of("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}"), "'__metadata__': the key 'a' appears twice"},
      {file_of("{\"__metadata__\":1}"), "'__metadata__': a number, expected an object"},
      {file_of(one_tensor(R"("dtype":"F64","shape":[1],"data_offsets":[0,8])"), "12345678"),
       "tensor 'w': dtype 'F64' is not one of F32, BF16, F16, I32, I64, U8"},
      {file_of(one_tensor(R"("dtype":7)")), "tensor 'w': a number in dtype, expected a text"},
      {file_of(one_tensor(R"("dtype":["U8"])")), "tensor 'w': a list in dtype, expected a text"},
      {file_of(one_tensor(R"("shape":"1")")), "tensor 'w': a text in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":1)")), "tensor 'w': a number in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":{})")), "tensor 'w': an object in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":[[1]])")), "tensor 'w': a list in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":[-1])")),
       "tensor 'w': a negative number in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":[1.5])")), "tensor 'w': a fraction in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":[99999999999999999999])")),
       "tensor 'w': a fraction in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":[9223372036854775808])")),
       "tensor 'w': shape has the number 9223372036854775808, above 2^63 - 1"},
      {file_of(one_tensor(R"("shape":["1"])")), "tensor 'w': a text in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("shape":[{}])")), "tensor 'w': an object in shape, expected a list of whole numbers"},
      {file_of(one_tensor(R"("data_offsets":[0])")), "tensor 'w': data_offsets has not two numbers"},
      {file_of(one_tensor(R"("data_offsets":[0,1,2])")), "tensor 'w': data_offsets has not two numbers"},
      {file_of(one_tensor(R"("dtype":"U8","shape":[2],"data_offsets":[2,0])"), "12"),
       "tensor 'w': data_offsets [2, 0] run backwards"},
      {file_of(one_tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])")),
       "tensor 'w': the shape has more than 2^64 bytes"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,2])"), "12"),
       "tensor 'w': dtype and shape need 4 bytes, data_offsets [0, 2] hold 2"},
      {file_of(one_tensor(good), "1"),
       "tensor 'w': data_offsets [0, 2] reach beyond the file's 1 bytes of data: the file is cut short"},
      {file_of(one_tensor(good), "123"), "the last 1 bytes belong to no tensor"},
      {file_of("{}", "123"), "the last 3 bytes belong to no tensor"},
      {file_of(one_tensor(R"("dtype":"U8","shape":[2],"data_offsets":[1,3])"), "123"),
       "tensor 'w': a hole before it: bytes 0 to 1 belong to no tensor"},
      {file_of("{\"w\":{" + good + "},\"v\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", "123"),
       "tensor 'v': overlaps the tensor before it: it begins at byte 1, the other ends at 2"},
      {file_of("{\"w\":{" + good + "},\"v\":{" + good + "}}", "12"),
       "tensor 'v': overlaps the tensor before it: it begins at byte 0, the other ends at 2"},
  };
  for (const auto& [file, expected] : cases) EXPECT_EQ(refusal(file), "a.safetensors: " + expected);
  EXPECT_EQ(refusal(file_of(one_tensor(good), "12")), "(accepted)");
  const std::string long_name(200, 'n');
  EXPECT_EQ(refusal(file_of("{\"\\n" + long_name + "\":1}")),
            "a.safetensors: tensor '?" + long_name.substr(0, 79) + "...': a number, expected an object");
}

}  // namespace
}  // namespace filigree
