//! Methods of Python's str and list that templates call and the compatibility layer of minijinja-contrib lacks.

use minijinja::value::{from_args, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

/// Tries ours first, then the compatibility layer.
pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let ours = match value.kind() {
        ValueKind::String => match value.as_str() {
            Some(text) => string_method(text, method, args)?,
            None => None,
        },
        ValueKind::Seq => list_method(value, method, args)?,
        ValueKind::Map => map_method(value, method, args)?,
        _ => None,
    };
    match ours {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, separator, method == "rpartition")?
        }
        "rsplit" => {
            let (separator, limit): (Option<&str>, Option<i64>) = from_args(args)?;
            rsplit(text, separator, limit.unwrap_or(-1))?
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let found = if method == "index" { text.find(wanted) } else { text.rfind(wanted) };
            let at = found.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            split_lines(text, keep_ends.unwrap_or(false))
        }
        "strip" | "lstrip" | "rstrip" if !args.is_empty() && !args[0].is_none() => {
            // An empty set of characters strips nothing; the compatibility layer would agree, but only for strings.
            let (set,): (&str,) = from_args(args)?;
            let inside = |c: char| set.contains(c);
            Value::from(match method {
                "strip" => text.trim_matches(inside),
                "lstrip" => text.trim_start_matches(inside),
                _ => text.trim_end_matches(inside),
            })
        }
        "ljust" | "rjust" | "center" | "zfill" => padded(text, method, args)?,
        "casefold" => Value::from(text.to_lowercase()),
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())),
        "isspace" => Value::from(!text.is_empty() && text.chars().all(char::is_whitespace)),
        "istitle" => {
            let titled = minijinja::filters::title(text.into());
            Value::from(text.chars().any(char::is_alphabetic) && titled == text)
        }
        "swapcase" => Value::from(text.chars().map(swap_case).collect::<String>()),
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() {
        c.to_lowercase().collect()
    } else {
        c.to_uppercase().collect()
    }
}

fn refuse_empty(separator: &str) -> Result<(), Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Ok(())
}

fn partition(text: &str, separator: &str, from_right: bool) -> Result<Value, Error> {
    refuse_empty(separator)?;
    let found = if from_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match found {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn rsplit(text: &str, separator: Option<&str>, limit: i64) -> Result<Value, Error> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts: Vec<String> = match separator {
        Some(separator) => {
            refuse_empty(separator)?;
            text.rsplitn(limit.saturating_add(1), separator).map(str::to_owned).collect()
        }
        None => rsplit_space(text, limit),
    };
    parts.reverse();
    Ok(Value::from_iter(parts))
}

fn rsplit_space(text: &str, limit: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        match rest.rfind(char::is_whitespace) {
            Some(at) if parts.len() < limit => {
                let word = at + rest[at..].chars().next().map_or(1, char::len_utf8);
                parts.push(rest[word..].to_owned());
                rest = rest[..at].trim_end();
            }
            Some(_) | None => {
                parts.push(rest.to_owned());
                break;
            }
        }
    }
    parts
}

/// Python's line boundaries, \r\n as one.
fn split_lines(text: &str, keep_ends: bool) -> Value {
    const BOUNDARIES: [char; 10] =
        ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(BOUNDARIES) {
        let width =
            if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
        lines.push(rest[..if keep_ends { at + width } else { at }].to_owned());
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(rest.to_owned());
    }
    Value::from_iter(lines)
}

/// The widest field a template may ask for, so that one call cannot take all memory.
const MAX_WIDTH: usize = 1 << 20;

fn padded(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let width = usize::try_from(width).unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("{method}: width above {MAX_WIDTH}")));
    }
    let missing = width.saturating_sub(text.chars().count());
    if method == "zfill" {
        let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
        return Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))));
    }
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(Error::new(ErrorKind::InvalidOperation, "the fill character must be exactly one character long"));
    }
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        // Python puts the odd one on the left only when the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(Value::from(format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left))))
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *wanted);
            let at = at.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("{wanted} is not in list")))?;
            Ok(Some(Value::from(at)))
        }
        "copy" => Ok(Some(Value::from_iter(value.try_iter()?))),
        _ => Ok(None),
    }
}

fn map_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if method == "copy" {
        let () = from_args(args)?;
        return Ok(Some(value.clone()));
    }
    Ok(None)
}
