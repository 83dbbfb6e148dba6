#include "hub/net.h"

#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "hub/names.h"
#include "mlxlm/version.h"

namespace mlxlm::hub {
namespace {

/// An owned string of the C ABI.
struct RustText : MlxlmString {
  RustText() : MlxlmString{nullptr, 0, 0} {}
  ~RustText() { mlxlm_string_free(this); }
  RustText(const RustText&) = delete;
  RustText& operator=(const RustText&) = delete;
  std::string str() const { return size == 0 ? std::string() : std::string(data, size); }
};

void check(MlxlmNetStatus status, const RustText& error, const std::string& where) {
  switch (status) {
    case MLXLM_NET_OK:
      return;
    case MLXLM_NET_BROKEN:
      throw Transient(Trouble::unreachable, format_text("{}: {}", where, error.str()));
    case MLXLM_NET_INVALID:
      throw HubError(Trouble::unreachable, ErrorKind::io, format_text("{}: {}", where, error.str()));
    case MLXLM_NET_FAULT:
      break;
  }
  throw_error(ErrorKind::internal, "{}: fault in the network library: {}", where, error.str());
}

}  // namespace

std::string HttpResponse::header(std::string_view name) const {
  RustText value;
  mlxlm_http_header(handle_.get(), name.data(), name.size(), &value);
  return value.str();
}

size_t HttpResponse::read(std::span<char> buffer) {
  RustText error;
  size_t size = 0;
  check(mlxlm_http_read(handle_.get(), buffer.data(), buffer.size(), &size, &error), error, url_);
  return size;
}

std::string HttpResponse::read_text(size_t limit) {
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const size_t n = read(buffer)) {
    if (text.size() + n > limit) {
      throw HubError(Trouble::malformed, ErrorKind::io,
                     format_text("{}: expected at most {} bytes, got more", url_, limit));
    }
    text.append(buffer.data(), n);
  }
  return text;
}

HttpClient::HttpClient(std::string_view certificates, std::chrono::milliseconds timeout) {
  const std::string user_agent = format_text("mlxlm/{}", version());
  RustText error;
  MlxlmHttpClient* handle = nullptr;
  check(mlxlm_http_client_new(user_agent.data(), user_agent.size(), certificates.data(), certificates.size(),
                              static_cast<uint32_t>(timeout.count()), &handle, &error),
        error, "HTTP client");
  handle_.reset(handle);
}

HttpResponse HttpClient::get(const std::string& url, const std::string& authorization, uint64_t range_start) const {
  RustText error;
  MlxlmHttpResponse* response = nullptr;
  check(mlxlm_http_get(handle_.get(), url.data(), url.size(), authorization.data(), authorization.size(), range_start,
                       &response, &error),
        error, url);
  return HttpResponse(response, url);
}

bool BlobDigest::is_known(std::string_view etag) { return is_hex_digits(etag, 64) || is_hex_digits(etag, 40); }

BlobDigest::BlobDigest(std::string_view etag, uint64_t size)
    : handle_(mlxlm_digest_new(etag.size() == 64)), expected_(etag) {
  // What git puts before a file's content.
  if (etag.size() == 40) update(format_text("blob {}", size) + '\0');
}

void BlobDigest::update(std::string_view bytes) { mlxlm_digest_update(handle_.get(), bytes.data(), bytes.size()); }

std::string BlobDigest::hex() const {
  RustText text;
  mlxlm_digest_hex(handle_.get(), &text);
  return text.str();
}

}  // namespace mlxlm::hub
