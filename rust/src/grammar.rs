//! Grammars that text must follow token by token, behind the C ABI.

use llguidance::api::StopReason;
use llguidance::TokenParser;

use crate::abi::{borrow_text, guard, hand_out, take_back, Failure, OwnedText, Status};
use crate::grammar_message::explain;
use crate::grammar_source::{self, Kind};
use crate::grammar_vocabulary::Handle as Vocabulary;

/// States of the text's automaton, about 2 kB each: a request's memory.
pub const MAX_LEXER_STATES: usize = 100_000;
/// Grammars are compiled on a thread of their own: rules that call one another in a line, as many as a source may have,
/// take about 25 kB each. Only what is used becomes memory.
const COMPILE_STACK: usize = 256 << 20;

/// A grammar and how much of a text it has read.
pub struct Handle {
    parser: TokenParser,
    /// Of the vocabulary.
    n_tokens: usize,
}

impl Handle {
    pub fn compile(vocabulary: &Vocabulary, kind: Kind, source: &str) -> Result<Handle, Failure> {
        let build = || -> Result<Handle, Failure> {
            let grammar = grammar_source::read(kind, source)?;
            let mut parser = vocabulary.factory.create_parser(grammar).map_err(|error| explain(&error))?;
            if parser.parser.grammar().lexer_spec().has_stop {
                return Err(Failure::invalid("stop= is not supported: it takes back text; write suffix= instead"));
            }
            parser.start_without_prompt();
            // A grammar that ends before it begins (the empty text alone) is found here.
            parser.check_stop().map_err(|error| explain(&error))?;
            let mut handle = Handle { parser, n_tokens: vocabulary.n_tokens };
            // Every request needs this mask. Rules that call one another without end have none.
            handle.mask(&mut [])?;
            match handle.parser.stop_reason() {
                StopReason::NoExtensionBias => Err(Failure::invalid("it admits no text that the tokens can write")),
                _ => Ok(handle),
            }
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(COMPILE_STACK).spawn_scoped(scope, build);
            let thread = thread.map_err(|error| Failure {
                status: Status::Fault,
                message: format!("no thread to compile on: {error}"),
            })?;
            thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        })
    }

    /// Its own caches too: how much work a step may do must not depend on what a copy has done.
    fn copy(&self) -> Handle {
        Handle { parser: self.parser.deep_clone(), n_tokens: self.n_tokens }
    }

    /// Where nothing may follow: whether the text may end there.
    fn ended(&self) -> Result<Option<bool>, Failure> {
        match self.parser.stop_reason() {
            StopReason::NotStopped => Ok(None),
            StopReason::NoExtension | StopReason::EndOfSentence => Ok(Some(true)),
            StopReason::NoExtensionBias => Ok(Some(false)), // no token of the vocabulary fits
            reason => Err(Failure::invalid(self.parser.error_message().unwrap_or_else(|| reason.to_string()))),
        }
    }

    fn accept(&mut self, id: u32) -> Result<(), Failure> {
        if self.ended()?.is_some() {
            return Err(Failure::invalid("the text is complete: only its end may follow"));
        }
        let parser = &mut self.parser;
        if id as usize >= self.n_tokens || !parser.validate_token(id).map_err(|error| explain(&error))? {
            return Err(Failure::invalid("the token does not continue the text"));
        }
        parser.consume_token(id).map_err(|error| explain(&error))?;
        parser.check_stop().map_err(|error| explain(&error))?;
        Ok(())
    }

    /// Sets the words; returns whether the text may end here.
    fn mask(&mut self, words: &mut [u32]) -> Result<bool, Failure> {
        words.fill(0);
        if let Some(may_end) = self.ended()? {
            return Ok(may_end);
        }
        let parser = &mut self.parser;
        let set = match parser.compute_mask() {
            Ok(set) => set,
            Err(_) if parser.stop_reason() == StopReason::NoExtensionBias => return Ok(false),
            Err(error) => return Err(explain(&error)),
        };
        let all_words = self.n_tokens.div_ceil(32);
        let n_words = all_words.min(words.len());
        words[..n_words].copy_from_slice(&set.as_slice()[..n_words]);
        if self.n_tokens % 32 != 0 && n_words == all_words {
            words[n_words - 1] &= (1 << (self.n_tokens % 32)) - 1; // not the end's own id
        }
        Ok(parser.is_accepting())
    }
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_grammar_new(
    vocabulary: *const Vocabulary,
    kind: i32,
    source: *const u8,
    size: usize,
    out: *mut *mut Handle,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let handle = Handle::compile(&*vocabulary, Kind::from_code(kind)?, borrow_text(source, size)?)?;
        hand_out(out, handle);
        Ok(())
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_grammar_free(handle: *mut Handle) {
    take_back(handle);
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_grammar_clone(
    handle: *const Handle,
    out: *mut *mut Handle,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        hand_out(out, (*handle).copy());
        Ok(())
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_grammar_accept(handle: *mut Handle, id: u32, error: *mut OwnedText) -> Status {
    guard(error, || (*handle).accept(id))
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_grammar_mask(
    handle: *mut Handle,
    words: *mut u32,
    n_words: usize,
    may_end: *mut i32,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let words = if n_words == 0 { &mut [] } else { std::slice::from_raw_parts_mut(words, n_words) };
        may_end.write(i32::from((*handle).mask(words)?));
        Ok(())
    })
}
