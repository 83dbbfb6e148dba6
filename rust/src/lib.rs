//! C ABI over the crates `tokenizers`, `minijinja` and `llguidance`; see `include/mlxlm_text.h` for the contract of every function.

mod abi;
mod clock;
mod generation_tags;
mod grammar;
mod grammar_source;
mod grammar_vocabulary;
mod model;
mod pyjson;
mod pymethods;
mod pyrepr;
mod template;
mod tokenizer;
