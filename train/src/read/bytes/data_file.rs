//! A file of the data: on a disk, or an object of a bucket or of a web server (feature `cloud`).

#[cfg(feature = "cloud")]
use crate::limits::{OBJECT_RANGE_BYTES, OBJECT_RANGES_AHEAD};
use crate::read::bytes::stop_flag::StopFlag;
#[cfg(feature = "cloud")]
use gannet_buckets::{ObjectReader, ReadAhead, WholeObject, object_facts};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Whether the name of a file is the URL of an object.
pub(crate) fn is_url(name: &str) -> bool {
    ["s3://", "gs://", "az://", "http://", "https://"].iter().any(|scheme| name.starts_with(scheme))
}

/// A file's name for messages.
pub(crate) fn shown_name(file: &str) -> &str {
    if file == "-" { "(standard input)" } else { file }
}

/// What a file is before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    /// The length, if it is known.
    pub bytes: Option<u64>,
    /// Whether it can be read again.
    pub again: bool,
    /// Whether it can be read from any place on.
    pub anywhere: bool,
    pub folder: bool,
    /// What changes when the file does.
    pub version: FileVersion,
}

/// A version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileVersion {
    /// The time of the last change, in seconds and nanoseconds.
    Written(i64, i64),
    /// What the server of an object says.
    #[cfg(feature = "cloud")]
    Object(String),
}

impl FileFacts {
    /// What a file is. An object is what it was when the training began.
    ///
    /// # Errors
    /// It is not there, or cannot be looked at.
    pub fn of(path: &str) -> io::Result<FileFacts> {
        if is_url(path) { object(path, false) } else { Ok(FileFacts::on_disk(&std::fs::metadata(path)?)) }
    }

    /// What a file is now.
    ///
    /// # Errors
    /// As for [`of`](Self::of).
    pub fn now(path: &str) -> io::Result<FileFacts> {
        if is_url(path) { object(path, true) } else { FileFacts::of(path) }
    }

    fn on_disk(meta: &Metadata) -> FileFacts {
        FileFacts {
            bytes: meta.is_file().then_some(meta.len()),
            again: meta.is_file(),
            anywhere: meta.is_file(),
            folder: meta.is_dir(),
            version: FileVersion::Written(meta.mtime(), meta.mtime_nsec()),
        }
    }
}

#[cfg(feature = "cloud")]
fn object(url: &str, now: bool) -> io::Result<FileFacts> {
    let facts = if now { gannet_buckets::look_at_object(url)? } else { object_facts(url)? };
    let version = FileVersion::Object(facts.version);
    Ok(FileFacts { bytes: facts.bytes, again: true, anywhere: facts.ranges, folder: false, version })
}

#[cfg(not(feature = "cloud"))]
fn object(_url: &str, _now: bool) -> io::Result<FileFacts> {
    Err(no_objects())
}

/// Why a build without object stores refuses a URL.
#[cfg(not(feature = "cloud"))]
pub(crate) fn no_objects() -> io::Error {
    let why = "this gannet was built without object stores; `cargo install --locked --path cli` builds one that has \
               them, or download the data and name the files";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// An open file that can be read from any place on.
pub(crate) enum DataFile {
    OnDisk(File),
    #[cfg(feature = "cloud")]
    Object(Box<ObjectReader>),
}

impl DataFile {
    /// Opens a file. `stop` ends waits for the bytes of an object.
    ///
    /// # Errors
    /// It is not there, or cannot be read from any place on.
    pub fn open(path: &str, stop: &StopFlag) -> io::Result<DataFile> {
        DataFile::part(path, 0..u64::MAX, stop)
    }

    /// Opens a file to read these bytes of it.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn part(path: &str, part: Range<u64>, stop: &StopFlag) -> io::Result<DataFile> {
        if is_url(path) {
            return open_object(path, part, stop);
        }
        let mut file = File::open(path)?;
        if part.start > 0 {
            file.seek(SeekFrom::Start(part.start))?;
        }
        Ok(DataFile::OnDisk(file))
    }
}

#[cfg(feature = "cloud")]
fn open_object(url: &str, part: Range<u64>, stop: &StopFlag) -> io::Result<DataFile> {
    let ahead = ReadAhead { bytes: OBJECT_RANGE_BYTES, at_once: OBJECT_RANGES_AHEAD };
    Ok(DataFile::Object(Box::new(ObjectReader::open(url, part, ahead, stop.shared())?)))
}

#[cfg(not(feature = "cloud"))]
fn open_object(_url: &str, _part: Range<u64>, _stop: &StopFlag) -> io::Result<DataFile> {
    Err(no_objects())
}

/// The bytes of an object from its beginning, also where its server sends no parts.
///
/// # Errors
/// It is not there.
#[cfg(feature = "cloud")]
pub(crate) fn read_object(url: &str, stop: &StopFlag) -> io::Result<Box<dyn Read + Send>> {
    if FileFacts::of(url)?.anywhere {
        return Ok(Box::new(DataFile::open(url, stop)?));
    }
    Ok(Box::new(WholeObject::open(url, stop.shared())?))
}

/// As above.
#[cfg(not(feature = "cloud"))]
pub(crate) fn read_object(_url: &str, _stop: &StopFlag) -> io::Result<Box<dyn Read + Send>> {
    Err(no_objects())
}

/// Appends the first bytes of a file, at most so many. Those of an object are remembered.
///
/// # Errors
/// It is not there.
#[cfg(feature = "parquet")]
pub(crate) fn first_bytes(path: &str, most: u64, out: &mut Vec<u8>) -> io::Result<()> {
    #[cfg(feature = "cloud")]
    if is_url(path) {
        out.extend_from_slice(&gannet_buckets::object_head(path, most)?);
        return Ok(());
    }
    DataFile::open(path, &StopFlag::default())?.take(most).read_to_end(out).map(drop)
}

impl Read for DataFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            DataFile::OnDisk(file) => file.read(out),
            #[cfg(feature = "cloud")]
            DataFile::Object(object) => object.read(out),
        }
    }
}

impl Seek for DataFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            DataFile::OnDisk(file) => file.seek(to),
            #[cfg(feature = "cloud")]
            DataFile::Object(object) => object.seek(to),
        }
    }
}
