//! Sizes, and messages for values that should be numbers. They say what is needed; the standard library's say how it
//! parses.

use bytesize::ByteSize;
use clap::error::{ContextKind, Error, ErrorKind};
use std::error::Error as _;

/// Rewrites an error about such a value. Other errors stay as they are.
pub fn explained(error: Error) -> Error {
    let needed = error.source().and_then(|source| needed(&source.to_string()));
    let Some(needed) = needed.filter(|_| error.kind() == ErrorKind::ValueValidation) else { return error };
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (flag, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    Error::raw(
        error.kind(),
        format!("invalid value '{value}' for '{flag}': {needed}\n\nFor more information, try '--help'.\n"),
    )
}

/// What is needed when parsing failed with this message of the standard library.
fn needed(message: &str) -> Option<&'static str> {
    match message {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            Some("a whole number is needed")
        }
        "number too large to fit in target type" => Some("a smaller number is needed"),
        "invalid float literal" | "cannot parse float from empty string" => Some("a number is needed"),
        _ => None,
    }
}

/// Parses `4GiB`, `500M`, `123456789`.
pub fn size(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size),
        _ => Err("a size like 4GiB, 500MB or a number of bytes is needed".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_library_says_what_it_is_known_to_say() {
        for text in ["", "x", "1e3", "99999999999999999999"] {
            let error = text.parse::<u64>().unwrap_err().to_string();
            assert!(needed(&error).is_some(), "{error}");
        }
        for text in ["", "x"] {
            let error = text.parse::<f64>().unwrap_err().to_string();
            assert_eq!(needed(&error), Some("a number is needed"), "{error}");
        }
    }
}
