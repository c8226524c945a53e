//! The tokens of Rust source text that matter for imports: words, `::`, and single signs.

/// A token. Comments, literals and lifetimes leave none, or one sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token<'a> {
    /// A name or keyword.
    Word(&'a str),
    /// `::`.
    Joint,
    /// Any other sign. A string is `"`, a number `0`.
    Sign(char),
}

/// The tokens of a source text.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        at += match rest[0] {
            b'/' if rest.starts_with(b"//") => length_to(rest, b'\n'),
            b'/' if rest.starts_with(b"/*") => block_comment(rest),
            b'r' | b'b' | b'c' if raw_string(rest).is_some() => {
                found.push(Token::Sign('"'));
                raw_string(rest).unwrap()
            }
            b'"' => {
                found.push(Token::Sign('"'));
                quoted(rest, b'"')
            }
            b'\'' => quote(rest),
            b':' if rest.starts_with(b"::") => {
                found.push(Token::Joint);
                2
            }
            b'0'..=b'9' => {
                found.push(Token::Sign('0'));
                word(rest)
            }
            b if is_word(b) => {
                found.push(Token::Word(&text[at..at + word(rest)]));
                word(rest)
            }
            b => {
                if !b.is_ascii_whitespace() {
                    found.push(Token::Sign(b as char));
                }
                1
            }
        };
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn word(rest: &[u8]) -> usize {
    rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len())
}

fn length_to(rest: &[u8], end: u8) -> usize {
    rest.iter().position(|byte| *byte == end).unwrap_or(rest.len())
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < rest.len() {
        let (step, change) = match &rest[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
    }
    at
}

/// The length of a raw string, if one begins here: `r"`, `r#"`, `br"`.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = rest.iter().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let is_raw = rest[..prefix].contains(&b'r') && prefix <= 2 && rest.get(prefix + hashes) == Some(&b'"');
    let body = prefix + hashes + 1;
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let is_end = |window: &[u8]| window == end;
    let length =
        || rest[body..].windows(end.len()).position(is_end).map_or(rest.len(), |n| body + n + end.len());
    is_raw.then(length)
}

/// The length of a string or character with its quotes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a character or a lifetime.
fn quote(rest: &[u8]) -> usize {
    let name = word(&rest[1..]);
    let is_character = name == 0 || rest.get(1 + name) == Some(&b'\'');
    if is_character { quoted(rest, b'\'') } else { 1 + name }
}
