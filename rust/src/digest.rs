//! SHA-1 and SHA-256, as the names of files on the Hub are made. `ring` is here for TLS anyway, and uses the CPU's SHA
//! instructions where there are any.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::abi::{borrow_slice, guard_value, put, take_back, OwnedText};

/// Owned by C++ as an opaque handle.
pub struct Digest(Context);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[no_mangle]
pub extern "C" fn mlxlm_digest_new(sha256: i32) -> *mut Digest {
    let algorithm = if sha256 != 0 { &SHA256 } else { &SHA1_FOR_LEGACY_USE_ONLY };
    guard_value(std::ptr::null_mut(), || Box::into_raw(Box::new(Digest(Context::new(algorithm)))))
}

/// # Safety
/// `digest` must come from `mlxlm_digest_new`; `data` must be valid for `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_digest_update(digest: *mut Digest, data: *const u8, size: usize) {
    if let Some(digest) = digest.as_mut() {
        guard_value((), || digest.0.update(borrow_slice(data, size)));
    }
}

/// # Safety
/// `digest` must come from `mlxlm_digest_new`; `out` must be null or valid for writing.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_digest_hex(digest: *const Digest, out: *mut OwnedText) {
    if let Some(digest) = digest.as_ref() {
        let text = guard_value(String::new(), || hex(digest.0.clone().finish().as_ref()));
        put(out, text.into_bytes());
    }
}

/// # Safety
/// `digest` must be null or come from `mlxlm_digest_new`.
#[no_mangle]
pub unsafe extern "C" fn mlxlm_digest_free(digest: *mut Digest) {
    take_back(digest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex_of(sha256: i32, pieces: &[&str]) -> String {
        unsafe {
            let digest = mlxlm_digest_new(sha256);
            for piece in pieces {
                mlxlm_digest_update(digest, piece.as_ptr(), piece.len());
            }
            let text = hex((*digest).0.clone().finish().as_ref());
            mlxlm_digest_free(digest);
            text
        }
    }

    #[test]
    fn known_digests_whatever_the_pieces() {
        // The standard's own example, FIPS 180-4: "abc".
        assert_eq!(hex_of(0, &["abc"]), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex_of(1, &["a", "", "bc"]), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        // What git calls an empty file.
        assert_eq!(hex_of(0, &["blob 0\0"]), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    }
}
