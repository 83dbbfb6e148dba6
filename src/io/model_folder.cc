#include "io/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "io/files.h"

namespace mlxlm::io {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kIndex = "model.safetensors.index.json";

class FolderOnDisk final : public FolderSource {
 public:
  explicit FolderOnDisk(std::string path) : path_(std::move(path)) {}
  std::string path() const override { return path_; }

  std::vector<std::string> list() const override {
    std::error_code error;
    const auto status = std::filesystem::status(path_, error);
    if (status.type() == std::filesystem::file_type::not_found) {
      throw_error(ErrorKind::not_found, "{}: no such model folder", path_);
    }
    if (!error && !std::filesystem::is_directory(status)) {
      throw_invalid(
          "{}: expected a model folder (with config.json and *.safetensors), got a file; a GGUF file becomes a folder "
          "with 'mlxlm convert --gguf FILE --mlx-path DIR'",
          path_);
    }
    return list_folder(path_);
  }

  std::optional<std::string> read_text(const std::string& name) const override {
    if (!file_exists(full(name))) return std::nullopt;
    return read_text_file(full(name));
  }

  std::shared_ptr<const MappedFile> map(const std::string& name) const override { return MappedFile::open(full(name)); }

 private:
  std::string full(const std::string& name) const { return (std::filesystem::path(path_) / name).string(); }

  std::string path_;
};

/// Reads one folder into a ModelFolder.
class FolderReader {
 public:
  FolderReader(const FolderSource& source, ModelFolder& folder)
      : source_(source), folder_(folder), names_(source.list()) {}

  void read() {
    folder_.path = source_.path();
    read_configs();
    const auto index = read_object(kIndex);
    if (index) {
      open_indexed(*index);
    } else {
      open_all();
    }
  }

 private:
  std::string full(std::string_view name) const {
    return (std::filesystem::path(folder_.path) / std::filesystem::path(name)).string();
  }

  bool has(std::string_view name) const { return std::binary_search(names_.begin(), names_.end(), name); }

  std::optional<Json> read_object(const std::string& name) const {
    const auto text = source_.read_text(name);
    if (!text) return std::nullopt;
    Json json = parse_json(*text, full(name));
    if (!json.is_object()) throw_invalid("{}: expected a JSON object, got {}", full(name), json.type_name());
    return json;
  }

  void read_configs() {
    auto config = read_object(kConfig);
    if (!config) {
      throw_error(ErrorKind::not_found, "{}: no config.json; expected a model folder in MLX format", folder_.path);
    }
    folder_.config = std::move(*config);
    replace_float_objects(folder_.config);
    folder_.generation_config = read_object(kGenerationConfig).value_or(Json::object());
  }

  void open_all() {
    for (const std::string& name : names_) {
      const std::string_view view(name);
      if (view.starts_with("model") && view.ends_with(".safetensors")) open(name);
    }
    if (folder_.files.empty()) {
      throw_error(ErrorKind::not_found, "{}: no weights: looked for {} and model*.safetensors", folder_.path, kIndex);
    }
    for (const SafetensorsFile& file : folder_.files) {
      for (const TensorView& tensor : file.tensors()) {
        const auto [it, added] = folder_.tensors.emplace(tensor.name, &tensor);
        if (!added) {
          throw_invalid("{}: tensor '{}' is also in {}; remove the file that does not belong, or add {}", file.path(),
                        tensor.name, folder_.file_of(*it->second), kIndex);
        }
      }
    }
  }

  void open_indexed(const Json& index) {
    const auto weight_map = index.find("weight_map");
    if (weight_map == index.end() || !weight_map->is_object()) {
      throw_invalid("{}: expected an object 'weight_map' from tensor to file", full(kIndex));
    }
    std::map<std::string, std::string> file_of;  // by tensor
    std::map<std::string, size_t> files;         // name → place in folder_.files
    for (const auto& [tensor, file] : weight_map->items()) {
      if (!file.is_string()) throw_invalid("{}: weight_map: '{}': expected a file name", full(kIndex), tensor);
      file_of[tensor] = file.get<std::string>();
      files.emplace(file_of[tensor], 0);
    }
    if (files.empty()) throw_invalid("{}: weight_map is empty", full(kIndex));
    for (auto& [name, place] : files) {
      check_shard(name);
      place = folder_.files.size();
      open(name);
    }
    for (const auto& [name, place] : files) add_tensors(name, folder_.files[place], file_of);
    for (const auto& [tensor, file] : file_of) {
      if (!folder_.tensors.contains(tensor)) {
        throw_invalid("{}: weight_map puts tensor '{}' into {}, which does not hold it", full(kIndex), tensor, file);
      }
    }
  }

  void check_shard(const std::string& name) const {
    if (name.find('/') != std::string::npos || name.find('\\') != std::string::npos) {
      throw_invalid("{}: weight_map: expected names of files in this folder, got '{}'", full(kIndex), name);
    }
    if (!has(name)) {
      throw_error(ErrorKind::not_found, "{}: missing: {} names it; download it, or delete an index that is out of date",
                  full(name), kIndex);
    }
  }

  // The index decides between files that both hold a tensor. One it does not list (a quantiser may leave the index of
  // the original behind) is taken where it stands.
  void add_tensors(const std::string& name, const SafetensorsFile& file,
                   const std::map<std::string, std::string>& file_of) {
    for (const TensorView& tensor : file.tensors()) {
      const auto listed = file_of.find(tensor.name);
      if (listed != file_of.end() && listed->second != name) continue;
      const auto [it, added] = folder_.tensors.emplace(tensor.name, &tensor);
      if (!added) {
        throw_invalid("{}: tensor '{}' is also in {}, and {} does not list it", file.path(), tensor.name,
                      folder_.file_of(*it->second), kIndex);
      }
    }
  }

  void open(const std::string& name) { folder_.files.push_back(SafetensorsFile::parse(source_.map(name))); }

  const FolderSource& source_;
  ModelFolder& folder_;
  std::vector<std::string> names_;
};

}  // namespace

void replace_float_objects(Json& value) {
  if (value.is_object() && value.size() == 1 && value.contains("__float__") && value["__float__"].is_string()) {
    const auto name = value["__float__"].get<std::string>();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (name == "Infinity")
      value = kInfinity;
    else if (name == "-Infinity")
      value = -kInfinity;
    else if (name == "NaN")
      value = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  if (value.is_structured()) {
    for (auto& child : value) replace_float_objects(child);
  }
}

const SafetensorsFile* ModelFolder::find_file(const TensorView& tensor) const {
  for (const SafetensorsFile& file : files) {
    const auto& all = file.tensors();
    // Tensors lie in file order, so one that belongs here lies between the first and the last.
    if (!all.empty() && !std::less<const TensorView*>()(&tensor, all.data()) &&
        std::less<const TensorView*>()(&tensor, all.data() + all.size())) {
      return &file;
    }
  }
  return nullptr;
}

const std::string& ModelFolder::file_of(const TensorView& tensor) const {
  const SafetensorsFile* file = find_file(tensor);
  return file == nullptr ? path : file->path();
}

void ModelFolder::release(const TensorView& tensor, std::span<const std::byte> part) const {
  if (const SafetensorsFile* file = find_file(tensor)) file->release(part);
}

std::shared_ptr<const ModelFolder> open_model_folder(const std::string& path) {
  return open_model_folder(FolderOnDisk(path));
}

std::shared_ptr<const ModelFolder> open_model_folder(const FolderSource& source) {
  auto folder = std::make_shared<ModelFolder>();
  FolderReader(source, *folder).read();
  return folder;
}

}  // namespace mlxlm::io
