#include "tokenizer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "mlxlm/tokenizer.h"

namespace mlxlm::python {
namespace {

std::string render(const Tokenizer& tokenizer, std::string_view messages_json, bool add_generation_prompt,
                   bool continue_final_message, std::string tools_json, std::string documents_json,
                   std::string variables_json, std::string chat_template) {
  ChatTemplateOptions options;
  options.add_generation_prompt = add_generation_prompt;
  options.continue_final_message = continue_final_message;
  options.tools_json = std::move(tools_json);
  options.documents_json = std::move(documents_json);
  options.variables_json = std::move(variables_json);
  options.chat_template = std::move(chat_template);
  return tokenizer.render_chat_template_json(messages_json, options);
}

using Released = nb::call_guard<nb::gil_scoped_release>;

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def_static("from_folder", &Tokenizer::from_folder, Released())
      .def("encode", &Tokenizer::encode, Released())
      .def("decode", [](const Tokenizer& t, const TokenArray& ids,
                        bool skip_special_tokens) { return t.decode(as_span(ids), skip_special_tokens); })
      .def("render", render, Released())
      .def("has_chat_template", &Tokenizer::has_chat_template)
      .def("vocab_size", &Tokenizer::vocab_size)
      .def("token_to_id", &Tokenizer::token_to_id)
      .def("id_to_token", &Tokenizer::id_to_token)
      .def("bos_token_id", &Tokenizer::bos_token_id)
      .def("eos_token_ids", [](const Tokenizer& t) { return t.eos_token_ids(); })
      .def("has_thinking", &Tokenizer::has_thinking);
  nb::class_<StreamingDetokenizer>(m, "StreamingDetokenizer")
      .def(nb::init<const Tokenizer&, bool>())
      .def("add_token", &StreamingDetokenizer::add_token)
      .def("finalize", &StreamingDetokenizer::finalize)
      .def("take_segment", &StreamingDetokenizer::take_segment)
      .def("reset", &StreamingDetokenizer::reset);
}

}  // namespace mlxlm::python
