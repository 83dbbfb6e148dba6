//! C ABI over the crates `tokenizers` and `minijinja`; see `include/mlxlm_text.h` for the contract of every function.

mod abi;
mod clock;
mod generation_tags;
mod model;
mod pyjson;
mod pymethods;
mod pyrepr;
mod template;
mod tokenizer;
