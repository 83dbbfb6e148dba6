//! What crosses the border: owned buffers, statuses, borrowed text, and the guard that turns panics into errors.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ok = 0,
    Invalid = 1,
    Raised = 2,
    Fault = 3,
    /// A connection that broke or did not come to be: trying again may help.
    Broken = 4,
}

/// A failure with the status it is reported under.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure { status: Status::Invalid, message: message.into() }
    }
}

/// A `Vec` taken apart; `T` is `u8` for text and `u32` for ids.
#[repr(C)]
pub struct OwnedBuffer<T> {
    pub data: *mut T,
    pub size: usize,
    pub capacity: usize,
}

impl<T> OwnedBuffer<T> {
    fn from_vec(values: Vec<T>) -> Self {
        let mut values = std::mem::ManuallyDrop::new(values);
        OwnedBuffer { data: values.as_mut_ptr(), size: values.len(), capacity: values.capacity() }
    }

    /// # Safety
    /// `self` must come from `from_vec`, or have a null pointer.
    unsafe fn release(&mut self) {
        if !self.data.is_null() {
            drop(Vec::from_raw_parts(self.data, self.size, self.capacity));
        }
        self.data = std::ptr::null_mut();
        self.size = 0;
        self.capacity = 0;
    }
}

pub type OwnedText = OwnedBuffer<u8>;
pub type OwnedIds = OwnedBuffer<u32>;

/// # Safety
/// `out` must be null or valid for writing.
pub unsafe fn put<T>(out: *mut OwnedBuffer<T>, values: Vec<T>) {
    if !out.is_null() {
        out.write(OwnedBuffer::from_vec(values));
    }
}

/// # Safety
/// `data` must be valid for `size` bytes; it may be null only when `size` is 0.
pub unsafe fn borrow_slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// # Safety
/// As `borrow_slice`.
pub unsafe fn borrow_text<'a>(data: *const u8, size: usize) -> Result<&'a str, Failure> {
    std::str::from_utf8(borrow_slice(data, size))
        .map_err(|error| Failure::invalid(format!("not valid UTF-8 at byte {}", error.valid_up_to())))
}

/// The default hook prints to stderr, which a library must not; the message reaches the caller through `guard`.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

/// Runs `body`; a failure or a panic becomes a status and a message.
///
/// # Safety
/// `error` must be null or valid for writing.
pub unsafe fn guard(error: *mut OwnedText, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    silence_panics();
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure { status: Status::Fault, message: panic_text(payload.as_ref()) },
    };
    put(error, failure.message.into_bytes());
    failure.status
}

/// The same for functions that answer with a plain value.
pub fn guard_value<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    silence_panics();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// Gives `value` to the caller, who returns it through `take_back`.
///
/// # Safety
/// `out` must be valid for writing.
pub unsafe fn hand_out<T>(out: *mut *mut T, value: T) {
    out.write(Box::into_raw(Box::new(value)));
}

/// # Safety
/// `handle` must be null or come from `hand_out`.
pub unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        guard_value((), || drop(Box::from_raw(handle)));
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a fault without a message".to_owned()
    }
}

/// # Safety
/// `text` must be null or come from this library.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_string_free(text: *mut OwnedText) {
    if let Some(text) = text.as_mut() {
        text.release();
    }
}

/// # Safety
/// `ids` must be null or come from this library.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_ids_free(ids: *mut OwnedIds) {
    if let Some(ids) = ids.as_mut() {
        ids.release();
    }
}
