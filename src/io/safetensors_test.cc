#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/format.h"
#include "io/safetensors_writer.h"
#include "io/test_files.h"

namespace mlxlm::io {
namespace {

using ::testing::HasSubstr;

SafetensorsFile read_safetensors(const std::string& bytes) {
  return SafetensorsFile::parse(MappedFile::from_bytes("m.safetensors", to_bytes(bytes)));
}
Thrown thrown_by_file(const std::string& header, const std::string& data) {
  return thrown_by([&] { read_safetensors(safetensors_bytes(header, data)); });
}
std::string safetensors_error(const std::string& header, const std::string& data = std::string(16, 'x')) {
  return thrown_by_file(header, data).message;
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const auto file = read_safetensors(safetensors_bytes(
      R"({"__metadata__":{"format":"mlx"},"b":{"dtype":"U8","shape":[2,2],"data_offsets":[4,8]},)"
      R"("a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"s":{"dtype":"I32","shape":[],"data_offsets":[8,12]}})",
      "aabbccddeeff"));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].dtype, DType::f16);
  EXPECT_EQ(file.tensors()[1].name, "b");
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(file.tensors()[1].data, "ccdd", 4), 0);
  EXPECT_EQ(file.tensors()[2].shape.size(), 0u);
  EXPECT_EQ(file.tensors()[2].bytes, 4u);
  EXPECT_EQ(file.metadata().at("format"), "mlx");
}

TEST(Safetensors, MetadataMayBeNull) {
  const SafetensorsFile file = read_safetensors(
      safetensors_bytes(R"({"__metadata__":null,"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "AB"));
  EXPECT_TRUE(file.metadata().empty());
  ASSERT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.tensors()[0].name, "a");
}

TEST(Safetensors, AnyHeaderLengthWorks) {
  for (size_t padding = 0; padding < 64; ++padding) {
    const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})" + std::string(padding, ' ');
    const auto file = read_safetensors(safetensors_bytes(header, std::string("\0\0\x80\x3F", 4)));
    float value = 0;
    std::memcpy(&value, file.tensors().at(0).data, sizeof value);
    EXPECT_EQ(value, 1.0f) << padding;
  }
}

TEST(Safetensors, GapsAndTrailingDataAreTolerated) {
  const auto file = read_safetensors(safetensors_bytes(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})",
      "0123456789"));
  EXPECT_EQ(std::memcmp(file.tensors()[1].data, "56", 2), 0);
  EXPECT_TRUE(read_safetensors(safetensors_bytes("{}", "")).tensors().empty());
}

TEST(Safetensors, EmptyTensorsAreFine) {
  const auto file = read_safetensors(safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[2,2]},)"
      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
      "0123"));
  EXPECT_EQ(file.tensors().size(), 2u);
}

TEST(Safetensors, LyingHeaderLengths) {
  for (size_t n = 0; n < 8; ++n) {
    const auto error = thrown_by([&] { read_safetensors(std::string(n, '\0')); }).message;
    EXPECT_THAT(error, HasSubstr("expected at least 8 bytes")) << n;
  }
  for (const uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
    const auto error = thrown_by([&] { read_safetensors(safetensors_bytes("{}", "", length)); }).message;
    EXPECT_THAT(error, HasSubstr(format_text("claims {} bytes", length)));
  }
  EXPECT_THAT(thrown_by([&] { read_safetensors(safetensors_bytes("{}", "", 0)); }).message,
              HasSubstr("end of the text"));
  EXPECT_THAT(thrown_by([&] { read_safetensors(safetensors_bytes("{}", "", 1)); }).message,
              HasSubstr("m.safetensors: header"));
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string whole = safetensors_bytes(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "01234567");
  EXPECT_EQ(read_safetensors(whole).tensors().size(), 1u);
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(thrown_by([&] { read_safetensors(whole.substr(0, n)); }).message, "") << n;
  }
}

TEST(Safetensors, MalformedEntriesNameTheTensor) {
  const auto entry = [](const std::string& body) { return R"({"w":{)" + body + "}}"; };
  const struct {
    std::string header;
    const char* message;
  } cases[] = {
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,15])"),
       "tensor 'w': shape [4] of F32 needs 16 bytes, data_offsets hold 15"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[1,17])"),
       "tensor 'w': data_offsets [1, 17] do not lie in the 16 bytes"},
      {entry(R"("dtype":"F32","shape":[0],"data_offsets":[17,17])"), "do not lie"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"), "do not lie"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[9223372036854775807,9223372036854775807])"), "do not lie"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[-16,0])"), "w: data_offsets: expected a whole number"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,16,16])"), "expected two numbers, got more"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[0])"), "expected two numbers, got fewer"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":{})"), "data_offsets: expected a list"},
      {entry(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"), "w: shape: expected a whole number"},
      {entry(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])"), "w: shape: expected a whole number"},
      {entry(R"("dtype":"F32","shape":4,"data_offsets":[0,16])"), "shape: expected a list"},
      {entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), "more bytes than 2^64"},
      {entry(R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])"), "more bytes than 2^64"},
      {entry(R"("dtype":"F33","shape":[4],"data_offsets":[0,16])"), "unknown dtype 'F33'"},
      {entry(R"("dtype":"f32","shape":[4],"data_offsets":[0,16])"), "unknown dtype 'f32'"},
      {entry(R"("dtype":4,"shape":[4],"data_offsets":[0,16])"), "dtype: expected a string"},
      {entry(R"("shape":[4],"data_offsets":[0,16])"), "'dtype' is missing"},
      {entry(R"("dtype":"F32","data_offsets":[0,16])"), "'shape' is missing"},
      {entry(R"("dtype":"F32","shape":[4])"), "'data_offsets' is missing"},
      {entry(R"("dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16])"), "'dtype' appears twice"},
      {entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1)"), "unknown key 'x'"},
      {R"({"w":[]})", "tensor 'w': expected an object"},
      {R"({"__metadata__":[]})", "expected an object"},
      {R"({"__metadata__":{"a":1}})", "expected strings"},
      {R"({"__metadata__":{},"__metadata__":{}})", "'__metadata__' appears twice"},
      {R"([])", "expected an object"},
      {R"(not JSON)", "m.safetensors: header: line 1"},
      {R"({} x)", "unexpected text"},
      {std::string("{}\0", 3), "unexpected text"},
  };
  for (const auto& c : cases) EXPECT_THAT(safetensors_error(c.header), HasSubstr(c.message)) << c.header;
  EXPECT_EQ(thrown_by_file(entry(R"("dtype":"F33","shape":[4],"data_offsets":[0,16])"), "").kind,
            ErrorKind::unsupported);
}

TEST(Safetensors, OverlapsAndDuplicates) {
  EXPECT_THAT(
      safetensors_error(
          R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
      HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(
      safetensors_error(
          R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"z":{"dtype":"U8","shape":[0],"data_offsets":[3,3]},)"
          R"("b":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}})"),
      HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(
      safetensors_error(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})"),
      HasSubstr("'a' appears twice"));
}

TEST(Safetensors, WriterRoundTrip) {
  const TempFolder folder;
  const auto values = to_bytes("0123456789");
  const std::vector<TensorView> tensors = {
      {"odd \"name\"\n", DType::u8, {3}, values.data(), 3},
      {"b", DType::f16, {1, 2}, values.data() + 3, 4},
      {"none", DType::f32, {0}, values.data(), 0},
  };
  const std::string path = folder.file("model.safetensors");
  write_safetensors(path, tensors, {{"format", "mlx"}, {"k", "v"}});
  const auto file = SafetensorsFile::open(path);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "odd \"name\"\n");
  EXPECT_EQ(std::memcmp(file.tensors()[1].data, "3456", 4), 0);
  EXPECT_EQ(file.metadata().size(), 2u);
}

TEST(Safetensors, WriterLeavesNothingBehindOnFailure) {
  const TempFolder folder;
  const std::vector<TensorInfo> infos = {{"a", DType::u8, {4}}};
  {
    SafetensorsWriter writer(folder.file("a.safetensors"), infos, {});
    writer.write(to_bytes("01"));
    EXPECT_THAT(thrown_by([&] { writer.finish(); }).message, HasSubstr("2 bytes of data, the header says 4"));
    EXPECT_THAT(thrown_by([&] { writer.write(to_bytes("012")); }).message, HasSubstr("more data"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const std::vector<TensorInfo> twice = {{"a", DType::u8, {4}}, {"a", DType::u8, {4}}};
  EXPECT_THAT(thrown_by([&] { SafetensorsWriter(folder.file("b"), twice, {}); }).message, HasSubstr("two tensors"));
  const std::vector<TensorInfo> negative = {{"a", DType::u8, {-4}}};
  EXPECT_THAT(thrown_by([&] { SafetensorsWriter(folder.file("b"), negative, {}); }).message, HasSubstr("[-4]"));
  const std::vector<TensorView> wrong = {{"a", DType::u8, {4}, nullptr, 3}};
  EXPECT_THAT(thrown_by([&] { write_safetensors(folder.file("b"), wrong, {}); }).message, HasSubstr("needs 4 bytes"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A hole makes a file of more than 4 GB cheap; only its header and its last byte are touched.
TEST(Safetensors, FilesBeyondFourGigabytes) {
  const TempFolder folder;
  const std::string path = folder.file("model.safetensors");
  const std::string bytes =
      safetensors_bytes(R"({"big":{"dtype":"U8","shape":[5000000000],"data_offsets":[0,5000000000]},)"
                        R"("last":{"dtype":"U8","shape":[1],"data_offsets":[5000000000,5000000001]}})",
                        "");
  write_text_file(path, bytes);
  std::filesystem::resize_file(path, bytes.size() + 5000000001);
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file.tensors()[1].data - file.tensors()[0].data, 5000000000);
  EXPECT_EQ(std::to_integer<int>(*file.tensors()[1].data), 0);
}

TEST(MappedFile, EmptyAndMissingFiles) {
  const TempFolder folder;
  write_text_file(folder.file("empty"), "");
  EXPECT_TRUE(MappedFile::open(folder.file("empty"))->bytes().empty());
  const auto missing = thrown_by([&] { MappedFile::open(folder.file("missing")); });
  EXPECT_EQ(missing.kind, ErrorKind::not_found);
  EXPECT_THAT(missing.message, HasSubstr("missing: cannot open: No such file"));
}

}  // namespace
}  // namespace mlxlm::io
