//! How deep the lists and objects of a JSON text are, before a parser that has no limit of its own sees it.

use crate::error::RequestError;
use crate::limits::DEPTH_MAX;

/// Checks a text that may be JSON.
///
/// # Errors
/// Lists and objects are deeper than the limit.
pub fn check_depth(json: &[u8]) -> Result<(), RequestError> {
    let (mut depth, mut in_text, mut at) = (0usize, false, 0);
    while at < json.len() {
        match json[at] {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    let what =
                        format!("the body has lists and objects inside each other, deeper than {DEPTH_MAX}");
                    return Err(RequestError::Bad(what));
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn brackets_in_texts_do_not_count() {
        let deep = "[".repeat(1000);
        assert!(check_depth(format!("{{\"a\\\"{deep}\": \"{deep}\"}}").as_bytes()).is_ok());
        assert!(check_depth(deep.as_bytes()).is_err());
        assert!(check_depth(format!("\"\\\\\"{deep}").as_bytes()).is_err());
        assert!(check_depth("[]".repeat(1000).as_bytes()).is_ok());
    }

    proptest! {
        /// Whatever the bytes are, what passes is no deeper than a parser can read on a small stack.
        #[test]
        fn any_bytes_end(json in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_depth(&json);
        }
    }
}
