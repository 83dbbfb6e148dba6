//! GET over HTTP(S): one client with its pool of connections, and answers that are read piece by piece.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use ureq::config::RedirectAuthHeaders;
use ureq::http::{header, HeaderMap};
use ureq::tls::{parse_pem, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, BodyReader, Error};

use crate::abi::{borrow_text, guard, guard_value, hand_out, put, take_back, Failure, OwnedText, Status};

/// Owned by C++ as an opaque handle.
pub struct HttpClient(Agent);

/// Owned by C++ as an opaque handle.
pub struct HttpResponse {
    status: u16,
    headers: HeaderMap,
    body: BodyReader<'static>,
}

/// Whether trying again may help decides the status.
fn failure(error: Error) -> Failure {
    let (status, message) = match error {
        // rustls reports what it will not accept, such as an unknown certificate, as invalid data.
        Error::Io(error) if error.kind() == ErrorKind::InvalidData => (Status::Invalid, format!("TLS: {error}")),
        Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
            (Status::Broken, "the connection was cut".to_owned())
        }
        Error::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            (Status::Broken, "timeout: no answer in time".to_owned())
        }
        Error::Io(error) => (Status::Broken, error.to_string()),
        Error::Timeout(phase) => (Status::Broken, format!("timeout: no answer in time ({phase})")),
        error @ (Error::HostNotFound | Error::ConnectionFailed | Error::BodyStalled | Error::Protocol(_)) => {
            (Status::Broken, error.to_string())
        }
        error => (Status::Invalid, error.to_string()),
    };
    Failure { status, message }
}

fn root_certificates(pem: &str) -> Result<RootCerts, Failure> {
    if pem.is_empty() {
        return Ok(RootCerts::WebPki);
    }
    let mut certificates = Vec::new();
    for item in parse_pem(pem.as_bytes()) {
        if let PemItem::Certificate(certificate) = item.map_err(failure)? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(Failure::invalid("expected certificates in PEM form, found none"));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

fn new_client(user_agent: &str, certificates: &str, timeout: Duration) -> Result<HttpClient, Failure> {
    let tls = TlsConfig::builder().root_certs(root_certificates(certificates)?).build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .user_agent(user_agent)
        // An encoded body would have another length than the file, and no range to go on from.
        .accept_encoding("identity")
        .accept("*/*")
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .timeout_resolve(Some(timeout))
        .timeout_connect(Some(timeout))
        .timeout_per_read(Some(timeout))
        .timeout_per_write(Some(timeout))
        .build();
    Ok(HttpClient(config.into()))
}

fn get(client: &HttpClient, url: &str, authorization: &str, range_start: u64) -> Result<HttpResponse, Failure> {
    let mut request = client.0.get(url);
    if !authorization.is_empty() {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    if range_start > 0 {
        request = request.header(header::RANGE, format!("bytes={range_start}-"));
    }
    let (parts, body) = request.call().map_err(failure)?.into_parts();
    Ok(HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body: body.into_reader() })
}

/// # Safety
/// Texts must be valid for their sizes; `out` must be valid for writing, `error` null or valid for writing.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_http_client_new(
    user_agent: *const u8,
    user_agent_size: usize,
    certificates: *const u8,
    certificates_size: usize,
    timeout_ms: u32,
    out: *mut *mut HttpClient,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let user_agent = borrow_text(user_agent, user_agent_size)?;
        let certificates = borrow_text(certificates, certificates_size)?;
        let client = new_client(user_agent, certificates, Duration::from_millis(timeout_ms.into()))?;
        hand_out(out, client);
        Ok(())
    })
}

/// # Safety
/// `client` must be null or come from `mlxlm_http_client_new`.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_http_client_free(client: *mut HttpClient) {
    take_back(client);
}

/// # Safety
/// `client` must come from `mlxlm_http_client_new`; texts must be valid for their sizes; `out` must be valid for writing,
/// `error` null or valid for writing.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_http_get(
    client: *const HttpClient,
    url: *const u8,
    url_size: usize,
    authorization: *const u8,
    authorization_size: usize,
    range_start: u64,
    out: *mut *mut HttpResponse,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let client = client.as_ref().ok_or_else(|| Failure::invalid("no client"))?;
        let url = borrow_text(url, url_size)?;
        let authorization = borrow_text(authorization, authorization_size)?;
        let response = get(client, url, authorization, range_start)?;
        hand_out(out, response);
        Ok(())
    })
}

/// # Safety
/// `response` must be null or come from `mlxlm_http_get`.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_http_response_free(response: *mut HttpResponse) {
    take_back(response);
}

/// # Safety
/// `response` must come from `mlxlm_http_get`.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_http_status(response: *const HttpResponse) -> i32 {
    response.as_ref().map_or(0, |response| response.status.into())
}

/// # Safety
/// `response` must come from `mlxlm_http_get`; `name` must be valid for `size` bytes; `out` must be null or valid for
/// writing.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_http_header(
    response: *const HttpResponse,
    name: *const u8,
    size: usize,
    out: *mut OwnedText,
) {
    let value = guard_value(Vec::new(), || {
        let name = borrow_text(name, size).unwrap_or("");
        let value = response.as_ref().and_then(|response| response.headers.get(name));
        value.map_or(Vec::new(), |value| String::from_utf8_lossy(value.as_bytes()).into_owned().into_bytes())
    });
    put(out, value);
}

/// # Safety
/// `response` must come from `mlxlm_http_get`; `buffer` must be valid for writing `capacity` bytes, and `size` for
/// writing; `error` must be null or valid for writing.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_http_read(
    response: *mut HttpResponse,
    buffer: *mut u8,
    capacity: usize,
    size: *mut usize,
    error: *mut OwnedText,
) -> Status {
    guard(error, || {
        let response = response.as_mut().ok_or_else(|| Failure::invalid("no response"))?;
        let buffer = std::slice::from_raw_parts_mut(buffer, capacity);
        size.write(response.body.read(buffer).map_err(|error| failure(Error::from(error)))?);
        Ok(())
    })
}
