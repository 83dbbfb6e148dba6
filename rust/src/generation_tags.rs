//! The tags {% generation %} … {% endgeneration %} mark what an assistant wrote, for training. The template engine does
//! not know them, so they become {% with %} … {% endwith %}: the body is rendered in a scope of its own, as there.

/// Replaces the tag names outside of comments, raw blocks and strings. Whitespace control marks stay as they are.
pub fn rewrite(source: &str) -> String {
    if !source.contains("generation") {
        return source.to_owned();
    }
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (text, tail) = rest.split_at(start);
        result.push_str(text);
        let end = construct_end(tail);
        let construct = &tail[..end];
        match tag_name(construct) {
            Some((from, to, "generation")) => push_renamed(&mut result, construct, from, to, "with"),
            Some((from, to, "endgeneration")) => push_renamed(&mut result, construct, from, to, "endwith"),
            _ => result.push_str(construct),
        }
        rest = &tail[end..];
    }
    result.push_str(rest);
    result
}

fn push_renamed(result: &mut String, construct: &str, from: usize, to: usize, name: &str) {
    result.push_str(&construct[..from]);
    result.push_str(name);
    result.push_str(&construct[to..]);
}

/// Length of the construct that `text` begins with: a comment, a raw block, an expression, a tag, or a lone brace.
fn construct_end(text: &str) -> usize {
    if text.starts_with("{#") {
        return text.find("#}").map_or(text.len(), |at| at + 2);
    }
    if text.starts_with("{{") {
        return code_end(text, "}}");
    }
    if !text.starts_with("{%") {
        return 1;
    }
    let end = code_end(text, "%}");
    match tag_name(&text[..end]) {
        Some((_, _, "raw")) => raw_end(text, end),
        _ => end,
    }
}

/// The end of code that closes with `close`, which does not count inside strings or open brackets.
fn code_end(text: &str, close: &str) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut at = 2;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'\'' | b'"') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            _ if depth == 0 && bytes[at..].starts_with(close.as_bytes()) => return at + close.len(),
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// The end of a raw block whose opening tag ends at `open_end`.
fn raw_end(text: &str, open_end: usize) -> usize {
    let mut at = open_end;
    while let Some(found) = text[at..].find("{%") {
        let start = at + found;
        let end = code_end(&text[start..], "%}") + start;
        if matches!(tag_name(&text[start..end]), Some((_, _, "endraw"))) {
            return end;
        }
        at = start + 2;
    }
    text.len()
}

/// The first word of a tag and where it stands.
fn tag_name(construct: &str) -> Option<(usize, usize, &str)> {
    let inner = construct.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    let word = inner.trim_start();
    let length = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(word.len());
    let from = construct.len() - word.len();
    (length > 0).then(|| (from, from + length, &word[..length]))
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn tags_are_renamed_with_their_whitespace_marks() {
        assert_eq!(rewrite("a{%- generation -%}b{% endgeneration %}c"), "a{%- with -%}b{% endwith %}c");
        assert_eq!(rewrite("{%generation%}x{%+endgeneration+%}"), "{%with%}x{%+endwith+%}");
    }

    #[test]
    fn comments_strings_raw_blocks_and_other_words_stay() {
        for text in [
            "{# {% generation %} #}",
            "{{ '{% generation %}' }}",
            "{{ \"it's {% generation %}\" }}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% if add_generation_prompt %}x{% endif %}",
            "{% set generation = 1 %}{{ generation }}",
            "{ generation } {% generation_x %}",
            "{% if '%}' == \"{% generation %}\" %}",
            "unfinished {% if 'generation",
            "{",
        ] {
            assert_eq!(rewrite(text), text);
        }
    }

    #[test]
    fn text_around_is_kept_byte_for_byte() {
        assert_eq!(
            rewrite("é{{ {'a': {'b': 1}} }}{% generation %}→{% endgeneration %}€"),
            "é{{ {'a': {'b': 1}} }}{% with %}→{% endwith %}€"
        );
    }
}
