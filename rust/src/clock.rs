//! strftime_now: Python's datetime.now().strftime(format), with a clock that tests can fix.

use std::ffi::CString;
use std::time::{SystemTime, UNIX_EPOCH};

/// As in the header: the system's local time, or fixed seconds since the epoch in UTC.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Clock {
    pub fixed: i32,
    pub seconds: i64,
}

pub fn strftime(clock: Clock, format: &str) -> Result<String, String> {
    let (seconds, microseconds) = if clock.fixed != 0 {
        (clock.seconds, 0)
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
        (now.as_secs() as i64, now.subsec_micros())
    };
    let format = expand_microseconds(format, microseconds);
    // A leading mark tells an empty result from a full buffer: libc answers 0 for both.
    let format = CString::new(format!("x{format}")).map_err(|_| "strftime_now: NUL in the format".to_owned())?;
    unsafe {
        let time: libc::time_t = seconds as libc::time_t;
        let mut parts: libc::tm = std::mem::zeroed();
        let filled =
            if clock.fixed != 0 { libc::gmtime_r(&time, &mut parts) } else { libc::localtime_r(&time, &mut parts) };
        if filled.is_null() {
            return Err("strftime_now: the clock is outside the calendar".to_owned());
        }
        let mut buffer = vec![0u8; format.as_bytes().len() * 16 + 256];
        let n = libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &parts);
        if n == 0 {
            return Err("strftime_now: the result is too long".to_owned());
        }
        Ok(String::from_utf8_lossy(&buffer[1..n]).into_owned())
    }
}

/// %f is Python's own; libc does not know it.
fn expand_microseconds(format: &str, microseconds: u32) -> String {
    let mut result = String::with_capacity(format.len());
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            result.push(c);
            continue;
        }
        match chars.next() {
            Some('f') => result.push_str(&format!("{microseconds:06}")),
            Some(other) => {
                result.push('%');
                result.push(other);
            }
            None => result.push_str("%%"),
        }
    }
    result
}
