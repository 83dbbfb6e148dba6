#include "sampling.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "callables.h"
#include "mlxlm/error.h"
#include "options.h"

namespace mlxlm::python {
namespace {

/// [1, vocab] or [vocab], changed in place.
using WritableRow = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

std::span<float> row_of(const WritableRow& array) { return {array.data(), array.size()}; }

SamplingContext context_of(uint64_t seed, int64_t position) { return {seed, position}; }

struct SamplerSettings {
  SamplerOptions options;
  std::vector<int32_t> xtc_special_tokens;
};

SamplerSettings sampler_settings(const nb::dict& options) {
  SamplerSettings settings;
  OptionTable table;
  add_sampler_options(table, settings.options, settings.xtc_special_tokens);
  apply_options(options, table);
  return settings;
}

SamplerFunction sampler_of(const nb::dict& options) {
  const SamplerSettings settings = sampler_settings(options);
  return make_sampler(settings.options, settings.xtc_special_tokens);
}

void filter_row(const WritableRow& row, const nb::dict& options, uint64_t seed, int64_t position) {
  const SamplerSettings settings = sampler_settings(options);
  filter_logprobs(row_of(row), settings.options, settings.xtc_special_tokens, context_of(seed, position));
}

int32_t sample_row(const WritableRow& row, const nb::dict& options, uint64_t seed, int64_t position) {
  return sampler_of(options)(row_of(row), context_of(seed, position));
}

// Wrong options are errors here, not when the first token is drawn.
void check_sampler(const nb::dict& options) { sampler_of(options); }

// (seed, position) of the sampler that this thread runs, or None.
nb::object draw_of_this_call() {
  const SamplingContext* context = current_draw();
  if (context == nullptr) return nb::none();
  return nb::make_tuple(context->seed, context->position);
}

Processor wrap(std::shared_ptr<LogitsProcessor> processor) { return {std::move(processor)}; }

std::vector<Processor> make_processors(const nb::dict& options) {
  LogitsProcessorOptions o;
  OptionTable table;
  table["logit_bias"] = sets(o.logit_bias, "logit_bias", "a dict of token ids and numbers");
  table["repetition_penalty"] = sets(o.repetition_penalty, "repetition_penalty", "a number");
  table["repetition_context_size"] = sets(o.repetition_context_size, "repetition_context_size", "an int");
  table["presence_penalty"] = sets(o.presence_penalty, "presence_penalty", "a number");
  table["presence_context_size"] = sets(o.presence_context_size, "presence_context_size", "an int");
  table["frequency_penalty"] = sets(o.frequency_penalty, "frequency_penalty", "a number");
  table["frequency_context_size"] = sets(o.frequency_context_size, "frequency_context_size", "an int");
  table["penalize_prompt"] = sets(o.penalize_prompt, "penalize_prompt", "a bool");
  apply_options(options, table);
  std::vector<Processor> processors;
  for (auto& processor : make_logits_processors(o)) processors.push_back(wrap(std::move(processor)));
  return processors;
}

// The processor on a row of the caller's, as if its request began here: all tokens are prompt.
void process_row(const Processor& processor, const TokenArray& tokens, const WritableRow& logits) {
  const auto own = processor.copy();
  const auto row = row_of(logits);
  own->start({as_span(tokens), static_cast<int64_t>(row.size()), {}});
  own->process(as_span(tokens), row);
}

Processor make_constraint(const Tokenizer& tokenizer, const std::string& kind, const std::string& source,
                          std::vector<std::string> choices) {
  using Kind = Grammar::Kind;
  const std::map<std::string, Kind> kinds = {{"json_schema", Kind::json_schema},
                                             {"json_object", Kind::json_object},
                                             {"regex", Kind::regex},
                                             {"lark", Kind::lark},
                                             {"choice", Kind::choice}};
  const Grammar grammar{kinds.at(kind), source, std::move(choices)};
  const nb::gil_scoped_release release;
  return wrap(constrain(tokenizer, grammar));
}

void bind_processors(nb::module_& m) {
  nb::class_<Processor>(m, "Processor")
      .def_prop_ro("name", [](const Processor& p) { return p.prototype->name(); })
      .def("process", process_row);
  m.def("make_logits_processors", make_processors);
  m.def("ban_token_ids", [](std::vector<int32_t> ids) { return wrap(ban_token_ids(std::move(ids))); });
  m.def("forbid_strings", [](const Tokenizer& tokenizer, std::vector<std::string> texts) {
    return wrap(forbid_strings(tokenizer, std::move(texts)));
  });
  m.def("force_prefix",
        [](const Tokenizer& tokenizer, const std::string& text) { return wrap(force_prefix(tokenizer, text)); });
  m.def("min_length", [](int64_t tokens) { return wrap(min_length(tokens)); });
  m.def("thinking_budget",
        [](const Tokenizer& tokenizer, int64_t tokens) { return wrap(thinking_budget(tokenizer, tokens)); });
  m.def("constrain", make_constraint);
}

}  // namespace

std::shared_ptr<LogitsProcessor> Processor::copy() const {
  auto copy = prototype->clone();
  return copy ? std::shared_ptr<LogitsProcessor>(std::move(copy)) : prototype;
}

void bind_sampling(nb::module_& m) {
  bind_processors(m);
  m.def("filter_row", filter_row);
  m.def("sample_row", sample_row);
  m.def("check_sampler", check_sampler);
  m.def("draw_of_this_call", draw_of_this_call);
}

}  // namespace mlxlm::python
