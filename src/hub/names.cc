#include "hub/names.h"

#include <algorithm>

#include "base/error.h"

namespace mlxlm::hub {
namespace {

constexpr size_t kMaxRepoId = 96;      // the Hub's limit
constexpr size_t kMaxComponent = 255;  // of a path, on the usual file systems

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Calls `good` with each part between slashes; false as soon as one is not.
template <typename Predicate>
bool all_parts(std::string_view path, const Predicate& good) {
  for (;;) {
    const size_t slash = path.find('/');
    if (!good(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool is_repo_part(std::string_view part) {
  const auto allowed = [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; };
  const auto edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && std::all_of(part.begin(), part.end(), allowed) && !edge(part.front()) && !edge(part.back());
}

bool is_revision(std::string_view revision) {
  const auto forbidden = [](char c) {
    return is_control(c) || std::string_view(" ~^:?*[\\").find(c) != std::string_view::npos;
  };
  return revision.size() <= kMaxComponent && std::none_of(revision.begin(), revision.end(), forbidden) &&
         revision.find("..") == std::string_view::npos && revision.find("@{") == std::string_view::npos &&
         !revision.starts_with('-') && all_parts(revision, [](std::string_view part) {
           return !part.empty() && !part.starts_with('.') && !part.ends_with('.') && !part.ends_with(".lock");
         });
}

}  // namespace

bool is_repo_id(std::string_view repo) {
  return repo.size() <= kMaxRepoId && std::count(repo.begin(), repo.end(), '/') <= 1 && all_parts(repo, is_repo_part) &&
         repo.find("--") == std::string_view::npos && repo.find("..") == std::string_view::npos &&
         !repo.ends_with(".git");
}

void require_repo_id(const std::string& repo) {
  if (is_repo_id(repo)) return;
  throw_invalid(
      "'{}': expected the name of a Hugging Face repository, ORG/NAME: letters, digits, '-', '_' and '.', at most {} "
      "characters, no '--' or '..'",
      repo, kMaxRepoId);
}

void require_revision(const std::string& revision) {
  if (is_revision(revision)) return;
  throw_invalid("revision '{}': expected a branch, tag or commit as git names them", revision);
}

bool is_safe_file_name(std::string_view path) {
  const auto forbidden = [](char c) { return is_control(c) || c == '\\'; };
  return std::none_of(path.begin(), path.end(), forbidden) && all_parts(path, [](std::string_view part) {
           return !part.empty() && part != "." && part != ".." && part.size() <= kMaxComponent;
         });
}

bool is_safe_etag(std::string_view etag) {
  const auto allowed = [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; };
  // Room for ".incomplete".
  return !etag.empty() && etag.size() <= 200 && etag.front() != '.' && std::all_of(etag.begin(), etag.end(), allowed);
}

bool is_hex_digits(std::string_view text, size_t size) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == size && std::all_of(text.begin(), text.end(), is_digit);
}

bool is_commit_hash(std::string_view text) { return is_hex_digits(text, 40); }

std::string cache_folder_name(std::string_view repo) {
  std::string name = "models--";
  for (const char c : repo) name += c == '/' ? "--" : std::string(1, c);
  return name;
}

std::string url_encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace mlxlm::hub
