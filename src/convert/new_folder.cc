#include "convert/new_folder.h"

#include <map>
#include <system_error>

#include "base/error.h"
#include "io/files.h"

namespace mlxlm::conversion {
namespace {

namespace fs = std::filesystem;

fs::path without_trailing_slash(const std::string& path) {
  const fs::path result(path);
  return result.has_filename() ? result : result.parent_path();
}

}  // namespace

void check_new_folder(const std::string& path) {
  if (path.empty()) throw_invalid("convert: the output folder has no name");
  std::error_code ignored;
  // The link's own status: a dangling link is in the way too.
  if (fs::exists(fs::symlink_status(without_trailing_slash(path), ignored))) {
    throw_invalid("{}: exists already; give a new folder, or remove it first", path);
  }
}

NewFolder::NewFolder(const std::string& path)
    : target_(without_trailing_slash(path)), temporary_(io::temporary_name(target_.string())) {
  check_new_folder(path);
  std::error_code error;
  fs::create_directories(temporary_, error);
  if (error) throw_error(ErrorKind::io, "{}: cannot create the folder: {}", temporary_.string(), error.message());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  std::error_code error;
  fs::rename(temporary_, target_, error);
  if (error) {
    throw_error(ErrorKind::io, "{}: cannot rename from {}: {}", target_.string(), temporary_.string(), error.message());
  }
  committed_ = true;
}

io::Json sorted(const io::Json& object) {
  std::map<std::string, io::Json> members;
  for (const auto& [key, value] : object.items()) members[key] = value;
  return io::make_object({members.begin(), members.end()});
}

std::string json_text(const io::Json& value) { return value.dump(4, ' ', /*ensure_ascii=*/true); }

}  // namespace mlxlm::conversion
