//! The token that the servers and workers of a job share, and the proofs that each side gives of having it.
//!
//! The token itself never travels. Each side sends a nonce that it has just drawn. Then the worker, and after it the
//! server, sends the HMAC-SHA256 under the token of a label, its side and both nonces. A recorded greeting is useless,
//! because the other side's nonce is new each time. A proof names its side, so that it cannot be sent back.

use crate::limits::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};
use crate::private_file::{PrivateFileError, read_private};
use crate::random::DRAWN_BYTES;
use ring::hmac;
use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes of a nonce and of a proof.
pub const NONCE_BYTES: usize = DRAWN_BYTES;

/// The random number that one side drew for this greeting.
pub type Nonce = [u8; NONCE_BYTES];

/// An HMAC-SHA256.
pub type Proof = [u8; NONCE_BYTES];

/// The side that proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofSide {
    Worker,
    Server,
}

/// Both sides' nonces: a proof holds for one greeting only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonces {
    pub worker: Nonce,
    pub server: Nonce,
}

/// Why a token cannot be used. No message contains a byte of it.
///
/// ```
/// use gannet_wire::{Token, TokenError};
///
/// assert!(matches!(Token::new(b"short"), Err(TokenError::Length { bytes: 5, .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read, or others may use it.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// More than one line.
    #[error("--token-file {}: it has more than one line; a token is one", path.display())]
    Lines {
        /// The file.
        path: PathBuf,
    },
    /// Too short to be hard to guess, or too long.
    #[error(
        "{}: the token has {bytes} bytes; {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} are allowed (openssl rand -hex 32 makes a good one)",
        path.as_ref().map_or("the token".into(), |path| format!("--token-file {}", path.display()))
    )]
    Length {
        /// The file, if it came from one.
        path: Option<PathBuf>,
        /// Bytes, without white space at the ends.
        bytes: usize,
    },
}

/// A token, as the HMAC key. Its `Debug` output shows nothing of it.
///
/// ```
/// use gannet_server::{Server, ServerConfig};
/// use gannet_wire::Token;
/// use gannet_worker::{Worker, WorkerConfig};
/// use gannet_transport::multi::Transports;
///
/// let token = Token::new(b"32 bytes or more from /dev/urandom")?;
/// let net = Transports::new().with_token(true);
/// let config = ServerConfig { token: Some(token.clone()), ..ServerConfig::new("127.0.0.1:0") };
/// let server = Server::start(net.clone(), config)?;
/// let config = WorkerConfig::builder([server.addr()]).token(token).build();
/// let worker = Worker::connect(net, config)?;
/// assert!(worker.links() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Token(hmac::Key);

impl Token {
    /// The token with these bytes, as they are.
    ///
    /// # Errors
    /// Fewer than [`TOKEN_BYTES_MIN`] or more than [`TOKEN_BYTES_MAX`] bytes.
    pub fn new(secret: &[u8]) -> Result<Token, TokenError> {
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&secret.len()) {
            return Err(TokenError::Length { path: None, bytes: secret.len() });
        }
        Ok(Token(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The one line of this file, without the white space at its ends.
    ///
    /// # Errors
    /// The file cannot be read, users other than its owner may use it, or it holds no token.
    pub fn load(path: &Path) -> Result<Token, TokenError> {
        let text = read_private("--token-file", path, 2 * TOKEN_BYTES_MAX as u64)?;
        let line = text.trim_ascii();
        if line.contains(&b'\n') {
            return Err(TokenError::Lines { path: path.to_owned() });
        }
        let bytes = line.len();
        Token::new(line).map_err(|_| TokenError::Length { path: Some(path.to_owned()), bytes })
    }

    /// Whether these bytes are the token. Takes the same time for any wrong bytes of one length.
    pub fn is(&self, secret: &[u8]) -> bool {
        let given = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::verify(&self.0, b"gannet bearer 1", hmac::sign(&given, b"gannet bearer 1").as_ref()).is_ok()
    }

    /// This side's proof that it has the token.
    pub fn prove(&self, side: ProofSide, nonces: &Nonces) -> Proof {
        let tag = hmac::sign(&self.0, &transcript(side, nonces));
        let mut proof = [0; NONCE_BYTES];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// Whether this is that side's proof. Takes the same time for any wrong bytes.
    pub fn check(&self, side: ProofSide, nonces: &Nonces, proof: &Proof) -> bool {
        hmac::verify(&self.0, &transcript(side, nonces), proof).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The signed bytes: fields of fixed length, so that no two greetings have the same bytes.
fn transcript(side: ProofSide, nonces: &Nonces) -> [u8; 24 + 2 * NONCE_BYTES] {
    let mut bytes = [0; 24 + 2 * NONCE_BYTES];
    bytes[..24].copy_from_slice(match side {
        ProofSide::Worker => b"gannet greeting 1 worker",
        ProofSide::Server => b"gannet greeting 1 server",
    });
    bytes[24..24 + NONCE_BYTES].copy_from_slice(&nonces.worker);
    bytes[24 + NONCE_BYTES..].copy_from_slice(&nonces.server);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(folder: &Path, text: &[u8], mode: u32) -> PathBuf {
        let path = folder.join("token");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The proofs that Python's `hmac` computes: another implementation is the oracle.
    #[test]
    fn golden_proofs() {
        let token = Token::new(b"0123456789abcdef").unwrap();
        let nonces = Nonces { worker: [1; NONCE_BYTES], server: [2; NONCE_BYTES] };
        let hex = |proof: Proof| proof.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(token.prove(ProofSide::Worker, &nonces)),
            "e636f4829ab04d52a1b0f60735f02ed5c9598d638552fda0c5988434e62e649f"
        );
        assert_eq!(
            hex(token.prove(ProofSide::Server, &nonces)),
            "1aebab5bf024d531fc51b3786f8bc949c6b0bfb6d19bafb1c9aa6d4770789292"
        );
    }

    #[test]
    fn files_that_hold_no_token_are_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let good = Token::load(&file(folder.path(), b" 0123456789abcdef\r\n", 0o600)).unwrap();
        let nonces = Nonces { worker: [1; NONCE_BYTES], server: [2; NONCE_BYTES] };
        let same = Token::new(b"0123456789abcdef").unwrap();
        assert_eq!(good.prove(ProofSide::Worker, &nonces), same.prove(ProofSide::Worker, &nonces));
        assert_eq!(format!("{good:?}"), "Token");
        let refused = |text: &[u8], mode, says: &str| {
            let error = Token::load(&file(folder.path(), text, mode)).unwrap_err().to_string();
            assert!(error.contains("--token-file") && error.contains(says), "{error}");
            let secret = String::from_utf8_lossy(text);
            assert!(text.trim_ascii().is_empty() || !error.contains(secret.trim()), "{error}");
        };
        refused(b"0123456789abcdef", 0o640, "chmod 600");
        refused(b"0123456789abcdef", 0o604, "mode is 0604");
        refused(b"", 0o600, "0 bytes");
        refused(b" \n\n", 0o600, "0 bytes");
        refused(b"tooshort-123456", 0o600, "15 bytes; 16 to 4096");
        refused(&[b'a'; TOKEN_BYTES_MAX + 1], 0o600, "4097 bytes");
        refused(b"first-line-of-it\nsecond-line", 0o600, "more than one line");
        for (path, says) in
            [(folder.path().join("none"), "No such file"), (folder.path().into(), "no regular")]
        {
            let error = Token::load(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if made.is_ok_and(|status| status.success()) {
            assert!(matches!(Token::load(&pipe), Err(TokenError::File(PrivateFileError::NotAFile { .. }))));
        }
    }

    proptest! {
        #[test]
        fn a_proof_is_good_for_its_token_side_and_nonces_only(
            secret in proptest::collection::vec(any::<u8>(), 16..64),
            nonces: (Nonce, Nonce),
            at in 0usize..NONCE_BYTES,
            bit in 0u32..8,
        ) {
            let token = Token::new(&secret).unwrap();
            let nonces = Nonces { worker: nonces.0, server: nonces.1 };
            let proof = token.prove(ProofSide::Worker, &nonces);
            prop_assert!(token.check(ProofSide::Worker, &nonces, &proof));
            prop_assert!(!token.check(ProofSide::Server, &nonces, &proof));
            let flip = |mut bytes: [u8; NONCE_BYTES]| { bytes[at] ^= 1 << bit; bytes };
            prop_assert!(!token.check(ProofSide::Worker, &nonces, &flip(proof)));
            let late = Nonces { worker: flip(nonces.worker), ..nonces };
            prop_assert!(!token.check(ProofSide::Worker, &late, &proof));
            let late = Nonces { server: flip(nonces.server), ..nonces };
            prop_assert!(!token.check(ProofSide::Worker, &late, &proof));
            let mut other = secret.clone();
            other[at % secret.len()] ^= 1 << bit;
            prop_assert!(!Token::new(&other).unwrap().check(ProofSide::Worker, &nonces, &proof));
        }
    }
}
