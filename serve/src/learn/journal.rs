//! The journal of a folder that learns: every example that was taken, with its id. A restart goes on from it.
//!
//! The journal is a list of parts, `part-NUMBER`, by the number of the first example in them. Each begins with
//! [`BEGINNING`] and a head. A record is written with one call and then synced, and only then is it true. The last part
//! may end in a torn record, which is cut away at the start. In another part that is damage.

use super::record::{Example, Read, Record, Released};
use crate::error::ServeError;
use gannet::storage::own_files;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the names of parts begin with.
const PART: &str = "part-";

/// The bytes with which a part begins.
pub const BEGINNING: &[u8] = b"GNTLEARN1\n";

/// A journal that records are added to.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    format: String,
    /// The numbers of the first examples of all parts.
    parts: Vec<u64>,
    last: Part,
    /// A part with so many bytes gets no more examples.
    part_bytes: u64,
    /// Why no more can be written.
    broken: Option<String>,
}

/// A part that records are added to.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    file: File,
    /// Where the next record begins.
    end: u64,
}

/// What a journal says when it is opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of the first example.
    pub first: u64,
    /// All examples in the journal, in order.
    pub examples: Vec<Example>,
    /// How far the folder is.
    pub released: Released,
    /// The number of the first example in the last file that was released.
    pub released_from: u64,
    /// Bytes of a torn record that were cut away.
    pub torn: u64,
}

fn path_of(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{PART}{first:020}"))
}

/// An error about a path, in words.
pub fn in_words(path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "make room on its disk"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "allow this process to write there",
        _ => "see whether its disk works",
    };
    format!("{}: {error}; {remedy}", path.display())
}

/// A failure at the start, in words.
pub fn failed(path: &Path, error: &io::Error) -> ServeError {
    ServeError::Settings(format!("--learn: {}", in_words(path, error)))
}

fn damaged(path: &Path, what: &str) -> ServeError {
    ServeError::Settings(format!(
        "--learn: {}: {what}; restore the folder from a copy, or begin with a new folder",
        path.display()
    ))
}

/// Makes renames and new files of a folder last.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The numbers of the parts in a folder, in order.
fn listed(folder: &Path) -> io::Result<Vec<u64>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        parts.extend(name.to_str().and_then(|name| name.strip_prefix(PART)?.parse::<u64>().ok()));
    }
    parts.sort_unstable();
    Ok(parts)
}

impl Part {
    /// Begins a part with its head.
    fn begin(
        folder: &Path,
        format: &str,
        next: u64,
        released: Released,
    ) -> Result<Part, (PathBuf, io::Error)> {
        let path = path_of(folder, next);
        let record = Record::Head { format: format.to_owned(), next, released };
        let head = [BEGINNING, &record.bytes()].concat();
        let made = || {
            let file = own_files::make_own(&path, BEGINNING)?;
            file.write_all_at(&head, 0)?;
            file.sync_all()?;
            sync_folder(folder)?;
            Ok(file)
        };
        match made() {
            Ok(file) => Ok(Part { path, file, end: head.len() as u64 }),
            Err(error) => Err((path, error)),
        }
    }

    /// Opens a part whose records end at `end`. What is behind it is cut away.
    fn cut(folder: &Path, first: u64, end: u64) -> Result<Part, ServeError> {
        let path = path_of(folder, first);
        let open = || {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(end)?;
            file.sync_all()?;
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Part { path, file, end }),
            Err(error) => Err(failed(&path, &error)),
        }
    }
}

impl Recovered {
    /// Takes the records of a part. Returns where they end; 0: it has no head.
    fn take(&mut self, bytes: &[u8], (is_first, first): (bool, u64), format: &str) -> Result<usize, String> {
        let begin = BEGINNING.len();
        if BEGINNING.starts_with(bytes) {
            return Ok(0);
        }
        if !bytes.starts_with(BEGINNING) {
            return Err("is no part of a journal".to_owned());
        }
        let mut at = begin;
        loop {
            let (record, next) = match Record::read(bytes, at) {
                Read::End | Read::Torn => return Ok(if at > begin { at } else { 0 }),
                Read::Damaged => return Err(format!("is damaged at its byte {at}")),
                Read::Whole(record, next) => (record, next),
            };
            let expected = self.first + self.examples.len() as u64;
            match record {
                Record::Head { format: own, .. } if own != format => {
                    return Err(format!("has lines of {own}, and the model reads {format}"));
                }
                Record::Head { next, released, .. } if at == begin && next == first && is_first => {
                    (self.first, self.released, self.released_from) = (next, released, released.upto);
                }
                Record::Head { next, .. } if at == begin && next == first && next == expected => {}
                Record::Examples { first, mut examples } if at > begin && first == expected => {
                    self.examples.append(&mut examples);
                }
                Record::Released(released) if at > begin => {
                    self.released_from = self.released.upto;
                    self.released = released;
                }
                _ => return Err(format!("has a record at its byte {at} that does not follow those before")),
            }
            at = next;
        }
    }
}

impl Journal {
    /// Opens the journal of a folder, or begins one. `format` is that of its lines.
    ///
    /// # Errors
    /// A part is damaged or missing, of another format, or cannot be read and written.
    pub fn open(folder: &Path, format: &str, part_bytes: u64) -> Result<(Journal, Recovered), ServeError> {
        let mut parts = listed(folder).map_err(|error| failed(folder, &error))?;
        let (mut recovered, mut ends) = (Recovered::default(), Vec::new());
        for (at, &first) in parts.iter().enumerate() {
            let path = path_of(folder, first);
            let bytes = fs::read(&path).map_err(|error| failed(&path, &error))?;
            let end =
                recovered.take(&bytes, (at == 0, first), format).map_err(|what| damaged(&path, &what))?;
            recovered.torn = (bytes.len() - end) as u64;
            if recovered.torn > 0 && at + 1 < parts.len() {
                return Err(damaged(&path, &format!("is damaged at its byte {end}")));
            }
            ends.push(end as u64);
        }
        // A last part without a head was begun, and nothing was added to it.
        if ends.last() == Some(&0) {
            parts.pop();
            ends.pop();
        }
        let last = match (parts.last(), ends.last()) {
            (Some(&first), Some(&end)) => Part::cut(folder, first, end)?,
            _ => {
                parts.push(0);
                Part::begin(folder, format, 0, Released::default())
                    .map_err(|(path, error)| failed(&path, &error))?
            }
        };
        let (folder, format) = (folder.to_owned(), format.to_owned());
        Ok((Journal { folder, format, parts, last, part_bytes, broken: None }, recovered))
    }

    /// Adds a record. When this returns, it is on the disk.
    ///
    /// # Errors
    /// It cannot be written: then nothing of it is in the journal. The error is in words.
    pub fn add(&mut self, record: &Record) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        let (bytes, Part { path, file, end }) = (record.bytes(), &mut self.last);
        let written = file.write_all_at(&bytes, *end).and_then(|()| file.sync_data());
        let Err(error) = written else {
            *end += bytes.len() as u64;
            return Ok(());
        };
        if let Err(error) = file.set_len(*end).and_then(|()| file.sync_all()) {
            self.broken = Some(format!("{}, and start this process again", in_words(path, &error)));
        }
        Err(in_words(path, &error))
    }

    /// Begins another part if the last one is large. Parts whose examples are all before `needed` go.
    ///
    /// # Errors
    /// In words. The journal goes on in its last part.
    pub fn tidy(&mut self, next: u64, released: Released, needed: u64) -> Result<(), String> {
        if self.last.end >= self.part_bytes && self.parts.last().is_some_and(|&first| first < next) {
            let begun = Part::begin(&self.folder, &self.format, next, released);
            self.last = begun.map_err(|(path, error)| {
                let why = in_words(&path, &error);
                // A part that stays would begin in the middle of this one.
                let removed = own_files::remove_part(&path, &[BEGINNING]);
                if removed.and_then(|_| sync_folder(&self.folder)).is_err() {
                    let path = path.display();
                    self.broken = Some(format!("{path}: remove this file, and start this process again"));
                }
                why
            })?;
            self.parts.push(next);
        }
        while self.parts.get(1).is_some_and(|&second| second <= needed) {
            let path = path_of(&self.folder, self.parts[0]);
            own_files::remove_own(&path, &[BEGINNING]).map_err(|error| in_words(&path, &error))?;
            self.parts.remove(0);
        }
        Ok(())
    }
}
