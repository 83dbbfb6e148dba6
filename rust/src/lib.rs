//! C ABI over the crates `tokenizers`, `minijinja`, `llguidance` and `ureq`; see `include/mlxlm_text.h` and
//! `include/mlxlm_net.h` for the contract of every function.

mod abi;
mod clock;
mod digest;
mod dummy_prefix;
mod generation_tags;
mod grammar;
mod grammar_message;
mod grammar_source;
mod grammar_vocabulary;
mod http;
mod lark_attributes;
mod model;
mod pyjson;
mod pymethods;
mod pyrepr;
mod template;
mod tokenizer;
