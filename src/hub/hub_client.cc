#include "hub/hub_client.h"

#include "base/error.h"
#include "hub/backoff.h"
#include "hub/names.h"
#include "io/files.h"

namespace mlxlm::hub {
namespace {

constexpr size_t kMaxDocument = 64 << 20;  // a page of the file list is a few hundred kB
constexpr int kMaxPages = 1000;

std::string certificates_of(const Settings& settings) {
  const std::string& path = settings.certificates_path;
  // Without TLS a variable that leads nowhere does no harm.
  if (path.empty() || (settings.endpoint.starts_with("http://") && !io::file_exists(path))) return "";
  try {
    return io::read_text_file(path);
  } catch (const Error& error) {
    throw Error(error.kind(), format_text("SSL_CERT_FILE: {}", error.what()));
  }
}

/// The address of the next page in a Link header: <ADDRESS>; rel="next".
std::string next_page(std::string_view link) {
  while (!link.empty()) {
    const size_t open = link.find('<');
    const size_t close = link.find('>', open);
    if (open == std::string_view::npos || close == std::string_view::npos) return "";
    const size_t end = link.find(',', close);
    const std::string_view parameters = link.substr(close + 1, end == std::string_view::npos ? end : end - close - 1);
    if (parameters.find("rel=\"next\"") != std::string_view::npos) {
      return std::string(link.substr(open + 1, close - open - 1));
    }
    if (end == std::string_view::npos) return "";
    link.remove_prefix(end + 1);
  }
  return "";
}

bool is_transient(int status) { return status == 408 || status == 429 || status >= 500; }

}  // namespace

HubClient::HubClient(const Settings& settings, std::string repo, std::stop_token cancel)
    : settings_(settings),
      repo_(std::move(repo)),
      cancel_(std::move(cancel)),
      http_(certificates_of(settings), settings.timeout) {}

std::string HubClient::api(const std::string& rest) const { return settings_.endpoint + "/api/models/" + repo_ + rest; }

HttpResponse HubClient::request(const std::string& url, const std::string& revision, int64_t start) const {
  throw_if_cancelled(cancel_);
  // The token is the endpoint's business alone, wherever a list of files may point.
  const bool own = url.starts_with(settings_.endpoint + "/");
  const std::string authorization = settings_.token.empty() || !own ? "" : "Bearer " + settings_.token;
  HttpResponse response = http_.get(url, authorization, static_cast<uint64_t>(start));
  const int status = response.status();
  if (status != 200 && status != 206 && status != 416) fail(response, revision);
  return response;
}

void HubClient::fail(const HttpResponse& response, const std::string& revision) const {
  const int status = response.status();
  const std::string code = response.header("X-Error-Code");
  std::string detail = response.header("X-Error-Message");
  if (!detail.empty()) detail = " (\"" + detail + "\")";
  if (is_transient(status)) {
    const char* meaning = status == 429 ? "too many requests" : "the server is not available";
    throw Transient(Trouble::busy, format_text("{}: HTTP {}: {}{}", response.url(), status, meaning, detail),
                    requested_pause(response.header("Retry-After"), response.header("RateLimit")));
  }
  if (code == "RevisionNotFound") {
    throw HubError(Trouble::no_revision, ErrorKind::not_found,
                   format_text("{}: no such branch, tag or commit: '{}'", repo_, revision));
  }
  if (status == 401 || status == 403) {
    throw HubError(Trouble::no_access, ErrorKind::io, no_access(status, code == "GatedRepo" ? code : detail));
  }
  if (status == 404 && code != "EntryNotFound") {
    throw HubError(
        Trouble::no_repo, ErrorKind::not_found,
        format_text("{0}: {1} has no such repository, and there is no folder of that name here; check the spelling",
                    repo_, settings_.endpoint));
  }
  throw HubError(Trouble::malformed, ErrorKind::io, format_text("{}: HTTP {}{}", response.url(), status, detail));
}

std::string HubClient::no_access(int status, const std::string& detail) const {
  const std::string page = settings_.endpoint + "/" + repo_;
  if (detail == "GatedRepo") {
    return format_text(
        "{}: HTTP {}: the repository is gated. Accept its conditions at {} and set HF_TOKEN to a token of that account "
        "({}/settings/tokens){}",
        repo_, status, page, settings_.endpoint,
        settings_.token.empty() ? "" : "; the token in use belongs to an account that was not let in");
  }
  if (!settings_.token.empty()) {
    return format_text("{}: HTTP {}{}: the token was refused: it may be wrong, expired, or not allowed to read {}",
                       repo_, status, detail, page);
  }
  return format_text(
      "{}: HTTP {}{}: there is no such repository, or it is private. Check the spelling (a folder of that name does "
      "not "
      "exist here either); for a private one set HF_TOKEN to a token of yours ({}/settings/tokens)",
      repo_, status, detail, settings_.endpoint);
}

io::Json HubClient::get_json(const std::string& url, const std::string& revision, int attempts,
                             std::string* next) const {
  Backoff backoff(attempts, cancel_);
  for (;;) {
    try {
      HttpResponse response = request(url, revision, 0);
      const std::string text = response.read_text(kMaxDocument);
      if (next != nullptr) *next = next_page(response.header("Link"));
      try {
        return io::parse_json(text, url);
      } catch (const Error& error) {
        throw HubError(Trouble::malformed, ErrorKind::io,
                       format_text("{}; is HF_ENDPOINT ({}) a Hugging Face Hub?", error.what(), settings_.endpoint));
      }
    } catch (const Transient& failure) {
      backoff.after(failure);
    }
  }
}

std::string HubClient::commit_of(const std::string& revision, int attempts) const {
  const std::string url = api("/revision/" + url_encoded(revision, false));
  const io::Json answer = get_json(url, revision, attempts, nullptr);
  const auto sha = answer.is_object() ? answer.value("sha", io::Json()) : io::Json();
  if (!sha.is_string() || !is_commit_hash(sha.get<std::string>())) {
    throw HubError(Trouble::malformed, ErrorKind::io,
                   format_text("{}: expected a commit in \"sha\", got {}; is HF_ENDPOINT ({}) a Hugging Face Hub?", url,
                               sha.dump(), settings_.endpoint));
  }
  return sha.get<std::string>();
}

RepoTree HubClient::tree(const std::string& commit, int attempts) const {
  RepoTree tree;
  std::string url = api("/tree/" + commit + "?recursive=true");
  for (int page = 0; !url.empty(); ++page) {
    if (page == kMaxPages) {
      throw HubError(Trouble::malformed, ErrorKind::io, format_text("{}: the list of files does not end", url));
    }
    std::string next;
    add_tree_page(get_json(url, commit, attempts, &next), url, tree);
    // An address relative to the server is allowed.
    if (next.starts_with('/')) next.insert(0, settings_.endpoint);
    url = next;
  }
  return tree;
}

HttpResponse HubClient::open(const std::string& commit, const RepoFile& file, int64_t start) const {
  return request(settings_.endpoint + "/" + repo_ + "/resolve/" + commit + "/" + url_encoded(file.path, true), commit,
                 start);
}

}  // namespace mlxlm::hub
