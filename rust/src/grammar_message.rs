//! The grammar crate's explanations, fit to be shown.

use crate::abi::{Failure, Status};

/// Explanations repeat the source, which may be one line of many thousand characters.
const MAX_LINE: usize = 160;
const MAX_LINES: usize = 12;

/// The message without the crate's frames and states.
pub fn explain(error: &impl std::fmt::Display) -> Failure {
    let text = error.to_string();
    let end = ["\n<backtrace>", "\n<state>", "\n<non-verbose/>"].iter().filter_map(|mark| text.find(mark)).min();
    let text = shorten(text[..end.unwrap_or(text.len())].trim_end());
    match text.strip_prefix("panic: ") {
        Some(fault) => Failure { status: Status::Fault, message: fault.to_owned() },
        None => Failure::invalid(text),
    }
}

fn shorten(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.char_indices().nth(MAX_LINE) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_owned(),
        })
        .collect();
    if lines.len() <= MAX_LINES {
        return lines.join("\n");
    }
    // What is wrong stands first or last.
    format!("{}\n…\n{}", lines[..MAX_LINES / 2].join("\n"), lines[lines.len() - MAX_LINES / 2..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_message_and_cuts_the_rest() {
        assert_eq!(explain(&"bad\n<state>\nx\n</state>").message, "bad");
        let fault = explain(&"panic: oops\n<backtrace>\n0: main");
        assert_eq!((fault.status, fault.message.as_str()), (Status::Fault, "oops"));
        assert_eq!(explain(&format!("{}\nend", "é".repeat(500))).message, format!("{}…\nend", "é".repeat(160)));
        let many: String = (0..100).map(|i| format!("{i}\n")).collect();
        assert_eq!(explain(&many).message, "0\n1\n2\n3\n4\n5\n…\n94\n95\n96\n97\n98\n99");
    }
}
