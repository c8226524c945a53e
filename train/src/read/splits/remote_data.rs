//! Splits whose bytes a client of the job sends, for a worker without files (in-graph). A thread fetches the text of
//! a split ahead of the parsing, a bounded number of bytes. Batches are made of it as of a file.

use crate::limits::{HEAD_BYTES, REMOTE_CHUNKS_MAX};
use crate::read::bytes::source::Source;
use crate::read::bytes::stream::{ReadPosition, Stream};
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::formats::format::LineReader;
use crate::read::growing::text_parts::PartedText;
use crate::read::reader::Reader;
use crate::read::splits::split::{Split, TextSource};
use gannet_transport::Net;
use gannet_wire::PlanFile;
use gannet_worker::{DataLink, TextChunk, WorkerError};
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The data that a data server sends over a link.
pub struct RemoteTexts<N: Net> {
    shared: Arc<SharedText<N>>,
    files: Vec<PlanFile>,
}

struct SharedText<N: Net> {
    link: Mutex<DataLink<N>>,
    trouble: Mutex<Option<String>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error as users see it. The text of the client's refusal says enough.
fn in_words(error: WorkerError) -> String {
    match error {
        WorkerError::Refused { text, .. } => text,
        error => error.to_string(),
    }
}

impl<N: Net> RemoteTexts<N> {
    /// The texts of these files, over this link.
    pub fn new(link: DataLink<N>, files: Vec<PlanFile>) -> RemoteTexts<N> {
        let shared = SharedText { link: Mutex::new(link), trouble: Mutex::default() };
        RemoteTexts { shared: Arc::new(shared), files }
    }
}

impl<N: Net> SharedText<N> {
    fn text(&self, index: u64, from: u64, expected: u64) -> Result<TextChunk, String> {
        lock(&self.link).text(index, from, expected).map_err(in_words)
    }
}

impl<N> TextSource for RemoteTexts<N>
where
    N: Net + Send + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    fn head(&self, file: usize, most: usize) -> Result<(Vec<u8>, u64), String> {
        let head = lock(&self.shared.link).head(file as u32, most).map_err(in_words)?;
        Ok((head.bytes, head.whole))
    }

    fn open(&self, split: &Split) -> Result<(u64, Box<dyn Read + Send>), String> {
        let index = split.index;
        let first = self.shared.text(index, 0, split.end - split.start)?;
        let (start, whole, mut at) = (first.start, first.whole, first.bytes.len() as u64);
        let (to, chunks) = sync_channel::<Result<Vec<u8>, String>>(REMOTE_CHUNKS_MAX);
        if at < whole {
            let shared = self.shared.clone();
            let fetch = move || {
                while at < whole {
                    let got = shared.text(index, at, whole - at).and_then(|text| match text.bytes.len() {
                        0 => Err("the client sends fewer bytes of a split than it announced".to_owned()),
                        _ => Ok(text.bytes),
                    });
                    let ends = got.is_err();
                    at += got.as_ref().map_or(0, Vec::len) as u64;
                    // The reader may have been dropped already.
                    if to.send(got).is_err() || ends {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("gannet-fetch".into());
            thread.spawn(fetch).map_err(|error| format!("no thread to fetch data with: {error}"))?;
        }
        let shared = self.shared.clone();
        let report = move |why: String| *lock(&shared.trouble) = Some(why);
        Ok((start, Box::new(TextChunks { chunks, now: first.bytes, at: 0, report: Box::new(report) })))
    }

    fn trouble(&self) -> Option<String> {
        lock(&self.shared.trouble).clone()
    }

    fn is_packed(&self, file: usize) -> bool {
        self.files[file].whole
    }
}

/// A text that arrives in chunks.
struct TextChunks {
    chunks: Receiver<Result<Vec<u8>, String>>,
    now: Vec<u8>,
    at: usize,
    /// Records why no more chunks arrive.
    report: Box<dyn Fn(String) + Send>,
}

impl Read for TextChunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.now.len() {
            match self.chunks.recv() {
                Ok(Ok(chunk)) => (self.now, self.at) = (chunk, 0),
                Ok(Err(why)) => {
                    (self.report)(why.clone());
                    return Err(io::Error::other(why));
                }
                // The thread has sent all chunks.
                Err(_) => return Ok(0),
            }
        }
        let n = out.len().min(self.now.len() - self.at);
        out[..n].copy_from_slice(&self.now[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// The format of a file and the position of its lines, from its first bytes. `None`: the file has no lines.
fn kind_of(data: &Data, file: usize, texts: &dyn TextSource) -> Result<Option<(LineReader, u64)>, ReadError> {
    let name = &data.files[file];
    for most in HEAD_BYTES {
        let (head, whole) = texts.head(file, most).map_err(ReadError::Splits)?;
        let cut = (head.len() as u64) < whole;
        // The first line must be complete. A packed head is unpacked as far as possible.
        if cut && !texts.is_packed(file) && !head.contains(&b'\n') {
            continue;
        }
        let stream = Stream::over(Box::new(io::Cursor::new(head)), Arc::default());
        let mut source = Source::new(name.clone(), stream, &data.stop)?;
        match LineReader::of(&mut source, data) {
            Ok(Some(kind)) => return Ok(Some((kind, source.taken()))),
            Ok(None) if !cut => return Ok(None),
            Err(error) if !cut || most == HEAD_BYTES[1] => return Err(error),
            _ => {}
        }
    }
    let most = HEAD_BYTES[1];
    Err(ReadError::Splits(format!(
        "{name}: its first line does not end in the first {most} bytes, the most that the client sends of it; leave --feed out, and let the workers \
         read the data (--tasks on)"
    )))
}

/// The format of the first file that has lines.
pub(crate) fn first(data: &Data, texts: &dyn TextSource) -> Result<LineReader, ReadError> {
    for file in 0..data.files.len() {
        if let Some((kind, _)) = kind_of(data, file, texts)? {
            return Ok(kind);
        }
    }
    Err(ReadError::Empty { file: data.name() })
}

/// The index of a file, its format, and the position of its lines.
type FileHead = (usize, Option<(LineReader, u64)>);

/// The format of the latest file: splits of a file come one after the other.
#[derive(Default)]
pub(crate) struct FileHeads {
    last: Option<Box<FileHead>>,
}

/// The format of these first lines.
pub(crate) fn of_sample(data: &Data, sample: Vec<u8>) -> Result<LineReader, ReadError> {
    let stream = Stream::over(Box::new(io::Cursor::new(sample)), Arc::default());
    let mut source = Source::new("the first message".into(), stream, &data.stop)?;
    LineReader::of(&mut source, data)?.ok_or_else(|| ReadError::Empty { file: "the first message".into() })
}

/// Reads a text, each part of which is a batch. `None`: it has no lines.
pub(crate) fn parted(
    data: &Data,
    position: &ReadPosition,
    PartedText { text, parts }: PartedText,
) -> Result<Option<Reader>, ReadError> {
    let stream = Stream::over(text, position.read.clone());
    let mut source = Source::new(data.files[0].clone(), stream, &data.stop)?;
    loop {
        if let Some(kind) = LineReader::of(&mut source, data)? {
            return Ok(Some(Reader::of_parts(data, position, (source, kind), parts)));
        }
        if !parts.begin(parts.open() + 1) {
            return Ok(None);
        }
        source.go_on();
    }
}

/// Reads a split like [`Reader::of_split`], with the text from the client.
pub(crate) fn reader(
    data: &Data,
    batch: usize,
    split: &Split,
    position: &ReadPosition,
    (texts, heads): (&dyn TextSource, &mut FileHeads),
) -> Result<Option<Reader>, ReadError> {
    let name = &data.files[split.file];
    let (start, mut text) = texts.open(split).map_err(ReadError::Splits)?;
    if start == 0 {
        let stream = Stream::over(text, position.read.clone());
        let mut source = Source::new(name.clone(), stream, &data.stop)?;
        return match LineReader::of(&mut source, data)? {
            Some(kind) => Reader::of_text(data, batch, split, position, source, kind).map(Some),
            None => Ok(None),
        };
    }
    if heads.last.as_ref().is_none_or(|last| last.0 != split.file) {
        heads.last = Some(Box::new((split.file, kind_of(data, split.file, texts)?)));
    }
    let Some((_, Some((kind, header)))) = heads.last.as_deref() else { return Ok(None) };
    // Lines of a header are not data.
    let before = header.saturating_sub(start);
    if before > 0 {
        let named = |source| ReadError::Io { file: name.clone(), source };
        io::copy(&mut (&mut text).take(before), &mut io::sink()).map_err(named)?;
    }
    let stream = Stream::over(text, position.read.clone());
    // Lines are counted from the start of the split, because this machine does not have the file.
    let mut source = Source::within(format!("{name} from byte {} on", start + before), stream, &data.stop);
    kind.go_on(&mut source)?;
    Reader::of_text(data, batch, split, position, source, kind.clone()).map(Some)
}
