//! A tokenizer model that reads its part of tokenizer.json in one pass.
//!
//! The crate's own reading of a model buffers the whole of it twice before it builds it, because the type may come last.
//! In practice "type" stands first, and for BPE, whose vocabulary and merges are megabytes, that is worth using.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ahash::AHashMap;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tokenizers::models::bpe::BPE;
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::{Model, Result, Token};

/// Any of the crate's models; only the reading differs.
pub struct FastModel(ModelWrapper);

impl<'de> Deserialize<'de> for FastModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor).map(FastModel)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = ModelWrapper;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a tokenizer model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<ModelWrapper, A::Error> {
        let mut members = serde_json::Map::new();
        if let Some(key) = map.next_key::<String>()? {
            let value: serde_json::Value = map.next_value()?;
            if key == "type" && value == "BPE" {
                return read_bpe(map).map(ModelWrapper::BPE);
            }
            members.insert(key, value);
        }
        while let Some((key, value)) = map.next_entry()? {
            members.insert(key, value);
        }
        serde_json::from_value(serde_json::Value::Object(members)).map_err(A::Error::custom)
    }
}

/// The members of a BPE model after its type, in any order; unknown ones are skipped, as in the crate.
fn read_bpe<'de, A: MapAccess<'de>>(mut map: A) -> std::result::Result<BPE, A::Error> {
    let mut builder = BPE::builder();
    let mut vocab: Option<AHashMap<String, u32>> = None;
    let mut merges: Option<Merges> = None;
    while let Some(key) = map.next_key::<String>()? {
        builder = match key.as_str() {
            "dropout" => set(&mut map, builder, |b, value| b.dropout(value))?,
            "unk_token" => set(&mut map, builder, |b, value: String| b.unk_token(value))?,
            "continuing_subword_prefix" => {
                set(&mut map, builder, |b, value: String| b.continuing_subword_prefix(value))?
            }
            "end_of_word_suffix" => set(&mut map, builder, |b, value: String| b.end_of_word_suffix(value))?,
            "fuse_unk" => set(&mut map, builder, |b, value| b.fuse_unk(value))?,
            "byte_fallback" => set(&mut map, builder, |b, value| b.byte_fallback(value))?,
            "ignore_merges" => set(&mut map, builder, |b, value| b.ignore_merges(value))?,
            "vocab" => {
                vocab = Some(map.next_value()?);
                builder
            }
            "merges" => {
                merges = Some(map.next_value()?);
                builder
            }
            _ => {
                map.next_value::<serde::de::IgnoredAny>()?;
                builder
            }
        };
    }
    let vocab = vocab.ok_or_else(|| A::Error::custom("a BPE model needs a vocab"))?;
    let merges = merges.ok_or_else(|| A::Error::custom("a BPE model needs merges"))?;
    builder.vocab_and_merges(vocab, merges.0).build().map_err(A::Error::custom)
}

/// Reads one member that may be null and applies it.
fn set<'de, A, B, T>(map: &mut A, builder: B, apply: impl FnOnce(B, T) -> B) -> std::result::Result<B, A::Error>
where
    A: MapAccess<'de>,
    T: Deserialize<'de>,
{
    Ok(match map.next_value::<Option<T>>()? {
        Some(value) => apply(builder, value),
        None => builder,
    })
}

/// Pairs ["a", "b"], or "a b" in older files.
struct Merges(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(MergesVisitor)
    }
}

struct MergesVisitor;

impl<'de> Visitor<'de> for MergesVisitor {
    type Value = Merges;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Merges, A::Error> {
        let mut merges = Vec::new();
        while let Some(merge) = seq.next_element::<Merge>()? {
            merges.extend(merge.0);
        }
        Ok(Merges(merges))
    }
}

/// One merge; none for the version line of older files.
struct Merge(Option<(String, String)>);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = Merge;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge: two tokens in a list, or in a text with a space between")
    }

    fn visit_str<E: Error>(self, text: &str) -> std::result::Result<Merge, E> {
        if text.starts_with("#version") {
            return Ok(Merge(None));
        }
        match text.split_once(' ') {
            Some((a, b)) if !b.contains(' ') => Ok(Merge(Some((a.to_owned(), b.to_owned())))),
            _ => Err(E::custom(format!("merge {text:?}: expected two tokens with one space between"))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Merge, A::Error> {
        let wanted = || A::Error::custom("a merge: expected exactly two tokens");
        let a = seq.next_element()?.ok_or_else(wanted)?;
        let b = seq.next_element()?.ok_or_else(wanted)?;
        match seq.next_element::<serde::de::IgnoredAny>()? {
            None => Ok(Merge(Some((a, b)))),
            Some(_) => Err(wanted()),
        }
    }
}

impl Model for FastModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        self.0.tokenize(sequence)
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.get_vocab()
    }
    fn get_vocab_size(&self) -> usize {
        self.0.get_vocab_size()
    }
    fn save(&self, folder: &Path, prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        self.0.save(folder, prefix)
    }
    fn get_trainer(&self) -> TrainerWrapper {
        self.0.get_trainer()
    }
}
