//! One submission and completion queue, and its operations in flight. Each operation owns its descriptor and
//! its buffer until its last completion has been processed. So no action of a caller, such as dropping a
//! stream, can free them while the kernel uses them.
#![allow(unsafe_code)]

use super::buffers::{Buffers, Provided};
use super::refusal::Refusal;
use crate::limits::{
    URING_COMPLETIONS, URING_ENTRIES, URING_RECEIVE_BUFFERS, URING_RECEIVE_BYTES, URING_SEND_BUFFERS,
    URING_SEND_BYTES,
};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The group of provided buffers.
const GROUP: u16 = 0;
/// The id of operations whose completions are ignored: cancellations.
const NOBODY: u64 = u64::MAX;
/// How long a ring that is dropped waits for its operations.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Something with a descriptor that an operation keeps open.
pub(crate) trait OpenDescriptor: AsFd + Debug + Send + Sync {}
impl<T: AsFd + Debug + Send + Sync> OpenDescriptor for T {}

/// An operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpId(u64);

/// Which socket an operation's completions belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompletionTarget {
    pub(super) socket: u32,
    pub(super) generation: u32,
}

/// A buffer to send from. The owner of this value has the buffer. An operation owns it while it is in flight.
#[derive(Debug)]
pub(super) struct SendBuffer(u16);

/// Bytes that have arrived. The buffer goes back with [`Ring::give_back`].
#[derive(Debug)]
pub(super) struct ReceivedBytes {
    buffer: u16,
    len: usize,
}

impl ReceivedBytes {
    /// The number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// A completion.
pub(super) enum Completion {
    /// For [`Ring::receive`]: bytes, or the end of the stream (`None`). `last`: the operation has ended.
    Received { name: CompletionTarget, got: Result<Option<ReceivedBytes>, Errno>, last: bool },
    /// For [`Ring::send`]: the number of bytes sent.
    Sent { name: CompletionTarget, buffer: SendBuffer, sent: Result<usize, Errno> },
    /// For [`Ring::watch`]: poll flags.
    Seen { name: CompletionTarget, op: OpId, seen: Result<u32, Errno>, last: bool },
}

enum OpKind {
    Receive,
    Send(SendBuffer),
    Watch,
}

struct Op {
    what: OpKind,
    name: CompletionTarget,
    /// Keeps the descriptor open while the operation is in flight.
    _held: Arc<dyn OpenDescriptor>,
}

/// The queues of one thread.
pub(super) struct Ring {
    queue: IoUring,
    provided: Provided,
    outgoing: Buffers,
    outgoing_free: Vec<u16>,
    ops: Vec<Option<Op>>,
    ops_free: Vec<u32>,
    generation: u32,
    in_flight: usize,
    owner: ThreadId,
}

impl Ring {
    /// Makes a ring for the calling thread.
    pub(super) fn new() -> Result<Ring, Refusal> {
        let queue: IoUring = IoUring::builder()
            .dontfork()
            .setup_cqsize(URING_COMPLETIONS)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(URING_ENTRIES)
            .map_err(|error| Refusal::of_setup(&error))?;
        let params = queue.params();
        if !(params.is_feature_nodrop() && params.is_feature_ext_arg() && params.is_feature_fast_poll()) {
            return Err(Refusal::TooOld);
        }
        let mut provided = Provided::new(URING_RECEIVE_BUFFERS, URING_RECEIVE_BYTES);
        let (at, entries) = provided.ring();
        // SAFETY: the memory is page-aligned, zeroed, of that many entries, and freed only after it was unregistered.
        let registered = unsafe { queue.submitter().register_buf_ring_with_flags(at, entries, GROUP, 0) };
        if let Err(error) = registered {
            provided.retire();
            return Err(Refusal::of_buffers(&error));
        }
        provided.provide_all();
        Ok(Ring {
            queue,
            provided,
            outgoing: Buffers::new(URING_SEND_BUFFERS, URING_SEND_BYTES),
            outgoing_free: (0..URING_SEND_BUFFERS).rev().collect(),
            ops: Vec::new(),
            ops_free: Vec::new(),
            generation: 0,
            in_flight: 0,
            owner: std::thread::current().id(),
        })
    }

    /// Whether the calling thread made the ring. The kernel lets no other thread use it.
    pub(super) fn is_on_own_thread(&self) -> bool {
        std::thread::current().id() == self.owner
    }

    /// A buffer to send from; `None` if all are in use.
    pub(super) fn send_buffer(&mut self) -> Option<SendBuffer> {
        self.outgoing_free.pop().map(SendBuffer)
    }

    /// The content of a buffer that is not in flight.
    pub(super) fn outgoing(&self, buffer: &SendBuffer) -> &[u8] {
        self.outgoing.bytes(buffer.0)
    }

    /// The content of a buffer that is not in flight, to write.
    pub(super) fn outgoing_mut(&mut self, buffer: &SendBuffer) -> &mut [u8] {
        self.outgoing.bytes_mut(buffer.0)
    }

    /// Frees a buffer that is not in flight.
    pub(super) fn free(&mut self, buffer: SendBuffer) {
        self.outgoing_free.push(buffer.0);
    }

    /// The content of these received bytes.
    pub(super) fn received(&self, received: &ReceivedBytes) -> &[u8] {
        &self.provided.bytes(received.buffer)[..received.len]
    }

    /// Lets the kernel receive into that buffer again.
    pub(super) fn give_back(&mut self, received: ReceivedBytes) {
        self.provided.provide(received.buffer);
    }

    /// Receives from a socket until it is cancelled, one provided buffer at a time. `None`: the queue is full.
    pub(super) fn receive(
        &mut self,
        socket: &Arc<dyn OpenDescriptor>,
        name: CompletionTarget,
    ) -> Option<OpId> {
        let entry = opcode::RecvMulti::new(Fd(socket.as_fd().as_raw_fd()), GROUP).build();
        self.push(entry, Op { what: OpKind::Receive, name, _held: socket.clone() }).ok()
    }

    /// Sends these bytes of a buffer. `Err`: the queue is full.
    pub(super) fn send(
        &mut self,
        socket: &Arc<dyn OpenDescriptor>,
        name: CompletionTarget,
        buffer: SendBuffer,
        range: Range<usize>,
    ) -> Result<OpId, SendBuffer> {
        assert!(range.end <= URING_SEND_BYTES);
        let (index, start, len) = (buffer.0, range.start, range.len());
        let at = self.outgoing.lend(index).wrapping_add(start);
        let entry = opcode::Send::new(Fd(socket.as_fd().as_raw_fd()), at, len as u32)
            .flags(rustix::net::SendFlags::NOSIGNAL.bits() as i32)
            .build();
        self.push(entry, Op { what: OpKind::Send(buffer), name, _held: socket.clone() }).map_err(|op| {
            self.outgoing.take_back(index);
            match op.what {
                OpKind::Send(buffer) => buffer,
                _ => unreachable!("the operation that was pushed"),
            }
        })
    }

    /// Polls for these flags, once or until it is cancelled. `None`: the queue is full.
    pub(super) fn watch(
        &mut self,
        socket: &Arc<dyn OpenDescriptor>,
        name: CompletionTarget,
        flags: u32,
        multi: bool,
    ) -> Option<OpId> {
        let entry = opcode::PollAdd::new(Fd(socket.as_fd().as_raw_fd()), flags).multi(multi).build();
        self.push(entry, Op { what: OpKind::Watch, name, _held: socket.clone() }).ok()
    }

    /// Cancels an operation; its last completion says when it has ended. `false`: the queue is full.
    pub(super) fn cancel(&mut self, op: OpId) -> bool {
        let entry = opcode::AsyncCancel::new(op.0).build().user_data(NOBODY);
        // SAFETY: a cancellation names an operation by number and uses no memory.
        self.has_space() && unsafe { self.queue.submission().push(&entry) }.is_ok()
    }

    fn has_space(&mut self) -> bool {
        if self.queue.submission().is_full() {
            // Requests that cannot be submitted now stay in the queue, and the caller keeps its request.
            let _ = self.submit();
        }
        !self.queue.submission().is_full()
    }

    fn push(&mut self, entry: squeue::Entry, op: Op) -> Result<OpId, Op> {
        if !self.has_space() {
            return Err(op);
        }
        let index = self.ops_free.pop().unwrap_or_else(|| {
            self.ops.push(None);
            self.ops.len() as u32 - 1
        });
        self.generation = self.generation.wrapping_add(1) & (u32::MAX >> 1); // never NOBODY
        let id = u64::from(self.generation) << 32 | u64::from(index);
        self.ops[index as usize] = Some(op);
        self.in_flight += 1;
        // SAFETY: the descriptor is open, and the buffer, if any, is lent, until the operation's last
        // completion has been processed: `ops` owns both, and a ring that cannot process it never frees the
        // memory.
        let pushed = unsafe { self.queue.submission().push(&entry.user_data(id)) };
        pushed.expect("there was space");
        Ok(OpId(id))
    }

    /// Whether nothing waits to be submitted, no completion has arrived, and the kernel has no work for this thread.
    pub(super) fn is_quiet(&mut self) -> bool {
        let queue = self.queue.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    /// Submits the requests and waits for a completion or the time limit.
    pub(super) fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let limit = Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
        self.enter(1, SubmitArgs::new().timespec(&limit))
    }

    /// Submits the requests and lets the kernel do its work for this thread.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.enter(0, SubmitArgs::new())
    }

    fn enter(&mut self, want: usize, args: SubmitArgs<'_, '_>) -> io::Result<()> {
        match self.queue.submitter().submit_with_args(want, &args) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // The time is over, a signal came, or completions must be processed first.
                Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// The next completion, without a system call.
    pub(super) fn next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.queue.completion().next()?;
            if entry.user_data() != NOBODY {
                return Some(self.done(&entry));
            }
        }
    }

    fn done(&mut self, entry: &cqueue::Entry) -> Completion {
        let id = OpId(entry.user_data());
        let (index, flags) = (id.0 as u32 as usize, entry.flags());
        let last = !cqueue::more(flags);
        let result = match entry.result() {
            error @ ..0 => Err(Errno::from_raw_os_error(-error)),
            value => Ok(value as usize),
        };
        let op = self.ops[index].as_ref().expect("a completion belongs to an operation in flight");
        let name = op.name;
        if let OpKind::Receive = op.what {
            let buffer = cqueue::buffer_select(flags);
            if let Some(buffer) = buffer {
                self.provided.take(buffer);
            }
            let got = match (result, buffer) {
                (Ok(len @ 1..), Some(buffer)) => Ok(Some(ReceivedBytes { buffer, len })),
                (result, buffer) => {
                    if let Some(buffer) = buffer {
                        self.provided.provide(buffer);
                    }
                    result.map(|_| None)
                }
            };
            if last {
                self.end(index);
            }
            return Completion::Received { name, got, last };
        }
        if !last {
            return Completion::Seen { name, op: id, seen: result.map(|flags| flags as u32), last };
        }
        match self.end(index) {
            OpKind::Send(buffer) => {
                self.outgoing.take_back(buffer.0);
                Completion::Sent { name, buffer, sent: result }
            }
            _ => Completion::Seen { name, op: id, seen: result.map(|flags| flags as u32), last },
        }
    }

    fn end(&mut self, index: usize) -> OpKind {
        let op = self.ops[index].take().expect("an operation ends once");
        self.ops_free.push(index as u32);
        self.in_flight -= 1;
        op.what
    }

    /// The number of operations whose last completion has not been processed.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Cancels all operations in flight. Their completions follow.
    pub(super) fn cancel_all(&mut self) -> io::Result<()> {
        self.submit()?;
        let limit = Timespec::new().sec(DRAIN_TIME.as_secs());
        match self.queue.submitter().register_sync_cancel(Some(limit), CancelBuilder::any()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the memory back from the kernel, if nothing is in flight. Nothing can be received after that.
    pub(super) fn retire(&mut self) {
        if self.in_flight == 0 && self.queue.submitter().unregister_buf_ring(GROUP).is_ok() {
            self.provided.retire();
        }
    }

    /// Waits a limited time until nothing is in flight. Received bytes are lost.
    fn drain(&mut self) -> io::Result<()> {
        self.cancel_all()?;
        let give_up = Instant::now() + DRAIN_TIME;
        while self.in_flight > 0 && Instant::now() < give_up {
            if let Some(Completion::Received { got: Ok(Some(received)), .. }) = self.next() {
                self.give_back(received);
            } else if self.queue.completion().is_empty() && self.in_flight > 0 {
                self.wait(Duration::from_millis(50))?;
            }
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_on_own_thread() && self.drain().is_ok() {
            self.retire();
        }
        // Completions of another thread's ring can no longer be processed. Memory that was not retired there is
        // never freed.
    }
}
