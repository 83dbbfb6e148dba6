//! JSON as Python's json module reads and writes it, straight from and to template values.

use minijinja::value::{Value, ValueKind};

/// Nesting allowed in variables; deeper input is an attack, not a conversation.
const MAX_DEPTH: usize = 200;

/// Parses a JSON text into template values. Keys keep their order, the last of equal keys wins, numbers are exact.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at != parser.bytes.len() {
        return Err(parser.unexpected("the end"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn unexpected(&self, wanted: &str) -> String {
        format!("JSON: expected {wanted} at byte {}", self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        self.text[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("JSON: nested deeper than {MAX_DEPTH}"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::from),
            Some(b't') => self.word("true", Value::from(true)).ok_or_else(|| self.unexpected("true")),
            Some(b'f') => self.word("false", Value::from(false)).ok_or_else(|| self.unexpected("false")),
            Some(b'n') => self.word("null", Value::from(())).ok_or_else(|| self.unexpected("null")),
            Some(b'N') => self.word("NaN", Value::from(f64::NAN)).ok_or_else(|| self.unexpected("NaN")),
            Some(b'I') => self.word("Infinity", Value::from(f64::INFINITY)).ok_or_else(|| self.unexpected("Infinity")),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        if self.take(b'}') {
            return Ok(Value::from_pairs(pairs));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key"));
            }
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.unexpected("':'"));
            }
            pairs.push((Value::from(key), self.value(depth + 1)?));
            if self.take(b'}') {
                return Ok(Value::from_pairs(pairs));
            }
            if !self.take(b',') {
                return Err(self.unexpected("',' or '}'"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut items: Vec<Value> = Vec::new();
        if self.take(b']') {
            return Ok(Value::from(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(Value::from(items));
            }
            if !self.take(b',') {
                return Err(self.unexpected("',' or ']'"));
            }
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        if let Some(value) = self.word("Infinity", Value::from(f64::NEG_INFINITY)) {
            return Ok(value);
        }
        while matches!(self.peek(), Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        if !digits.contains(['.', 'e', 'E']) {
            if let Ok(small) = digits.parse::<i64>() {
                return Ok(Value::from(small));
            }
            if let Ok(large) = digits.parse::<i128>() {
                return Ok(Value::from(large));
            }
        }
        digits.parse::<f64>().map(Value::from).map_err(|_| format!("JSON: bad number {digits:?} at byte {start}"))
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut result = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\')) {
                self.at += 1;
            }
            result.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(result);
                }
                Some(_) => result.push(self.escape()?),
                None => return Err(self.unexpected("the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        self.at += 2;
        let plain = match self.bytes.get(self.at - 1) {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(&c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("an escape")),
        };
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char, String> {
        let first = self.hex4()?;
        if (0xD800..0xDC00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.hex4()?;
            let code = 0x10000 + ((first - 0xD800) << 10) + second.wrapping_sub(0xDC00);
            return char::from_u32(code).ok_or_else(|| self.unexpected("a surrogate pair"));
        }
        char::from_u32(first).ok_or_else(|| self.unexpected("a surrogate pair"))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = digits.ok_or_else(|| self.unexpected("four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

/// Options of json.dumps, with the defaults the chat template environment of transformers gives them.
pub struct Style {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Style {
    fn newline(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }
}

/// json.dumps; what Python cannot serialise is an error.
pub fn dumps(value: &Value, style: &Style) -> Result<String, String> {
    let mut out = String::new();
    write_value(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_value(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("tojson: nested deeper than {MAX_DEPTH}"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number_text(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Seq => write_list(value, style, depth, out)?,
        ValueKind::Map => write_map(value, style, depth, out)?,
        other => return Err(format!("Object of type {other} is not JSON serializable")),
    }
    Ok(())
}

fn write_list(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), String> {
    out.push('[');
    let mut empty = true;
    for item in value.try_iter().map_err(|error| error.to_string())? {
        if !empty {
            out.push_str(&style.item_separator);
        }
        empty = false;
        style.newline(depth + 1, out);
        write_value(&item, style, depth + 1, out)?;
    }
    if !empty {
        style.newline(depth, out);
    }
    out.push(']');
    Ok(())
}

fn write_map(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), String> {
    let mut keys: Vec<Value> = value.try_iter().map_err(|error| error.to_string())?.collect();
    if style.sort_keys {
        keys.sort();
    }
    out.push('{');
    for (index, key) in keys.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        style.newline(depth + 1, out);
        write_string(&key_text(key)?, style.ensure_ascii, out);
        out.push_str(&style.key_separator);
        let item = value.get_item(key).map_err(|error| error.to_string())?;
        write_value(&item, style, depth + 1, out)?;
    }
    if !keys.is_empty() {
        style.newline(depth, out);
    }
    out.push('}');
    Ok(())
}

fn key_text(key: &Value) -> Result<String, String> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Number => Ok(number_text(key)),
        other => Err(format!("keys must be str, int, float, bool or None, not {other}")),
    }
}

fn number_text(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() && number.is_nan() => "NaN".to_owned(),
        Ok(number) if !value.is_integer() && number.is_infinite() => {
            if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Ok(number) if !value.is_integer() => float_repr(number),
        _ => value.to_string(),
    }
}

/// repr of a Python float: the shortest digits that read back, in scientific form outside [1e-4, 1e16).
pub fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            format!("{mantissa}e{exponent:+03}")
        }
        None => text,
    }
}

fn write_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c if ensure_ascii && !(' '..='~').contains(&c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compact() -> Style {
        Style {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".into(),
            key_separator: ": ".into(),
            sort_keys: false,
        }
    }

    fn round_trip(text: &str) -> String {
        dumps(&parse(text).unwrap(), &compact()).unwrap()
    }

    #[test]
    fn writes_as_python_does() {
        assert_eq!(round_trip(r#"{"b":1,"a":"—‹&/"}"#), r#"{"b": 1, "a": "—‹&/"}"#);
        assert_eq!(
            round_trip(r#"[1.0,1e16,1e-5,0.1,1e22,-0.0,123456789012345678901234567890]"#),
            "[1.0, 1e+16, 1e-05, 0.1, 1e+22, -0.0, 123456789012345678901234567890]"
        );
        assert_eq!(
            round_trip("[true,false,null,NaN,Infinity,-Infinity,[],{}]"),
            "[true, false, null, NaN, Infinity, -Infinity, [], {}]"
        );
        assert_eq!(round_trip(r#""\u00e9\ud83d\ude00\u0001\b\f\/""#), "\"é😀\\u0001\\b\\f/\"");
    }

    #[test]
    fn ascii_indent_and_sorting() {
        let value = parse(r#"{"b": [1, {}], "a": "é😀"}"#).unwrap();
        let style = Style {
            ensure_ascii: true,
            indent: Some("  ".into()),
            item_separator: ",".into(),
            key_separator: ": ".into(),
            sort_keys: true,
        };
        assert_eq!(
            dumps(&value, &style).unwrap(),
            "{\n  \"a\": \"\\u00e9\\ud83d\\ude00\",\n  \"b\": [\n    1,\n    {}\n  ]\n}"
        );
    }

    #[test]
    fn broken_texts_are_errors() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "[1,", "{\"a\" 1}", "\"a", "\"\\x\"", "\"\\ud800\"", "1 2", "tru", "-", "\"\\u12", &deep]
        {
            assert!(parse(text).is_err(), "{text:.20}");
        }
    }
}
