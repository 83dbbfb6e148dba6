//! A tokenizer's tokens as a trie of bytes, behind the C ABI: what every grammar of that tokenizer is compiled against.

use std::sync::Arc;

use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::ParserFactory;

use crate::abi::{borrow_slice, guard, hand_out, take_back, Failure, OwnedText, Status};
use crate::tokenizer::{Handle as TokenizerHandle, Tokenizer};

/// The trie allows 1024 levels; a special token takes one more for its marker. Longer tokens are never admitted.
const MAX_TOKEN_BYTES: usize = 1000;
/// The trie keeps ids in 24 bits, and one is ours.
const MAX_TOKENS: usize = (1 << 24) - 2;
/// Text that the grammar forces is cut into tokens this far ahead, or eight of the longest tokens: only the first token
/// is used, and the cut moves at most the last four.
const FORCED_BYTES: usize = 512;

pub struct Handle {
    pub factory: ParserFactory,
    /// Of the caller; the trie has one more, which stands for the end of the text.
    pub n_tokens: usize,
}

/// The trie, and how the tokenizer itself cuts text.
struct Env {
    trie: TokTrie,
    tokenizer: Option<Arc<Tokenizer>>,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let ahead = FORCED_BYTES.max(8 * self.trie.max_token_len());
        let mut end = bytes.len();
        if end > 2 * ahead {
            end = ahead;
            while bytes[end] & 0xc0 == 0x80 && end > ahead - 4 {
                end -= 1; // not within a character
            }
        }
        self.trie.tokenize_with_greedy_fallback(&bytes[..end], |text| self.tokenize_text(text))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.tokenizer.is_some()
    }
}

impl Env {
    /// The tokenizer's own cut, where its tokens spell the text: a normalizer may change it, and text that looks like a
    /// special token becomes that token.
    fn tokenize_text(&self, text: &str) -> Vec<TokenId> {
        if let Some(tokenizer) = &self.tokenizer {
            if let Ok(encoding) = tokenizer.encode_fast(text, false) {
                let ids = encoding.get_ids();
                if self.trie.decode_raw(ids) == text.as_bytes() {
                    return ids.to_vec();
                }
            }
        }
        self.trie.greedy_tokenize(text.as_bytes())
    }
}

/// Whether any text can be written: only then may the grammar choose the next token itself.
fn spells_everything(trie: &TokTrie) -> bool {
    let utf8 = (0u8..=0xbf).chain(0xc2..=0xf4);
    utf8.into_iter().all(|byte| trie.token_id_at_bytes(&[byte]).is_some())
}

impl Handle {
    fn build(words: Vec<Vec<u8>>, tokenizer: Option<Arc<Tokenizer>>) -> Result<Handle, Failure> {
        let n_tokens = words.len();
        let mut words = words;
        // The end of the text. Its bytes are the marker of special tokens alone, which the crate expects to be a token
        // and never admits as text.
        words.push(vec![TokTrie::SPECIAL_TOKEN_MARKER]);
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, n_tokens as u32), &words);
        let tokenizer = tokenizer.filter(|_| spells_everything(&trie));
        let env: TokEnv = Arc::new(Env { trie, tokenizer });
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        factory.limits_mut().max_lexer_states = crate::grammar::MAX_LEXER_STATES;
        Ok(Handle { factory, n_tokens })
    }
}

/// The bytes of each token. Tokens that spell nothing, or bytes that no text has, are left empty: never admitted.
fn split(bytes: &[u8], ends: &[usize], special: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    if ends.len() > MAX_TOKENS {
        return Err(Failure::invalid(format!("expected at most {MAX_TOKENS} tokens, got {}", ends.len())));
    }
    let mut words = Vec::with_capacity(ends.len() + 1);
    let mut start = 0;
    for (&end, &is_special) in ends.iter().zip(special) {
        let token = bytes
            .get(start..end)
            .ok_or_else(|| Failure::invalid(format!("token {}: its bytes end before they start", words.len())))?;
        start = end;
        let mut word = Vec::new();
        if token.len() <= MAX_TOKEN_BYTES && token.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
            if is_special != 0 && !token.is_empty() {
                word.push(TokTrie::SPECIAL_TOKEN_MARKER);
            }
            word.extend_from_slice(token);
        }
        words.push(word);
    }
    Ok(words)
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_grammar_vocabulary_new(
    bytes: *const u8,
    ends: *const usize,
    special: *const u8,
    n_tokens: usize,
    tokenizer: *const TokenizerHandle,
    out: *mut *mut Handle,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let ends = borrow_slice(ends, n_tokens);
        let bytes = borrow_slice(bytes, ends.last().copied().unwrap_or(0));
        let words = split(bytes, ends, borrow_slice(special, n_tokens))?;
        let handle = Handle::build(words, tokenizer.as_ref().map(TokenizerHandle::share))?;
        hand_out(out, handle);
        Ok(())
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_grammar_vocabulary_free(handle: *mut Handle) {
    take_back(handle);
}
