//! The bytes of a file from the system. The stream counts them. Where another process writes the bytes (standard
//! input, a FIFO, a terminal), waits check the stop flag.

use crate::limits::{CHUNK_BYTES, STOP_LOOK_EVERY};
use crate::read::bytes::data_file::{is_url, read_object};
use crate::read::bytes::stop_flag::StopFlag;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read so far, and their total. The progress display shares them.
#[derive(Clone, Debug, Default)]
pub struct ReadPosition {
    pub(crate) read: Arc<AtomicU64>,
    pub(crate) total: Option<u64>,
}

impl ReadPosition {
    /// The bytes of all files read so far in this pass. Of packed files, the packed bytes.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The bytes of all files. `None` when one is standard input or a pipe.
    pub fn bytes_total(&self) -> Option<u64> {
        self.total
    }
}

/// Buffered bytes of a file. Counts the consumed bytes.
pub(crate) struct Stream {
    /// The first bytes, until they are consumed.
    head: Vec<u8>,
    buffered: BufReader<Counted>,
    consumed: u64,
}

impl Stream {
    /// Opens `path`. `-` is standard input.
    pub fn open(path: &str, read: Arc<AtomicU64>, stop: &StopFlag) -> io::Result<Stream> {
        if path == "-" {
            let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            return Ok(Stream::over(Box::new(InterruptibleRead { file, stop: stop.clone() }), read));
        }
        if is_url(path) {
            return Ok(Stream::over(read_object(path, stop)?, read));
        }
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        if kind.is_file() {
            return Ok(Stream::over(Box::new(File::open(path)?), read));
        }
        let mut options = OpenOptions::new();
        if kind.is_fifo() {
            // Opening a FIFO would otherwise wait for a writer.
            options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        }
        let file = options.read(true).open(path)?;
        Ok(Stream::over(Box::new(InterruptibleRead { file, stop: stop.clone() }), read))
    }

    /// A stream of any bytes, which `read` counts.
    pub fn over(inner: Box<dyn Read + Send>, read: Arc<AtomicU64>) -> Stream {
        let buffered = BufReader::with_capacity(CHUNK_BYTES, Counted { inner, read });
        Stream { head: Vec::new(), buffered, consumed: 0 }
    }

    /// The first bytes, without consuming them: so many that they are not `too_few`, or all. (A pipe may deliver them
    /// one by one.)
    pub fn head(&mut self, too_few: impl Fn(&[u8]) -> bool) -> io::Result<&[u8]> {
        while too_few(&self.head) {
            match self.buffered.fill_buf() {
                Ok([]) => break,
                Ok(bytes) => {
                    self.head.push(bytes[0]);
                    self.buffered.consume(1);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(&self.head)
    }

    /// The number of bytes consumed.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.head.is_empty() {
            let n = self.head.len().min(out.len());
            out[..n].copy_from_slice(&self.head[..n]);
            self.consume(n);
            return Ok(n);
        }
        let n = self.buffered.read(out)?;
        self.consumed += n as u64;
        Ok(n)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.head.is_empty() { self.buffered.fill_buf() } else { Ok(&self.head) }
    }

    fn consume(&mut self, n: usize) {
        self.consumed += n as u64;
        if self.head.is_empty() {
            self.buffered.consume(n);
        } else {
            self.head.drain(..n);
        }
    }
}

struct Counted {
    inner: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Bytes from another process. A wait for them ends when the flag is set.
struct InterruptibleRead {
    file: File,
    stop: StopFlag,
}

impl Read for InterruptibleRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let every = Timespec { tv_sec: 0, tv_nsec: STOP_LOOK_EVERY.subsec_nanos().into() };
        loop {
            if self.stop.is_set() {
                return Err(io::Error::other("stop requested"));
            }
            // A FIFO without a writer so far is neither ready nor hung up.
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&every)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(out) {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    fn fifo(folder: &tempfile::TempDir) -> String {
        let path = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_fifo_is_waited_for_from_before_its_writer_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let mut stream = Stream::open(&path, Arc::default(), &StopFlag::default()).unwrap();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(STOP_LOOK_EVERY * 2);
            let mut fifo = OpenOptions::new().write(true).open(path).unwrap();
            for part in ["one\n", "two"] {
                fifo.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(STOP_LOOK_EVERY * 2);
            }
        });
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        writer.join().unwrap();
        assert_eq!((text.as_str(), stream.consumed()), ("one\ntwo", 7));
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let flag = Arc::new(AtomicBool::new(false));
        let mut stream = Stream::open(&path, Arc::default(), &StopFlag::from(flag.clone())).unwrap();
        let waits = std::thread::spawn(move || stream.read(&mut [0; 8]).unwrap_err().to_string());
        std::thread::sleep(STOP_LOOK_EVERY * 2);
        assert!(!waits.is_finished());
        flag.store(true, Ordering::Relaxed);
        assert_eq!(waits.join().unwrap(), "stop requested");
    }
}
