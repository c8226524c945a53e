//! Small files that are rewritten whole for each change. The file of an older version stays until the new one is on
//! the disk, so a process or a machine that dies leaves one of the two.
//!
//! A file that holds a control message begins with:
//!
//! ```text
//! 0   8  what it is, and its version
//! 8   4  crc32c of what follows byte 16
//! 12  4  0
//! ```

use gannet_core::own_files;
use std::io;
use std::path::Path;

const HEAD: usize = 16;

/// The last byte of a magic number is the version of the format.
const MAGIC_OF_ALL_VERSIONS: usize = 7;

/// The bytes of a file, or `None` if there is no such file.
///
/// # Errors
/// The system reports an error, or it is no regular file.
pub fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    own_files::read(file)
}

/// Replaces a file so that it survives the process and the machine: syncs the new file before it renames it, and syncs
/// the new name before it returns. `bytes` begin with a magic number.
///
/// # Errors
/// The system reports an error, or a file of the user has the name. The old file may be there, or the new one.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    own_files::replace(file, beginning(bytes), bytes)
}

/// What all versions of a file with these bytes begin with.
pub fn beginning(bytes: &[u8]) -> &[u8] {
    bytes.get(..MAGIC_OF_ALL_VERSIONS).unwrap_or(bytes)
}

/// The bytes of a file with this payload.
pub fn encode(magic: [u8; 8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload in the bytes of a file. `kind` says what the file should be.
///
/// # Errors
/// They are no such file, one of another version, or a torn one: in words.
pub fn decode<'a>(magic: [u8; 8], bytes: &'a [u8], kind: &str) -> Result<&'a [u8], String> {
    let Some((head, payload)) = bytes.split_first_chunk::<HEAD>() else {
        return Err("it is too short".into());
    };
    if head[..8] != magic {
        return Err(match head[..7] == magic[..7] {
            true => "another version of gannet wrote it".into(),
            false => format!("it does not begin as {kind} does"),
        });
    }
    match head[8..12] == crc32c::crc32c(payload).to_le_bytes() && head[12..] == [0; 4] {
        true => Ok(payload),
        false => Err("its checksum is wrong".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MAGIC: [u8; 8] = *b"GNTTEST2";

    #[test]
    fn a_file_is_these_bytes() {
        let bytes = encode(MAGIC, b"123456789");
        assert_eq!(
            bytes, b"GNTTEST2\x83\x92\x06\xe3\0\0\0\x00123456789",
            "the check value of crc32c, little endian"
        );
        assert_eq!(decode(MAGIC, &bytes, "a test"), Ok(&b"123456789"[..]));
    }

    #[test]
    fn any_other_bytes_are_refused_by_name() {
        let bytes = encode(MAGIC, b"123456789");
        let refused = |bytes: &[u8]| decode(MAGIC, bytes, "a test").unwrap_err();
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            let why = refused(&torn);
            let wanted = match at {
                0..7 => "it does not begin as a test does",
                7 => "another version of gannet wrote it",
                _ => "its checksum is wrong",
            };
            assert_eq!(why, wanted, "byte {at}");
            let short = refused(&bytes[..at]);
            assert_eq!(
                short,
                if at < HEAD { "it is too short" } else { "its checksum is wrong" },
                "{at} bytes"
            );
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_missing_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("STATE");
        assert_eq!(read(&file).unwrap(), None);
        for text in ["a long first text", "a long"] {
            replace(&file, text.as_bytes()).unwrap();
            assert_eq!(read(&file).unwrap().as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file stays");
        assert!(replace(&folder.path().join("no/STATE"), b"x").is_err());
        assert!(read(folder.path()).is_err(), "a folder is no file");
    }
}
