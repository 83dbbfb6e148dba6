//! Attributes of rules in a Lark grammar: the `temperature=0.5` of `a[temperature=0.5]: /x*/`.

/// Whether some rule has an attribute of this name with a value. The crate drops what it finds in some places without a
/// word (on a terminal that may be empty, in a rule that is never reached), so the source itself is searched.
pub fn sets_attribute(source: &str, name: &str) -> bool {
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (token, is_name) = next_token(rest, first);
        rest = &rest[token..];
        if is_name && rest.trim_start_matches([' ', '\t']).starts_with('=') {
            let end = source.len() - rest.len();
            if &source[end - token..end] == name {
                return true;
            }
        }
    }
    false
}

/// The length of the token at the start, and whether it is a name. Only as exact as finding names takes: what may hold
/// one without being one is passed over as a whole.
fn next_token(rest: &str, first: char) -> (usize, bool) {
    let line = || rest.find('\n').unwrap_or(rest.len());
    match first {
        '#' => (line(), false),
        '/' if rest.starts_with("//") => (line(), false),
        '"' | '/' => (delimited(rest, first), false),
        '<' => (special_token(rest), false),
        'a'..='z' | 'A'..='Z' | '_' => {
            let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            (rest.find(|c| !in_name(c)).unwrap_or(rest.len()), true)
        }
        _ => (first.len_utf8(), false),
    }
}

/// A string or an expression: to the next delimiter that no backslash escapes.
fn delimited(rest: &str, delimiter: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == delimiter && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

/// `<|name|>`, or the `<` alone.
fn special_token(rest: &str) -> usize {
    match rest[1..].find(|c: char| c == '<' || c == '>' || c.is_whitespace()) {
        Some(end) if rest[1 + end..].starts_with('>') && end > 0 => end + 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_it_wherever_a_rule_may_have_it() {
        for source in [
            "a[temperature=0.5]: /b/",
            "start: a\na[capture, temperature = 0]: /b*/",
            "a[max_tokens=3,temperature\t=1]: %json {\"type\": \"object\"}",
            "start: \"a\\\"\" /\\/\"/ <|x=\"/#|> a // \"\na[temperature=1]: \"\"",
            "a: \"\\\\\"\nb[temperature=1]: \"c\"",
            "start: %lark { start: x\n x[temperature=1]: /y/ }",
        ] {
            assert!(sets_attribute(source, "temperature"), "{source}");
        }
    }

    #[test]
    fn finds_it_nowhere_else() {
        for source in [
            "",
            "start: temperature\ntemperature: /[0-9]+/",
            "start: \"a[temperature=1]\"",
            "start: /[temperature=1]/ // temperature=1\n# temperature=1\n",
            "start: <temperature=1> \"x\"",
            "start: %json {\"const\": \"temperature=1\"}",
            "a[my_temperature=1]: /b/",
            "a[temperature-of=1]: /b/",
            "start: \"not closed temperature=1",
            "start: \"😀\" < /é",
        ] {
            assert!(!sets_attribute(source, "temperature"), "{source}");
        }
    }
}
