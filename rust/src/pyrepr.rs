//! str() and repr() of Python for template values.

use minijinja::value::{Value, ValueKind};

use crate::pyjson::float_repr;

/// Deeper values are cut, not followed.
const MAX_DEPTH: usize = 200;

/// str(value): text as it is, everything else as repr. Undefined is empty, as Jinja prints it.
pub fn python_str(value: &Value) -> String {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Number => {
            let mut out = String::new();
            write_repr(value, 0, &mut out);
            out
        }
        _ => value.to_string(),
    }
}

fn write_repr(value: &Value, depth: usize, out: &mut String) {
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(number) if !value.is_integer() => out.push_str(&float_repr(number)),
            _ => out.push_str(&value.to_string()),
        },
        ValueKind::Seq => write_list(value, depth, out),
        ValueKind::Map => write_map(value, depth, out),
        ValueKind::Undefined => out.push_str("Undefined"),
        _ => out.push_str(&value.to_string()),
    }
}

fn write_list(value: &Value, depth: usize, out: &mut String) {
    let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
    let mut count = 0;
    out.push(open);
    for item in value.try_iter().into_iter().flatten() {
        if count > 0 {
            out.push_str(", ");
        }
        count += 1;
        write_repr(&item, depth + 1, out);
    }
    if value.is_tuple() && count == 1 {
        out.push(',');
    }
    out.push(close);
}

fn write_map(value: &Value, depth: usize, out: &mut String) {
    out.push('{');
    for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_repr(&key, depth + 1, out);
        out.push_str(": ");
        write_repr(&value.get_item(&key).unwrap_or_default(), depth + 1, out);
    }
    out.push('}');
}

fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => match u32::from(c) {
                code @ 0..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ 0x100..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// str.isprintable for what occurs in text: not controls, separators other than the space, format characters, or
/// private use. Unassigned code points, which change with each Unicode version, count as printable.
fn is_printable(c: char) -> bool {
    let hidden = match u32::from(c) {
        0x20 => false,
        0xAD | 0x0600..=0x0605 | 0x061C | 0x06DD | 0x070F | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E => true,
        0x2060..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB | 0xE000..=0xF8FF | 0xE0000..=0xE007F | 0xF0000..=0x10FFFF => true,
        _ => c.is_control() || c.is_whitespace(),
    };
    !hidden
}
