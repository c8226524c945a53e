//! READs of the peer's memory, over a queue pair of their own, separate from the one for messages.

use super::adapter::Verbs;
use super::stream::SharedStream;
use crate::limits::VERBS_READ_SPIN;
use crate::remote::{ReadRequest, Registrar, RemoteReader};
use crate::verbs::resources::cm::QueuePair;
use crate::verbs::resources::datapath::Local;
use crate::verbs::resources::objects::{FailedWork, MemoryRegistration, WorkKind};
use memmap2::{Advice, MmapMut};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::io;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// The smallest memory for READs to land in.
const LANDING_MIN: usize = 64 << 10;

/// The READs of one session.
pub(crate) struct VerbsReader {
    /// The queue pair for READs. It is dropped before the memory, because the device may write there while the
    /// pair exists. `None` after a failure.
    pair: Option<QueuePair>,
    key: Option<MemoryRegistration>,
    landing: Option<MmapMut>,
    verbs: Verbs,
    session: Weak<SharedStream>,
    /// The id of the next signalled READ.
    next: u64,
}

impl VerbsReader {
    pub(crate) fn new(pair: QueuePair, verbs: Verbs, session: Weak<SharedStream>) -> VerbsReader {
        VerbsReader { pair: Some(pair), key: None, landing: None, verbs, session, next: 0 }
    }

    fn read_all(&mut self, wants: &[ReadRequest], timeout: Duration) -> io::Result<()> {
        let (Some(pair), Some(key), Some(landing)) = (&self.pair, &self.key, &self.landing) else {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "an earlier READ failed, so this session does no more READs",
            ));
        };
        let memory = Local { addr: landing.as_ptr() as usize, key: key.lkey() };
        let give_up = Instant::now() + timeout;
        // Two batches in flight: the device works on one while this side makes the next.
        let batch = (self.verbs.read_depth() / 2).max(1);
        let mut rest = wants.chunks(batch);
        let mut in_flight: VecDeque<u64> = VecDeque::new();
        let mut quiet_since = Instant::now();
        loop {
            while in_flight.len() < 2
                && let Some(batch) = rest.next()
            {
                pair.post_reads(batch, memory, self.next)?;
                in_flight.push_back(self.next);
                self.next += 1;
            }
            if in_flight.is_empty() {
                return Ok(());
            }
            if reap(pair, &mut in_flight)? {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() >= VERBS_READ_SPIN {
                pair.completions().arm()?;
                if !reap(pair, &mut in_flight)? {
                    sleep(pair, give_up)?;
                }
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Removes the completed batches from the front.
fn reap(pair: &QueuePair, in_flight: &mut VecDeque<u64>) -> io::Result<bool> {
    let reaped = pair.completions().reap(|done| match done.what {
        WorkKind::Sent if in_flight.front() == Some(&done.id) => {
            in_flight.pop_front();
            Ok(())
        }
        WorkKind::Sent => Err(super::window::ProtocolViolation::Completion(done.id).into()),
        WorkKind::Received { .. } => Err(FailedWork::Opcode(0)),
    });
    reaped.map_err(|failed| {
        io::Error::new(io::ErrorKind::ConnectionAborted, format!("a READ failed: {failed}"))
    })
}

/// Sleeps until something has completed. If time is up first, that is an error.
fn sleep(pair: &QueuePair, give_up: Instant) -> io::Result<()> {
    let left = give_up.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "READs did not complete in time"));
    }
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    let fd = pair.completions().fd();
    match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => pair.completions().quiet(),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

impl RemoteReader for VerbsReader {
    fn landing(&mut self, bytes: usize) -> io::Result<()> {
        if self.landing.as_ref().is_some_and(|landing| landing.len() >= bytes) {
            return Ok(());
        }
        (self.key, self.landing) = (None, None);
        let bytes = bytes.next_power_of_two().max(LANDING_MIN);
        let landing = MmapMut::map_anon(bytes)?;
        landing.advise(Advice::DontFork)?;
        self.key = Some(self.verbs.register_landing(landing.as_ptr() as usize, bytes)?);
        self.landing = Some(landing);
        Ok(())
    }

    fn by_device(&self) -> bool {
        self.verbs.answering().by_device
    }

    fn landed(&self) -> &[u8] {
        self.landing.as_deref().unwrap_or_default()
    }

    fn read(&mut self, wants: &[ReadRequest], timeout: Duration) -> io::Result<()> {
        let size = self.landed().len() as u64;
        for want in wants {
            let end = u64::from(want.at) + u64::from(want.bytes);
            assert!(end <= size, "a READ that ends at {end} of a landing of {size} bytes");
        }
        let done = self.read_all(wants, timeout);
        if let Err(error) = &done {
            // No READ may land any more: dropping the queue pair ends the READs in flight.
            self.pair = None;
            if let Some(session) = self.session.upgrade() {
                session.lock().fail(error);
            }
        }
        done
    }
}
