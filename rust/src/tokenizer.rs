//! Hugging Face tokenizers behind the C ABI.

use std::sync::{Arc, OnceLock};

use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl};

use crate::abi::{
    borrow_slice, borrow_text, guard, guard_value, hand_out, put, take_back, Failure, OwnedIds, OwnedText, Status,
};
use crate::dummy_prefix;
use crate::model::FastModel;

pub type Tokenizer =
    TokenizerImpl<FastModel, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

pub struct Handle {
    inner: Arc<Tokenizer>,
    id_bound: OnceLock<u32>,
}

impl Handle {
    fn parse(json: &str, prefix: i32) -> Result<Handle, Failure> {
        let mut inner: Tokenizer = serde_json::from_str(json).map_err(|error| Failure::invalid(error.to_string()))?;
        if let Some(scheme) = dummy_prefix::scheme_from_code(prefix)? {
            dummy_prefix::place(&mut inner, scheme)?;
        }
        // A training leftover: an engine wants every token of its prompt, and no padding.
        inner.with_truncation(None).map_err(|error| Failure::invalid(error.to_string()))?;
        inner.with_padding(None);
        Ok(Handle { inner: Arc::new(inner), id_bound: OnceLock::new() })
    }

    pub fn share(&self) -> Arc<Tokenizer> {
        self.inner.clone()
    }

    /// One past the largest id. The vocabulary is a map, so holes are possible and only a walk finds them; as long as
    /// ids are dense, which is the rule, the walk visits each once.
    fn id_bound(&self) -> u32 {
        *self.id_bound.get_or_init(|| {
            let count = self.inner.get_vocab_size(true) as u32;
            let dense = (0..count).all(|id| self.inner.id_to_token(id).is_some());
            if dense {
                return count;
            }
            self.inner.get_vocab(true).values().max().map_or(0, |id| id + 1)
        })
    }
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_new(
    json: *const u8,
    size: usize,
    prefix: i32,
    out: *mut *mut Handle,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let handle = Handle::parse(borrow_text(json, size)?, prefix)?;
        hand_out(out, handle);
        Ok(())
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_free(handle: *mut Handle) {
    take_back(handle);
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_encode(
    handle: *const Handle,
    text: *const u8,
    size: usize,
    add_special_tokens: i32,
    out: *mut OwnedIds,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let text = borrow_text(text, size)?;
        // encode_fast leaves out character offsets, which nothing here reads.
        let encoding = (*handle)
            .inner
            .encode_fast(text, add_special_tokens != 0)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        put(out, encoding.get_ids().to_vec());
        Ok(())
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_decode(
    handle: *const Handle,
    ids: *const u32,
    n_ids: usize,
    skip_special_tokens: i32,
    out: *mut OwnedText,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let text = (*handle)
            .inner
            .decode(borrow_slice(ids, n_ids), skip_special_tokens != 0)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        put(out, text.into_bytes());
        Ok(())
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_id_to_token(
    handle: *const Handle,
    id: u32,
    buffer: *mut u8,
    capacity: usize,
) -> i64 {
    guard_value(-1, || match (*handle).inner.id_to_token(id) {
        Some(token) => {
            let copied = token.len().min(capacity);
            if copied > 0 {
                std::ptr::copy_nonoverlapping(token.as_ptr(), buffer, copied);
            }
            token.len() as i64
        }
        None => -1,
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_token_to_id(handle: *const Handle, token: *const u8, size: usize) -> i64 {
    guard_value(-1, || match borrow_text(token, size) {
        Ok(token) => (*handle).inner.token_to_id(token).map_or(-1, i64::from),
        Err(_) => -1,
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_is_special(handle: *const Handle, id: u32) -> i32 {
    guard_value(0, || {
        let tokenizer = &(*handle).inner;
        let special = tokenizer.id_to_token(id).is_some_and(|t| tokenizer.get_added_vocabulary().is_special_token(&t));
        i32::from(special)
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_vocab_size(handle: *const Handle) -> u32 {
    guard_value(0, || (*handle).id_bound())
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_tokenizer_decoder_json(
    handle: *const Handle,
    out: *mut OwnedText,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let json =
            serde_json::to_vec(&(*handle).inner.get_decoder()).map_err(|error| Failure::invalid(error.to_string()))?;
        put(out, json);
        Ok(())
    })
}
