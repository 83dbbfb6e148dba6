#include "io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "io/test_files.h"

namespace mlxlm::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Builds GGUF bytes; every count can be made to lie.
class Builder {
 public:
  template <typename T>
  Builder& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Builder& text(std::string_view s) {
    put(uint64_t{s.size()});
    bytes_.append(s);
    return *this;
  }
  Builder& header(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3) {
    bytes_.append("GGUF");
    return put(version).put(n_tensors).put(n_keys);
  }
  Builder& key(std::string_view name, GgufValueType type) { return text(name).put(static_cast<uint32_t>(type)); }
  Builder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  Builder& data(size_t n, size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_.push_back('\0');
    for (size_t i = 0; i < n; ++i) bytes_.push_back(static_cast<char>(i));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

GgufFile read_gguf(const std::string& bytes) {
  return GgufFile::parse(MappedFile::from_bytes("m.gguf", to_bytes(bytes)));
}
std::string gguf_error(const std::string& bytes) {
  return thrown_by([&] { read_gguf(bytes); }).message;
}
std::string gguf_error(const Builder& builder) { return gguf_error(builder.bytes()); }

Builder all_kinds(uint32_t version) {
  Builder b;
  b.header(2, 9, version);
  b.key("u8", GgufValueType::u8).put(uint8_t{200});
  b.key("i64", GgufValueType::i64).put(int64_t{-5});
  b.key("f32", GgufValueType::f32).put(1e-5f);
  b.key("f64", GgufValueType::f64).put(2.5);
  b.key("bool", GgufValueType::boolean).put(uint8_t{1});
  b.key("string", GgufValueType::string).text("hello");
  b.key("strings", GgufValueType::array).put(uint32_t{8}).put(uint64_t{2}).text("a").text("");
  b.key("ints", GgufValueType::array).put(uint32_t{5}).put(uint64_t{2}).put(int32_t{-1}).put(int32_t{7});
  b.key("nested", GgufValueType::array).put(uint32_t{9}).put(uint64_t{2});
  b.put(uint32_t{0}).put(uint64_t{3}).put(uint8_t{1}).put(uint8_t{2}).put(uint8_t{3});
  b.put(uint32_t{8}).put(uint64_t{1}).text("x");
  b.tensor("a", {32, 2}, 2, 0).tensor("b", {3}, 0, 64).data(76);
  return b;
}

TEST(Gguf, ReadsEveryKindOfValue) {
  for (const uint32_t version : {2u, 3u}) {
    const auto file = read_gguf(all_kinds(version).bytes());
    EXPECT_EQ(file.integer("u8"), 200);
    EXPECT_EQ(file.integer("i64"), -5);
    EXPECT_EQ(file.number("f32"), 1e-5) << "the shortest decimal, not the float's digits";
    EXPECT_EQ(file.number("f64"), 2.5);
    EXPECT_EQ(file.number("u8"), 200.0);
    EXPECT_EQ(file.find_bool("bool"), true);
    EXPECT_EQ(file.string("string"), "hello");
    EXPECT_THAT(file.strings("strings"), ElementsAre("a", ""));
    EXPECT_THAT(*file.find_integers("ints"), ElementsAre(-1, 7));
    EXPECT_EQ(std::get<GgufArray>(file.metadata().at("nested")).count, 2u);
    EXPECT_FALSE(file.find_string("absent"));
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{2, 32}));
    EXPECT_EQ(file.tensors()[0].bytes, 36u);
    EXPECT_EQ(std::to_integer<int>(file.tensors()[1].data[0]), 64);
  }
}

TEST(Gguf, WrongTypesAndMissingKeysNameTheKey) {
  const auto file = read_gguf(all_kinds(3).bytes());
  const auto message = [](const auto& action) { return thrown_by(action).message; };
  EXPECT_EQ(message([&] { file.integer("string"); }), "m.gguf: key 'string': expected an integer, got a string");
  EXPECT_EQ(message([&] { file.string("u8"); }), "m.gguf: key 'u8': expected a string, got an integer");
  EXPECT_EQ(message([&] { file.find_bool("u8"); }), "m.gguf: key 'u8': expected a boolean, got an integer");
  EXPECT_EQ(message([&] { file.number("bool"); }), "m.gguf: key 'bool': expected a number, got a boolean");
  EXPECT_EQ(message([&] { file.strings("ints"); }), "m.gguf: key 'ints': expected an array of strings, got an array");
  EXPECT_EQ(message([&] { file.find_integers("strings"); }),
            "m.gguf: key 'strings': expected an array of integers, got an array");
  EXPECT_EQ(message([&] { file.find_floats("ints"); }),
            "m.gguf: key 'ints': expected an array of floats, got an array");
  EXPECT_EQ(message([&] { file.find_strings("u8"); }), "m.gguf: key 'u8': expected an array, got an integer");
  EXPECT_EQ(message([&] { file.integer("absent"); }), "m.gguf: key 'absent' is missing");
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string whole = all_kinds(3).bytes();
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(gguf_error(whole.substr(0, n)), "") << n;
}

TEST(Gguf, FaultyHeaders) {
  EXPECT_THAT(gguf_error(std::string(24, 'x')), HasSubstr("does not start with \"GGUF\""));
  EXPECT_THAT(gguf_error(Builder().header(0, 0, 1)), HasSubstr("version 2 or 3, got 1"));
  EXPECT_THAT(gguf_error(Builder().header(0, 0, 0x03000000)), HasSubstr("big-endian"));
  EXPECT_THAT(gguf_error(Builder().header(UINT64_MAX, 0)), HasSubstr("do not fit"));
  EXPECT_THAT(gguf_error(Builder().header(0, UINT64_MAX / 13)), HasSubstr("do not fit"));
  EXPECT_EQ(gguf_error(Builder().header(0, 0)), "");
}

TEST(Gguf, FaultyKeys) {
  const auto with = [] { return Builder().header(0, 1); };
  EXPECT_THAT(gguf_error(with().put(UINT64_MAX).data(8)), HasSubstr("key 1 of 1: needs 18446744073709551615 bytes"));
  EXPECT_THAT(gguf_error(with().key("k", static_cast<GgufValueType>(13)).data(8)),
              HasSubstr("key 'k': unknown value type 13"));
  EXPECT_THAT(gguf_error(with().key("k", GgufValueType::array).put(uint32_t{10}).put(uint64_t{1} << 61)),
              HasSubstr("does not fit"));
  EXPECT_THAT(gguf_error(with().key("k", GgufValueType::array).put(uint32_t{10}).put(uint64_t{4}).data(24, 1)),
              HasSubstr("key 'k': needs 32 bytes"));
  EXPECT_THAT(gguf_error(with().key("k", GgufValueType::array).put(uint32_t{99}).put(uint64_t{1}).data(8)),
              HasSubstr("unknown value type 99"));
  Builder deep = with().key("k", GgufValueType::array);
  for (int i = 0; i < 1000; ++i) deep.put(uint32_t{9}).put(uint64_t{1});
  EXPECT_THAT(gguf_error(deep), HasSubstr("nested deeper than 8"));
  Builder twice = Builder().header(0, 2);
  twice.key("k", GgufValueType::u8).put(uint8_t{1}).key("k", GgufValueType::u8).put(uint8_t{2});
  EXPECT_THAT(gguf_error(twice), HasSubstr("key 'k': appears twice"));
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 21}) {
    EXPECT_THAT(gguf_error(with().key("general.alignment", GgufValueType::u32).put(alignment)),
                HasSubstr("power of two"));
  }
  EXPECT_THAT(gguf_error(with().key("general.alignment", GgufValueType::i32).put(-32)), HasSubstr("power of two"));
}

TEST(Gguf, FaultyTensors) {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    return Builder().header(1, 0).tensor("w", dims, type, offset).data(64);
  };
  EXPECT_EQ(gguf_error(one({16}, 0, 0)), "");
  EXPECT_THAT(gguf_error(one({17}, 0, 0)), HasSubstr("tensor 'w': 68 bytes at offset 0 do not lie in the 64 bytes"));
  EXPECT_THAT(gguf_error(one({8}, 0, 64)), HasSubstr("do not lie"));
  EXPECT_THAT(gguf_error(one({8}, 0, UINT64_MAX - 31)), HasSubstr("do not lie"));
  EXPECT_THAT(gguf_error(one({8}, 0, 8)), HasSubstr("offset 8 is no multiple of the alignment 32"));
  EXPECT_THAT(gguf_error(one({33}, 8, 0)), HasSubstr("shape [33]: a row of Q8_0 needs a multiple of 32"));
  EXPECT_THAT(gguf_error(one({0}, 0, 0)), HasSubstr("a dimension of 0"));
  EXPECT_THAT(gguf_error(one({UINT64_MAX}, 0, 0)), HasSubstr("a dimension of"));
  EXPECT_THAT(gguf_error(one({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0)), HasSubstr("more bytes than 2^63"));
  EXPECT_THAT(gguf_error(one({}, 0, 0)), HasSubstr("expected 1 to 4 dimensions, got 0"));
  EXPECT_THAT(gguf_error(one({1, 1, 1, 1, 1}, 0, 0)), HasSubstr("expected 1 to 4 dimensions, got 5"));
  Builder overlap = Builder().header(2, 0);
  overlap.tensor("a", {9}, 0, 0).tensor("b", {1}, 0, 32).data(64);
  EXPECT_THAT(gguf_error(overlap), HasSubstr("tensors 'a' and 'b' overlap"));
  Builder twice = Builder().header(2, 0);
  twice.tensor("a", {1}, 0, 0).tensor("a", {1}, 0, 32).data(64);
  EXPECT_THAT(gguf_error(twice), HasSubstr("tensor 'a' appears twice"));
}

TEST(Gguf, TypesWithoutSupportAreListedByName) {
  const auto file = read_gguf(Builder().header(1, 0).tensor("w", {256}, 12, 0).data(144).bytes());
  EXPECT_EQ(gguf_type_name(file.tensors()[0].type), "Q4_K");
  EXPECT_EQ(file.tensors()[0].data, nullptr);
  EXPECT_EQ(gguf_type_name(static_cast<GgufType>(77)), "type 77");
}

TEST(Gguf, AlignmentIsReadFromTheFile) {
  Builder b = Builder().header(1, 1);
  b.key("general.alignment", GgufValueType::u32).put(uint32_t{8}).tensor("w", {2}, 1, 8).data(12, 8);
  EXPECT_EQ(std::to_integer<int>(*read_gguf(b.bytes()).tensors()[0].data), 8);
}

}  // namespace
}  // namespace mlxlm::io
