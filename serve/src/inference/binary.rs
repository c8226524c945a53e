//! Tensors as bytes, little-endian: the binary extension of Triton, which its clients use unless they are told
//! otherwise. A text has its length before it, in 4 bytes.

use super::datum::Datum;
use crate::error::RequestError;

/// The elements of an input.
///
/// # Errors
/// The type is not known, or the bytes are no whole elements of it.
pub fn elements(name: &str, datatype: &str, bytes: &[u8]) -> Result<Vec<Datum>, RequestError> {
    macro_rules! numbers {
        ($of:ty, $datum:expr) => {{
            let (whole, rest) = bytes.as_chunks::<{ size_of::<$of>() }>();
            match rest {
                [] => Ok(whole.iter().map(|bytes| $datum(<$of>::from_le_bytes(*bytes))).collect()),
                _ => Err(RequestError::Bad(format!(
                    "input {name:?}: {} bytes are no whole elements of {datatype}",
                    bytes.len()
                ))),
            }
        }};
    }
    match datatype {
        "BOOL" => Ok(bytes.iter().map(|&byte| Datum::Bool(byte != 0)).collect()),
        "INT8" => numbers!(i8, |x| Datum::Signed(i64::from(x))),
        "INT16" => numbers!(i16, |x| Datum::Signed(i64::from(x))),
        "INT32" => numbers!(i32, |x| Datum::Signed(i64::from(x))),
        "INT64" => numbers!(i64, Datum::Signed),
        "UINT8" => numbers!(u8, |x| Datum::Unsigned(u64::from(x))),
        "UINT16" => numbers!(u16, |x| Datum::Unsigned(u64::from(x))),
        "UINT32" => numbers!(u32, |x| Datum::Unsigned(u64::from(x))),
        "UINT64" => numbers!(u64, Datum::Unsigned),
        "FP32" => numbers!(f32, Datum::Single),
        "FP64" => numbers!(f64, Datum::Double),
        "BYTES" => texts(name, bytes),
        _ => Err(unknown(name, datatype)),
    }
}

/// That a type is not known.
pub fn unknown(name: &str, datatype: &str) -> RequestError {
    RequestError::Bad(format!(
        "input {name:?}: the type {datatype} is not known here; BYTES, BOOL, FP32, FP64, and INT and UINT of 8 to 64 bits \
         are"
    ))
}

fn texts(name: &str, mut bytes: &[u8]) -> Result<Vec<Datum>, RequestError> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let cut = bytes.split_first_chunk::<4>();
        let text = cut.and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        let Some((text, rest)) = text else {
            let at = texts.len();
            return Err(RequestError::Bad(format!("input {name:?}: element {at} is longer than its data")));
        };
        texts.push(Datum::Text(String::from_utf8_lossy(text).into_owned()));
        bytes = rest;
    }
    Ok(texts)
}
