// The folder that a conversion makes.
#pragma once

#include <filesystem>
#include <string>

#include "io/json.h"

namespace mlxlm::conversion {

/// Filled under a temporary name beside its own; renamed by commit(), and without it removed with all it holds.
class NewFolder {
 public:
  /// Throws Error(invalid_value) when `path` is empty or exists.
  explicit NewFolder(const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to write the file of this name.
  std::string file(const std::string& name) const { return (temporary_ / name).string(); }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

/// Throws what NewFolder's constructor does, for a check before long work.
void check_new_folder(const std::string& path);

/// The object's members in ascending order of their keys.
io::Json sorted(const io::Json& object);

/// JSON text as Python's json.dumps(value, indent=4) writes it: everything beyond ASCII escaped.
std::string json_text(const io::Json& value);

}  // namespace mlxlm::conversion
