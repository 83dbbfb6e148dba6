#include "io/json.h"

#include "base/error.h"
#include "io/files.h"
#include "io/json_reader.h"

namespace mlxlm::io {

Json parse_json(std::string_view text, const std::string& where) {
  JsonReader reader(text, where);
  Json value = reader.read_value();
  reader.finish();
  return value;
}

Json read_json_file(const std::string& path) { return parse_json(read_text_file(path), path); }

std::string read_text_file(const std::string& path) {
  InputFile file(path);
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
}

}  // namespace mlxlm::io
