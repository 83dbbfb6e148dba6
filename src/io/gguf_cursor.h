// A bounds-checked cursor over the little-endian bytes of a GGUF file. Internal to gguf.cc.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/format.h"

namespace mlxlm::io {

class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  /// What is being read, for messages.
  void set_place(std::string place) { place_ = std::move(place); }

  size_t position() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(uint64_t n) {
    if (n > left()) fail(format_text("needs {} bytes, the file has {} left; is it truncated?", n, left()));
    const auto taken = bytes_.subspan(at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return taken;
  }

  template <typename T>
  T read() {
    static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view read_string() {
    const auto bytes = take(read<uint64_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  [[noreturn]] void fail(std::string_view message) const { throw_invalid("{}: {}: {}", path_, place_, message); }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::string place_ = "header";
  size_t at_ = 0;
};

}  // namespace mlxlm::io
