//! The space that SentencePiece writes before a text, for tokenizers of the Llama family.
//!
//! A tokenizer.json says where it goes, but the classes of the transformers library for Llama go by the settings of
//! tokenizer_config.json instead, and put it there with a pre-tokenizer of their own.

use serde_json::{json, Value};
use tokenizers::decoders::sequence::Sequence;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::DecoderWrapper;

use crate::abi::Failure;
use crate::tokenizer::Tokenizer;

const SPACE: char = '▁';

/// From its number in the header; none: as the file says.
pub fn scheme_from_code(code: i32) -> Result<Option<PrependScheme>, Failure> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(PrependScheme::First)),
        2 => Ok(Some(PrependScheme::Always)),
        3 => Ok(Some(PrependScheme::Never)),
        _ => Err(Failure::invalid(format!("expected a place of the prefix from 0 to 3, got {code}"))),
    }
}

/// Puts the prefix where `scheme` says. A tokenizer of another form, or one without such a prefix, stays as it is.
pub fn place(tokenizer: &mut Tokenizer, scheme: PrependScheme) -> Result<(), Failure> {
    if !writes_prefix(tokenizer)? {
        return Ok(());
    }
    let failed = |error: tokenizers::Error| Failure::invalid(error.to_string());
    tokenizer.with_normalizer(None::<tokenizers::NormalizerWrapper>).map_err(failed)?;
    tokenizer.with_pre_tokenizer(Some(Metaspace::new(SPACE, scheme, false)));
    if scheme == PrependScheme::Never {
        // What was not written is not taken away.
        if let Some(DecoderWrapper::Sequence(sequence)) = tokenizer.get_decoder() {
            let kept = sequence.get_decoders().iter().filter(|d| !matches!(d, DecoderWrapper::Strip(_)));
            let kept = Sequence::new(kept.cloned().collect());
            tokenizer.with_decoder(Some(kept));
        }
    }
    Ok(())
}

/// Whether it is of the family's form, in either of its spellings: the prefix by a normalizer, or by a pre-tokenizer.
fn writes_prefix(tokenizer: &Tokenizer) -> Result<bool, Failure> {
    let normalizer = to_json(&tokenizer.get_normalizer())?;
    let pre_tokenizer = to_json(&tokenizer.get_pre_tokenizer())?;
    let decoder = to_json(&tokenizer.get_decoder())?;
    let by_normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    let metaspace =
        |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    let by_pre_tokenizer = [metaspace("first"), metaspace("always")];
    let strips = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    let encodes = (normalizer == by_normalizer && pre_tokenizer.is_null())
        || (normalizer.is_null() && by_pre_tokenizer.contains(&pre_tokenizer));
    Ok(encodes && decoder == strips)
}

fn to_json<T: serde::Serialize>(part: &T) -> Result<Value, Failure> {
    serde_json::to_value(part).map_err(|error| Failure::invalid(error.to_string()))
}
