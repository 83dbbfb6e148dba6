#include "hub/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "hub/names.h"
#include "io/files.h"
#include "io/json.h"

namespace mlxlm::hub {
namespace {

constexpr const char* kEndpoint = "https://huggingface.co";
constexpr int kTimeoutSeconds = 10;  // huggingface_hub's

class Resolver {
 public:
  explicit Resolver(const Environment& environment) : environment_(environment) {}

  std::string cache_dir() const {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
      if (const auto value = environment_(name)) return with_home(*value);
    }
    return home() + "/hub";
  }

  std::string endpoint() const { return environment_("HF_ENDPOINT").value_or(kEndpoint); }

  std::string token() const {
    if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return "";
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
      if (const auto value = environment_(name)) return trimmed(*value);
    }
    const auto given = environment_("HF_TOKEN_PATH");
    const std::string path = given ? with_home(*given) : home() + "/token";
    return io::file_exists(path) ? trimmed(io::read_text_file(path)) : "";
  }

  bool offline() const { return is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE"); }

  std::string certificates_path() const {
    for (const char* name : {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"}) {
      if (const auto value = environment_(name)) return with_home(*value);
    }
    return "";
  }

  std::chrono::seconds timeout() const {
    const auto text = environment_("HF_HUB_DOWNLOAD_TIMEOUT");
    if (!text) return std::chrono::seconds(kTimeoutSeconds);
    int seconds = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (error != std::errc() || end != text->data() + text->size() || seconds < 1 || seconds > 86400) {
      throw_invalid("HF_HUB_DOWNLOAD_TIMEOUT: expected seconds from 1 to 86400, got '{}'", *text);
    }
    return std::chrono::seconds(seconds);
  }

  static std::string trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return "";
    return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
  }

  /// "~" and "~/…" with the user's folder.
  std::string with_home(const std::string& path) const {
    if (path != "~" && !path.starts_with("~/")) return path;
    const auto user = environment_("HOME");
    if (!user) throw_invalid("'{}': HOME is not set; give the whole path, or set HF_HOME to a folder", path);
    return *user + path.substr(1);
  }

 private:
  std::string home() const {
    if (const auto value = environment_("HF_HOME")) return with_home(*value);
    if (const auto value = environment_("XDG_CACHE_HOME")) return with_home(*value) + "/huggingface";
    return with_home("~/.cache/huggingface");
  }

  bool is_true(const char* name) const {
    std::string value = environment_(name).value_or("");
    std::transform(value.begin(), value.end(), value.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
  }

  const Environment& environment_;
};

std::string checked_endpoint(std::string endpoint) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool has_scheme = endpoint.starts_with("https://") || endpoint.starts_with("http://");
  const bool plain = std::none_of(endpoint.begin(), endpoint.end(),
                                  [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '?' || c == '#'; });
  if (!has_scheme || !plain || endpoint.ends_with(':')) {
    throw_invalid("HF_ENDPOINT: expected an address such as {}, got '{}'", kEndpoint, endpoint);
  }
  return endpoint;
}

std::string checked_token(std::string token) {
  // It becomes a header line: a line break in it could add others.
  if (std::any_of(token.begin(), token.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    throw_invalid("HF_TOKEN: expected one word such as hf_…, got a text with spaces or special characters");
  }
  return token;
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Settings resolve_settings(const HubOptions& options, const Environment& environment) {
  if (options.max_workers < 1) throw_invalid("max_workers: expected at least 1, got {}", options.max_workers);
  const Resolver resolver(environment);
  Settings settings;
  settings.revision = options.revision.empty() ? "main" : options.revision;
  require_revision(settings.revision);
  settings.cache_dir = options.cache_dir.empty() ? resolver.cache_dir() : resolver.with_home(options.cache_dir);
  settings.cache_dir = std::filesystem::absolute(settings.cache_dir).lexically_normal().string();
  settings.endpoint = checked_endpoint(options.endpoint.empty() ? resolver.endpoint() : options.endpoint);
  settings.offline = options.offline.value_or(resolver.offline());
  if (!settings.offline) {
    settings.token = checked_token(options.token.empty() ? resolver.token() : Resolver::trimmed(options.token));
    settings.certificates_path = resolver.certificates_path();
    settings.timeout = resolver.timeout();
  }
  return settings;
}

}  // namespace mlxlm::hub
