//! The head of a frame: 64 bytes, little-endian, guarded by its own checksum (docs/wire.md has the table).

use crate::error::HeadError;
use crate::limits::{FRAME_BYTES_MAX, HEAD_BYTES, PAYLOAD_ALIGN};

/// "GN", read as a little-endian u16.
pub const MAGIC: u16 = u16::from_le_bytes(*b"GN");
/// The version of the frame format.
pub const VERSION: u8 = 2;
/// Flag: `payload_crc` holds the payload's crc32c.
pub const FLAG_PAYLOAD_CRC: u8 = 1;

/// A frame's head. Its senders and receivers agree on the meaning of `kind`, `aux`, `id` and `words`. The
/// transport fills the other fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// [`FLAG_PAYLOAD_CRC`] or nothing.
    pub flags: u8,
    /// The kind of frame.
    pub kind: u16,
    /// A small parameter of the kind.
    pub aux: u16,
    /// Payload bytes, a multiple of 8.
    pub len: u32,
    /// crc32c of the payload if the flag is set, else 0.
    pub payload_crc: u32,
    /// Ties a reply to its request.
    pub id: u64,
    /// Parameters of the kind.
    pub words: [u64; 4],
}

impl Head {
    /// A head with these opaque fields. The transport sets length and checksums when it sends the frame.
    pub fn new(kind: u16, aux: u16, id: u64, words: [u64; 4]) -> Head {
        Head { kind, aux, id, words, ..Head::default() }
    }

    /// Writes the bytes of the wire to `out`, which must have [`HEAD_BYTES`] bytes.
    pub fn encode(&self, out: &mut [u8]) {
        assert_eq!(out.len(), HEAD_BYTES);
        out[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        out[2] = VERSION;
        out[3] = self.flags;
        out[4..6].copy_from_slice(&self.kind.to_le_bytes());
        out[6..8].copy_from_slice(&self.aux.to_le_bytes());
        out[8..12].copy_from_slice(&self.len.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[16..24].copy_from_slice(&self.id.to_le_bytes());
        for (bytes, word) in out[24..56].chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        out[56..60].fill(0);
        let crc = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes and checks the head in these [`HEAD_BYTES`] bytes. A payload is read only after its head has passed.
    pub fn decode(bytes: &[u8]) -> Result<Head, HeadError> {
        assert_eq!(bytes.len(), HEAD_BYTES);
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Head::check_magic(bytes)?;
        if bytes[2] != VERSION {
            return Err(HeadError::Version { got: bytes[2], ours: VERSION });
        }
        let (got, want) = (u32_at(60), crc32c::crc32c(&bytes[..60]));
        if got != want {
            return Err(HeadError::HeadCrc { got, want });
        }
        let (flags, reserved, len) = (bytes[3], u32_at(56), u32_at(8));
        if flags & !FLAG_PAYLOAD_CRC != 0 || reserved != 0 {
            return Err(HeadError::Unknown { flags, reserved });
        }
        if len as usize > FRAME_BYTES_MAX {
            return Err(HeadError::TooLarge { len });
        }
        if !(len as usize).is_multiple_of(PAYLOAD_ALIGN) {
            return Err(HeadError::Unaligned { len });
        }
        Ok(Head {
            flags,
            kind: u16_at(4),
            aux: u16_at(6),
            len,
            payload_crc: u32_at(12),
            id: u64_at(16),
            words: [u64_at(24), u64_at(32), u64_at(40), u64_at(48)],
        })
    }

    /// Whether these may be the first bytes of a frame. The error has its own variants for a peer that speaks
    /// TLS when this side does not, and for the opposite case.
    pub(crate) fn check_magic(bytes: &[u8]) -> Result<(), HeadError> {
        match *bytes {
            [b'G', b'N', ..] | [b'G'] | [] => Ok(()),
            [0x15, 3, ..] => Err(HeadError::TlsServer),
            [0x16, 3, ..] => Err(HeadError::TlsClient),
            [0x15] | [0x16] => Ok(()),
            [a] => Err(HeadError::Magic { got: u16::from(a) }),
            [a, b, ..] => Err(HeadError::Magic { got: u16::from_le_bytes([a, b]) }),
        }
    }

    /// Checks a payload, passed as slices, against the head's checksum, if it has one.
    pub(crate) fn check_payload(&self, slices: &[&[u8]]) -> Result<(), HeadError> {
        if self.flags & FLAG_PAYLOAD_CRC == 0 {
            return Ok(());
        }
        let want = slices.iter().fold(0, |crc, slice| crc32c::crc32c_append(crc, slice));
        let got = self.payload_crc;
        if got == want { Ok(()) } else { Err(HeadError::PayloadCrc { got, want, len: self.len }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(head: &Head) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        head.encode(&mut bytes);
        bytes
    }

    /// crc32c of the bytes before it. It was computed separately, bit by bit.
    const GOLDEN_CRC: u32 = 0xC9EC_8AB8;

    #[test]
    fn golden_bytes() {
        let head = Head {
            flags: FLAG_PAYLOAD_CRC,
            kind: 0x0102,
            aux: 0x0304,
            len: 0x10,
            payload_crc: 0xA1A2_A3A4,
            id: 0x1112_1314_1516_1718,
            words: [1, 2, 3, u64::MAX],
        };
        let mut want = Vec::new();
        want.extend_from_slice(b"GN\x02\x01\x02\x01\x04\x03\x10\0\0\0\xA4\xA3\xA2\xA1");
        want.extend_from_slice(b"\x18\x17\x16\x15\x14\x13\x12\x11");
        want.extend_from_slice(b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        want.extend_from_slice(b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0");
        want.extend_from_slice(&GOLDEN_CRC.to_le_bytes());
        assert_eq!(encoded(&head)[..], want[..]);
        assert_eq!(Head::decode(&want), Ok(head));
    }

    proptest! {
        #[test]
        fn round_trip(kind: u16, aux: u16, id: u64, words: [u64; 4], eighths in 0u32..=(FRAME_BYTES_MAX / 8) as u32, crc: u32) {
            let head = Head { flags: FLAG_PAYLOAD_CRC, kind, aux, len: eighths * 8, payload_crc: crc, id, words };
            prop_assert_eq!(Head::decode(&encoded(&head)), Ok(head));
        }

        #[test]
        fn any_flipped_bit_is_refused(bit in 0usize..HEAD_BYTES * 8, id: u64) {
            let mut bytes = encoded(&Head::new(5, 1, id, [id; 4]));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Head::decode(&bytes).is_err());
        }
    }

    #[test]
    fn lengths_are_checked_behind_a_right_checksum() {
        let with_len = |len| Head::decode(&encoded(&Head { len, ..Head::default() }));
        assert_eq!(with_len(12), Err(HeadError::Unaligned { len: 12 }));
        let len = FRAME_BYTES_MAX as u32 + 8;
        assert_eq!(with_len(len), Err(HeadError::TooLarge { len }));
    }
}
