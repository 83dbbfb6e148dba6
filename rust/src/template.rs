//! Chat templates: Jinja as the transformers library sets it up, behind the C ABI.

use std::cell::{Cell, RefCell};

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State};

use crate::abi::{borrow_text, guard, hand_out, put, take_back, Failure, OwnedText, Status};
use crate::clock::{strftime, Clock};
use crate::generation_tags;
use crate::pyjson::{self, Style};
use crate::pymethods;
use crate::pyrepr::python_str;

/// A name without an extension, so that nothing is escaped.
const NAME: &str = "chat_template";

/// Work a render may do: one unit is about an instruction or 64 bytes. The base is far above what a template needs for
/// itself (a few thousand); the rest grows with the conversation, of which templates read every byte a few times.
const BASE_FUEL: u64 = 10_000_000;
const FUEL_PER_BYTE: u64 = 256;

thread_local! {
    static CLOCK: Cell<Clock> = const { Cell::new(Clock { fixed: 0, seconds: 0 }) };
    static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
}

pub struct Handle {
    environment: Environment<'static>,
}

impl Handle {
    fn compile(source: &str) -> Result<Handle, Failure> {
        let mut environment = environment().map_err(|error| Failure::invalid(describe(&error)))?;
        environment
            .add_template_owned(NAME, generation_tags::rewrite(source))
            .map_err(|error| Failure::invalid(describe(&error)))?;
        Ok(Handle { environment })
    }

    fn render(&self, json: &str, clock: Clock) -> Result<String, Failure> {
        let variables = pyjson::parse(json).map_err(Failure::invalid)?;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(BASE_FUEL + FUEL_PER_BYTE * json.len() as u64));
        CLOCK.set(clock);
        RAISED.set(None);
        let result = environment.get_template(NAME).and_then(|template| template.render(variables));
        result.map_err(|error| match RAISED.take() {
            Some(message) => Failure { status: Status::Raised, message },
            None => Failure::invalid(describe(&error)),
        })
    }
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let mut syntax = environment.syntax().to_builder();
    environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_debug(true); // keeps line numbers for messages
    minijinja_contrib::add_to_environment(&mut environment);
    environment.set_unknown_method_callback(pymethods::call);
    environment.set_formatter(python_formatter);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", python_str);
    environment.add_filter("wordcount", wordcount);
    environment.add_filter("center", center);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format: &str| {
        strftime(CLOCK.get(), format).map_err(|message| Error::new(ErrorKind::InvalidOperation, message))
    });
    // Python's meaning: anything with a length that can be indexed.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    environment.add_test("callable", |value: &Value| matches!(value.kind(), ValueKind::Plain));
    Ok(environment)
}

/// Prints like Python; text and what the engine prints alike goes through its own writer.
fn python_formatter(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if matches!(value.kind(), ValueKind::Number | ValueKind::Seq | ValueKind::Map) {
        return out.write_str(&python_str(value)).map_err(Error::from);
    }
    minijinja::escape_formatter(out, state, value)
}

/// Words as Python's \w+ finds them.
fn wordcount(value: &Value) -> usize {
    let text = python_str(value);
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count()
}

fn center(state: &mut State, value: &Value, width: Option<usize>) -> Result<Value, Error> {
    let width = Value::from(width.unwrap_or(80));
    pymethods::call(state, &Value::from(python_str(value)), "center", &[width])
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = python_str(message);
    RAISED.set(Some(message.clone()));
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False), which is json.dumps.
fn tojson(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if args.len() > NAMES.len() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let mut given: [Value; 4] = Default::default();
    for (slot, name) in NAMES.iter().enumerate() {
        let keyword: Option<Value> = kwargs.get(name)?;
        given[slot] = keyword.or_else(|| args.get(slot).cloned()).unwrap_or(Value::from(()));
    }
    kwargs.assert_all_used()?;
    let [ensure_ascii, indent, separators, sort_keys] = given;
    let indent = indent_text(&indent)?;
    let (item_separator, key_separator) = if separators.is_none() || separators.is_undefined() {
        (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned())
    } else {
        separator_pair(&separators)?
    };
    let style = Style {
        ensure_ascii: ensure_ascii.is_true(),
        indent,
        item_separator,
        key_separator,
        sort_keys: sort_keys.is_true(),
    };
    let text = pyjson::dumps(value, &style).map_err(|message| Error::new(ErrorKind::BadSerialization, message))?;
    Ok(Value::from(text))
}

fn indent_text(indent: &Value) -> Result<Option<String>, Error> {
    if indent.is_none() || indent.is_undefined() {
        return Ok(None);
    }
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_owned()));
    }
    match indent.as_i64() {
        Some(width) if width <= 64 => Ok(Some(" ".repeat(width.max(0) as usize))),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: indent must be a string or a number up to 64")),
    }
}

fn separator_pair(separators: &Value) -> Result<(String, String), Error> {
    let parts: Vec<Value> = separators.try_iter()?.collect();
    match parts.as_slice() {
        [item, key] if item.as_str().is_some() && key.as_str().is_some() => Ok((item.to_string(), key.to_string())),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings")),
    }
}

/// "line 3: undefined value: …", with the causes.
fn describe(error: &Error) -> String {
    let mut text = match error.line() {
        Some(line) => format!("line {line}: "),
        None => String::new(),
    };
    if error.kind() == ErrorKind::OutOfFuel {
        text.push_str("the template does not come to an end (work limit reached)");
        return text;
    }
    text.push_str(&error.kind().to_string());
    if let Some(detail) = error.detail() {
        text.push_str(": ");
        text.push_str(detail);
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str("; caused by: ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_template_new(
    source: *const u8,
    size: usize,
    out: *mut *mut Handle,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let handle = Handle::compile(borrow_text(source, size)?)?;
        hand_out(out, handle);
        Ok(())
    })
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_template_free(handle: *mut Handle) {
    take_back(handle);
}

/// # Safety
/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_template_render(
    handle: *const Handle,
    json: *const u8,
    size: usize,
    clock: Clock,
    out: *mut OwnedText,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let text = (*handle).render(borrow_text(json, size)?, clock)?;
        put(out, text.into_bytes());
        Ok(())
    })
}
