//! The records of the journal, and their bytes.
//!
//! A record is its length (u32), the CRC-32C of what follows the CRC (u32), and a kind (u8) with its fields. Numbers
//! are little-endian; a text is its length (u32) and its bytes.

use std::str;

/// An example with the id that its client gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The id.
    pub id: String,
    /// The line that is trained, without its line break.
    pub line: String,
}

/// How far the folder is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The number of the last file that the training may read; 0: there is none.
    pub file: u64,
    /// The number of the first example that is in no such file.
    pub upto: u64,
    /// The tasks that the job had found before that file.
    pub base: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The beginning of a part of the journal.
    Head {
        /// The format of the lines.
        format: String,
        /// The number of the next example.
        next: u64,
        /// How far the folder was.
        released: Released,
    },
    /// Examples that were taken together. They have numbers without gaps.
    Examples {
        /// The number of the first one.
        first: u64,
        /// All of them.
        examples: Vec<Example>,
    },
    /// Another file may be read.
    Released(Released),
}

const HEAD: u8 = 1;
const EXAMPLES: u8 = 2;
const RELEASED: u8 = 3;

/// Bytes of a length and of a CRC.
pub const FRAME_BYTES: usize = 8;

/// What is at a place of the journal.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// A record, and where the next one begins.
    Whole(Record, usize),
    /// The bytes end.
    End,
    /// A record that was not written to its end.
    Torn,
    /// Bytes that are no record, with others behind them.
    Damaged,
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn put_released(bytes: &mut Vec<u8>, of: &Released) {
    [of.file, of.upto, of.base].iter().for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
}

impl Record {
    /// The bytes of the record.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; FRAME_BYTES];
        match self {
            Record::Head { format, next, released } => {
                bytes.push(HEAD);
                put_text(&mut bytes, format);
                bytes.extend_from_slice(&next.to_le_bytes());
                put_released(&mut bytes, released);
            }
            Record::Examples { first, examples } => {
                bytes.push(EXAMPLES);
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&(examples.len() as u32).to_le_bytes());
                for Example { id, line } in examples {
                    put_text(&mut bytes, id);
                    put_text(&mut bytes, line);
                }
            }
            Record::Released(released) => {
                bytes.push(RELEASED);
                put_released(&mut bytes, released);
            }
        }
        let length = (bytes.len() - FRAME_BYTES) as u32;
        let crc = crc32c::crc32c(&bytes[FRAME_BYTES..]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..FRAME_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the record at `at`.
    pub fn read(all: &[u8], at: usize) -> Read {
        let rest = &all[at..];
        if rest.is_empty() {
            return Read::End;
        }
        let Some((frame, rest)) = rest.split_at_checked(FRAME_BYTES) else { return Read::Torn };
        let number = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let (length, crc) = (number(0) as usize, number(4));
        let Some(content) = rest.get(..length) else { return Read::Torn };
        let record = if crc32c::crc32c(content) == crc { Fields(content).record() } else { None };
        match record {
            Some(record) => Read::Whole(record, at + FRAME_BYTES + length),
            // A disk may have the length of a file, and zeros in place of the bytes that were written last.
            None if rest.len() == length || all[at..].iter().all(|byte| *byte == 0) => Read::Torn,
            None => Read::Damaged,
        }
    }
}

/// The fields of a record that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.take().map(u32::from_le_bytes)? as usize;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        str::from_utf8(taken).ok().map(str::to_owned)
    }

    fn released(&mut self) -> Option<Released> {
        Some(Released { file: self.number()?, upto: self.number()?, base: self.number()? })
    }

    fn record(mut self) -> Option<Record> {
        let [kind] = self.take()?;
        let record = match kind {
            HEAD => Record::Head { format: self.text()?, next: self.number()?, released: self.released()? },
            EXAMPLES => {
                let first = self.number()?;
                let count = self.take().map(u32::from_le_bytes)?;
                let mut examples = Vec::new();
                for _ in 0..count {
                    examples.push(Example { id: self.text()?, line: self.text()? });
                }
                Record::Examples { first, examples }
            }
            RELEASED => Record::Released(self.released()?),
            _ => return None,
        };
        self.0.is_empty().then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(id: &str, line: &str) -> Example {
        Example { id: id.into(), line: line.into() }
    }

    /// The bytes that journals on disks have.
    #[test]
    fn records_have_these_bytes() {
        let record = Record::Examples { first: 7, examples: vec![example("a", "1 3:1")] };
        let content =
            [&[2, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0][..], b"a", &[5, 0, 0, 0], b"1 3:1"]
                .concat();
        let bytes = record.bytes();
        assert_eq!(bytes[..4], [27, 0, 0, 0]);
        assert_eq!(bytes[4..8], crc32c::crc32c(&content).to_le_bytes());
        assert_eq!(bytes[8..], content);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let released = Released { file: 3, upto: 99, base: 2 };
        let records = [
            Record::Head { format: "json".into(), next: 5, released },
            Record::Examples { first: 5, examples: vec![example("ä", "{}"), example("b", "")] },
            Record::Released(released),
        ];
        let bytes: Vec<u8> = records.iter().flat_map(Record::bytes).collect();
        let mut at = 0;
        for record in &records {
            let Read::Whole(read, next) = Record::read(&bytes, at) else { panic!("at {at}") };
            assert_eq!(read, *record);
            at = next;
        }
        assert_eq!(Record::read(&bytes, at), Read::End);
    }

    /// Only the last bytes may be missing or wrong.
    #[test]
    fn what_is_torn_is_told_from_what_is_damaged() {
        let record = Record::Examples { first: 0, examples: vec![example("a", "x")] };
        let mut bytes = [record.bytes(), record.bytes()].concat();
        let half = bytes.len() / 2;
        for end in half + 1..bytes.len() {
            assert_eq!(Record::read(&bytes[..end], half), Read::Torn, "{end}");
        }
        assert_eq!(Record::read(&[0; 100], 0), Read::Torn);
        bytes[half + FRAME_BYTES] ^= 1;
        assert_eq!(Record::read(&bytes, half), Read::Torn);
        bytes[FRAME_BYTES] ^= 1;
        assert_eq!(Record::read(&bytes, 0), Read::Damaged);
    }
}
