// Owners for the handles of rust/include/mlxlm_net.h: requests and digests.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hub/hub_error.h"
#include "mlxlm_net.h"

namespace mlxlm::hub {

/// The answer to a request; its body is read piece by piece, by one thread. Throws Transient where the connection
/// breaks.
class HttpResponse {
 public:
  explicit HttpResponse(MlxlmHttpResponse* handle, std::string url) : handle_(handle), url_(std::move(url)) {}

  int status() const { return mlxlm_http_status(handle_.get()); }
  /// "" where there is no such header.
  std::string header(std::string_view name) const;
  /// Fills the front of the buffer; 0 at the end of the body.
  size_t read(std::span<char> buffer);
  /// The rest of the body; more than `limit` bytes is an error.
  std::string read_text(size_t limit);
  const std::string& url() const { return url_; }

 private:
  struct Deleter {
    void operator()(MlxlmHttpResponse* handle) const { mlxlm_http_response_free(handle); }
  };
  std::unique_ptr<MlxlmHttpResponse, Deleter> handle_;
  std::string url_;
};

/// Keeps connections open between requests; safe to use from many threads.
class HttpClient {
 public:
  /// `certificates`: PEM text, "": Mozilla's authorities.
  HttpClient(std::string_view certificates, std::chrono::milliseconds timeout);
  /// GET; redirects are followed, `authorization` ("": none) goes to the first host only. `range_start` 0: everything.
  /// Any status is an answer. Throws Transient without one, Error(io) where trying again cannot help.
  HttpResponse get(const std::string& url, const std::string& authorization, uint64_t range_start = 0) const;

 private:
  struct Deleter {
    void operator()(MlxlmHttpClient* handle) const { mlxlm_http_client_free(handle); }
  };
  std::unique_ptr<MlxlmHttpClient, Deleter> handle_;
};

/// The checksum that a blob's name states: SHA-256 for files in large file storage, git's SHA-1 for others.
class BlobDigest {
 public:
  /// Whether `etag` states a checksum.
  static bool is_known(std::string_view etag);
  /// For a blob of `size` bytes; `etag` must be known.
  BlobDigest(std::string_view etag, uint64_t size);
  void update(std::string_view bytes);
  bool matches() const { return hex() == expected_; }
  std::string hex() const;

 private:
  struct Deleter {
    void operator()(MlxlmDigest* handle) const { mlxlm_digest_free(handle); }
  };
  std::unique_ptr<MlxlmDigest, Deleter> handle_;
  std::string expected_;
};

}  // namespace mlxlm::hub
