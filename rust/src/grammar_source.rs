//! The four forms a grammar comes in, brought to the one the crate compiles.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::derivre::RegexBuilder;
use serde_json::Value;

use crate::abi::Failure;
use crate::grammar_message::explain;
use crate::lark_attributes::sets_attribute;

#[derive(Clone, Copy)]
pub enum Kind {
    JsonSchema,
    Regex,
    Lark,
    Choice,
}

impl Kind {
    /// From its number in the header.
    pub fn from_code(code: i32) -> Result<Kind, Failure> {
        match code {
            0 => Ok(Kind::JsonSchema),
            1 => Ok(Kind::Regex),
            2 => Ok(Kind::Lark),
            3 => Ok(Kind::Choice),
            _ => Err(Failure::invalid(format!("expected a kind from 0 to 3, got {code}"))),
        }
    }
}

/// Larger sources are refused before anything is built from them. Rules and expressions can cost the square of their
/// length.
const MAX_DATA_BYTES: usize = 1 << 20;
const MAX_RULE_BYTES: usize = 1 << 16;
/// Options of the crate that a schema may carry.
const OPTIONS: &str = "x-guidance";
/// Between the parts of a JSON text. Bounded: a small model may otherwise write blanks until its tokens run out. 64 is
/// deeper than people indent.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,64}";

pub fn read(kind: Kind, source: &str) -> Result<TopLevelGrammar, Failure> {
    let limit = match kind {
        Kind::JsonSchema | Kind::Choice => MAX_DATA_BYTES,
        Kind::Regex | Kind::Lark => MAX_RULE_BYTES,
    };
    if source.len() > limit {
        return Err(Failure::invalid(format!("expected at most {limit} bytes, got {}", source.len())));
    }
    let grammar = match kind {
        Kind::JsonSchema => GrammarWithLexer::from_json_schema(json_schema(source)?),
        Kind::Regex => from_regex(source)?,
        Kind::Lark => from_lark(source)?,
        Kind::Choice => from_regex(&choice(source)?)?,
    };
    Ok(TopLevelGrammar::from_grammar(grammar))
}

fn json_schema(source: &str) -> Result<Value, Failure> {
    let schema = serde_json::from_str(source).map_err(|error| Failure::invalid(format!("not JSON: {error}")))?;
    let mut schema = match schema {
        Value::Bool(true) => Value::Object(serde_json::Map::new()),
        Value::Object(_) => schema,
        Value::Bool(false) => return Err(Failure::invalid("the schema false admits no text")),
        other => return Err(Failure::invalid(format!("expected an object, got {}", kind_of(&other)))),
    };
    // Added last, and taken out by the crate: the order of the other members stays.
    let add = |members| serde_json::Map::entry(members, OPTIONS).or_insert_with(|| Value::Object(Default::default()));
    let options = schema.as_object_mut().map(add);
    if let Some(Value::Object(options)) = options {
        if !options.contains_key("whitespace_pattern") && !options.contains_key("whitespace_flexible") {
            options.insert("whitespace_pattern".to_owned(), JSON_SPACE.into());
        }
    }
    Ok(schema)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn from_lark(source: &str) -> Result<GrammarWithLexer, Failure> {
    if sets_attribute(source, "temperature") {
        return Err(Failure::invalid("temperature= is not supported in a grammar; it belongs to the sampler"));
    }
    Ok(GrammarWithLexer::from_lark(source.to_owned()))
}

fn from_regex(regex: &str) -> Result<GrammarWithLexer, Failure> {
    if regex.is_empty() {
        return Ok(GrammarWithLexer::from_lark("start: \"\"".to_owned()));
    }
    // The crate takes a group of this name for a lookahead, whose text it would take back.
    if regex.contains("(?P<stop>") || regex.contains("(?<stop>") {
        return Err(Failure::invalid("the group name \"stop\" is reserved: name the group otherwise"));
    }
    // Alone, so that the message speaks of the expression and not of the grammar around it.
    RegexBuilder::new().mk_regex(regex).map_err(|error| explain(&error))?;
    Ok(GrammarWithLexer::from_regex(regex))
}

/// An expression for exactly these texts.
fn choice(source: &str) -> Result<String, Failure> {
    let texts: Vec<String> =
        serde_json::from_str(source).map_err(|error| Failure::invalid(format!("not a list of texts: {error}")))?;
    if texts.is_empty() {
        return Err(Failure::invalid("expected at least one text, got none"));
    }
    let alternatives: Vec<String> = texts.iter().map(|text| escape(text)).collect();
    Ok(format!("(?:{})", alternatives.join("|")))
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            escaped.push(c);
        } else {
            escaped.push_str(&format!("\\x{:02x}", c as u32));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_json_are_bounded_unless_the_schema_says_otherwise() {
        let schema = json_schema(r#"{"type": "object", "b": 1, "a": 2}"#).unwrap();
        assert_eq!(schema.as_object().unwrap().keys().collect::<Vec<_>>(), ["type", "b", "a", OPTIONS]);
        assert_eq!(schema[OPTIONS]["whitespace_pattern"], JSON_SPACE);
        let own = json_schema(r#"{"x-guidance": {"whitespace_flexible": false}}"#).unwrap();
        assert_eq!(own[OPTIONS], serde_json::json!({"whitespace_flexible": false}));
        assert_eq!(json_schema("true").unwrap()[OPTIONS]["whitespace_pattern"], JSON_SPACE);
    }

    #[test]
    fn choices_are_taken_literally() {
        assert_eq!(choice(r#"["a.b", "é/\n", ""]"#).unwrap(), r"(?:a\x2eb|é\x2f\x0a|)");
        assert!(choice("{}").is_err());
    }
}
