// Names that become paths and URLs: repositories, revisions, files. Nothing unchecked gets into either.
#pragma once

#include <string>
#include <string_view>

namespace mlxlm::hub {

/// "ORG/NAME" or "NAME" as the Hub allows them: letters, digits, '-', '_' and '.', no part that begins or ends with '-'
/// or '.', no "--" or "..", at most 96 characters.
bool is_repo_id(std::string_view repo);
/// Throws Error(invalid_value).
void require_repo_id(const std::string& repo);

/// A branch, tag or commit: what git allows in the name of a reference. Throws Error(invalid_value).
void require_revision(const std::string& revision);

/// A file of a repository: relative, with '/', no empty part, "." or "..", no backslash or control character.
bool is_safe_file_name(std::string_view path);

/// A blob's name in the cache: letters, digits, '-', '_' and '.', not beginning with '.'.
bool is_safe_etag(std::string_view etag);

bool is_commit_hash(std::string_view text);              ///< 40 lower-case hexadecimal digits
bool is_hex_digits(std::string_view text, size_t size);  ///< lower-case, exactly `size` of them

/// "models--ORG--NAME", the repository's folder in the cache.
std::string cache_folder_name(std::string_view repo);

/// Percent-encoded for a URL; '/' stays where `keep_slashes`.
std::string url_encoded(std::string_view text, bool keep_slashes);

}  // namespace mlxlm::hub
