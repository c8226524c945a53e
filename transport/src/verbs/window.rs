//! How many bytes may be written into the peer's ring, and which credit the peer gets for our ring. These are
//! counts, without memory or a device.
//!
//! Positions are byte counts that only grow; a byte is at its position modulo the ring's size. A message is one
//! WRITE_WITH_IMM. Its bytes follow those of the message before it. Its immediate returns credit for the bytes
//! that its sender has read and the messages that it has reaped.

use crate::limits::{VERBS_MESSAGES_MAX, VERBS_RING_BYTES};
use crate::verbs::resources::queues::Queues;
use std::collections::VecDeque;

const RING: u64 = VERBS_RING_BYTES as u64;
/// Bits of an immediate that count bytes; the other bits count messages.
const BYTE_BITS: u32 = 20;

const _: () = {
    assert!(RING < 1 << BYTE_BITS);
    assert!(VERBS_MESSAGES_MAX < 1 << (32 - BYTE_BITS));
};

/// Credit: how much more the peer may send. Every message carries it in its immediate word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Credit {
    pub(crate) bytes: u32,
    pub(crate) messages: u32,
}

impl Credit {
    pub(crate) fn encode(self) -> u32 {
        self.messages << BYTE_BITS | self.bytes
    }

    pub(crate) fn decode(word: u32) -> Credit {
        Credit { bytes: word & ((1 << BYTE_BITS) - 1), messages: word >> BYTE_BITS }
    }

    /// Whether it is empty. A message with neither bytes nor credit marks the end of the stream.
    fn is_none(self) -> bool {
        self == Credit::default()
    }
}

/// An action of the peer that no honest peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolViolation {
    #[error("credit for {bytes} bytes and {messages} messages, more than were sent")]
    Credit { bytes: u32, messages: u32 },
    #[error("a message of {bytes} bytes, but {room} were free")]
    Overrun { bytes: u32, room: u64 },
    #[error("more than {0} messages without credit")]
    Flood(usize),
    #[error("a message after the end")]
    AfterEnd,
    #[error("a completion of the unknown work request {0}")]
    Completion(u64),
}

/// A message for the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Identifies it in its completion.
    pub(crate) id: u64,
    /// The position of its bytes in both rings. They do not cross the ring's end.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) credit: Credit,
    /// Whether its completion is reported. That completion covers all messages before it too.
    pub(crate) signalled: bool,
}

/// The sending direction.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The depths of this side's queues, and how many messages the peer's queues hold.
    queues: Queues,
    messages_max: usize,
    /// Bytes posted, bytes whose staging memory is free again, and bytes that the peer has read.
    posted: u64,
    freed: u64,
    read_by_peer: u64,
    /// Messages with bytes that were posted, and those that the peer has reaped.
    messages: u64,
    reaped: u64,
    /// Work requests posted, and those known to be complete.
    sends: u64,
    done: u64,
    /// Work requests and bytes posted since the last signalled one.
    unsignalled: (usize, u64),
    /// The signalled ones in flight: the id, and the bytes posted up to and including it.
    signals: VecDeque<(u64, u64)>,
}

impl Outgoing {
    /// A direction through queues of these depths, to a peer that accepts as many messages.
    pub(crate) fn new(queues: Queues) -> Outgoing {
        Outgoing {
            queues,
            messages_max: queues.messages,
            posted: 0,
            freed: 0,
            read_by_peer: 0,
            messages: 0,
            reaped: 0,
            sends: 0,
            done: 0,
            unsignalled: (0, 0),
            signals: VecDeque::new(),
        }
    }

    /// Sets how many messages the peer accepts.
    pub(crate) fn limit_messages(&mut self, messages: usize) {
        self.messages_max = messages;
    }

    /// Bytes that may be posted now.
    pub(crate) fn room(&self) -> usize {
        let full = self.messages - self.reaped >= self.messages_max as u64
            || self.sends - self.done >= (self.queues.sends - self.queues.credits) as u64;
        if full { 0 } else { (RING - (self.posted - self.freed.min(self.read_by_peer))) as usize }
    }

    /// The position of the next bytes, and how many fit there: at most up to the ring's end.
    pub(crate) fn space(&self) -> (usize, usize) {
        let at = (self.posted % RING) as usize;
        (at, self.room().min(VERBS_RING_BYTES - at))
    }

    /// Makes a message of the next `bytes` bytes and this credit.
    pub(crate) fn post(&mut self, bytes: usize, credit: Credit) -> Message {
        let (at, most) = self.space();
        assert!(0 < bytes && bytes <= most, "{bytes} bytes posted where {most} have room");
        self.messages += 1;
        self.posted += bytes as u64;
        self.send(at, bytes, credit)
    }

    /// Whether the queue has space for a message without bytes.
    pub(crate) fn has_place(&self) -> bool {
        self.sends - self.done < self.queues.sends as u64
    }

    /// Makes a message without bytes. The queue must have space for it.
    pub(crate) fn post_credit(&mut self, credit: Credit) -> Message {
        assert!(self.has_place());
        self.send(0, 0, credit)
    }

    /// Makes the end message, whose completion covers everything posted; `None`: the queue is full.
    pub(crate) fn post_end(&mut self) -> Option<Message> {
        if !self.has_place() {
            return None;
        }
        self.unsignalled.0 = self.queues.signal_every;
        Some(self.send(0, 0, Credit::default()))
    }

    fn send(&mut self, at: usize, bytes: usize, credit: Credit) -> Message {
        let id = self.sends;
        self.sends += 1;
        self.unsignalled = (self.unsignalled.0 + 1, self.unsignalled.1 + bytes as u64);
        let signalled = self.unsignalled.0 >= self.queues.signal_every || self.unsignalled.1 >= RING / 4;
        if signalled {
            self.unsignalled = (0, 0);
            self.signals.push_back((id, self.posted));
        }
        Message { id, at, bytes, credit, signalled }
    }

    /// Records that a signalled message is complete, and with it all messages before it.
    pub(crate) fn completed(&mut self, id: u64) -> Result<(), ProtocolViolation> {
        match self.signals.pop_front() {
            Some((first, posted)) if first == id => (self.done, self.freed) = (id + 1, posted),
            _ => return Err(ProtocolViolation::Completion(id)),
        }
        Ok(())
    }

    /// Records credit that the peer returned.
    pub(crate) fn credited(&mut self, credit: Credit) -> Result<(), ProtocolViolation> {
        let (read_by_peer, reaped) =
            (self.read_by_peer + u64::from(credit.bytes), self.reaped + u64::from(credit.messages));
        if read_by_peer > self.posted || reaped > self.messages {
            return Err(ProtocolViolation::Credit { bytes: credit.bytes, messages: credit.messages });
        }
        (self.read_by_peer, self.reaped) = (read_by_peer, reaped);
        Ok(())
    }

    /// Whether everything posted is known to be complete.
    pub(crate) fn is_settled(&self) -> bool {
        self.done == self.sends
    }
}

/// The receiving direction.
#[derive(Debug)]
pub(crate) struct Incoming {
    messages_max: usize,
    arrived: u64,
    read: u64,
    /// How much of `read` and `messages` was reported to the peer.
    reported: u64,
    messages: u64,
    messages_reported: u64,
    ended: bool,
}

impl Incoming {
    /// A direction through queues of these depths.
    pub(crate) fn new(queues: Queues) -> Incoming {
        Incoming {
            messages_max: queues.messages,
            arrived: 0,
            read: 0,
            reported: 0,
            messages: 0,
            messages_reported: 0,
            ended: false,
        }
    }

    /// Records a message that has arrived.
    pub(crate) fn arrive(&mut self, bytes: u32, credit: Credit) -> Result<(), ProtocolViolation> {
        if self.ended {
            return Err(ProtocolViolation::AfterEnd);
        }
        if bytes == 0 {
            self.ended = credit.is_none();
            return Ok(());
        }
        let room = RING - (self.arrived - self.reported);
        if u64::from(bytes) > room {
            return Err(ProtocolViolation::Overrun { bytes, room });
        }
        self.arrived += u64::from(bytes);
        self.messages += 1;
        if self.messages - self.messages_reported > self.messages_max as u64 {
            return Err(ProtocolViolation::Flood(self.messages_max));
        }
        Ok(())
    }

    /// The position of the next unread bytes, and how many there are without a gap.
    pub(crate) fn unread(&self) -> (usize, usize) {
        let at = (self.read % RING) as usize;
        (at, ((self.arrived - self.read) as usize).min(VERBS_RING_BYTES - at))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.arrived == self.read
    }

    /// Whether the end has arrived.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes as u64 <= self.arrived - self.read, "only what has arrived can be read");
        self.read += bytes as u64;
    }

    /// Whether enough credit is unreported that it should be sent in its own message.
    pub(crate) fn has_much_credit(&self) -> bool {
        self.read - self.reported >= RING / 4
            || self.messages - self.messages_reported >= self.messages_max as u64 / 4
    }

    /// Takes the unreported credit; the caller sends it to the peer.
    pub(crate) fn take_credit(&mut self) -> Credit {
        let (bytes, messages) = (self.read - self.reported, self.messages - self.messages_reported);
        (self.reported, self.messages_reported) = (self.read, self.messages);
        Credit { bytes: bytes as u32, messages: messages as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One direction's data and both sides' counts. The simulated wire preserves order, delays messages, and
    /// loses none.
    struct WindowSide {
        queues: Queues,
        out: Outgoing,
        into: Incoming,
        /// Memory as the device sees it: the ring that the peer writes into.
        ring: Vec<u8>,
        /// In flight to this side: the message, and a copy of its bytes when it was posted.
        wire: VecDeque<(Message, Vec<u8>)>,
        /// Signalled messages that are complete but not yet reaped.
        completions: VecDeque<u64>,
        staging: Vec<u8>,
        sent: u64,
        got: u64,
    }

    impl WindowSide {
        /// A side between queues with these limits of work requests.
        fn new(own: u32, other: u32) -> WindowSide {
            let queues = |work_requests| Queues::of("made0", &limits(work_requests)).unwrap();
            let (queues, theirs) = (queues(own), queues(other));
            let mut out = Outgoing::new(queues);
            out.limit_messages(theirs.messages);
            WindowSide {
                queues,
                out,
                into: Incoming::new(queues),
                ring: vec![0; VERBS_RING_BYTES],
                wire: VecDeque::new(),
                completions: VecDeque::new(),
                staging: vec![0; VERBS_RING_BYTES],
                sent: 0,
                got: 0,
            }
        }
    }

    fn limits(work_requests: u32) -> crate::verbs::Limits {
        crate::verbs::Limits {
            vendor: 0,
            sge: 1,
            work_requests,
            completions: 4096,
            queue_pairs: 1,
            regions: 1,
            region_bytes: 1,
            reads_answered: 1,
            reads_asked: 1,
            inline_bytes: 0,
            ports: Vec::new(),
        }
    }

    #[derive(Debug, Clone)]
    enum WindowStep {
        Send(bool, usize),
        Deliver(bool, usize),
        Complete(bool),
        Read(bool, usize),
    }

    fn byte(position: u64) -> u8 {
        (position.wrapping_mul(0x9e37_79b9) >> 7) as u8
    }

    fn steps() -> impl Strategy<Value = Vec<WindowStep>> {
        let step = prop_oneof![
            (any::<bool>(), prop_oneof![0..200usize, 0..2 * VERBS_RING_BYTES])
                .prop_map(|(s, n)| WindowStep::Send(s, n)),
            (any::<bool>(), 0..40usize).prop_map(|(s, n)| WindowStep::Deliver(s, n)),
            any::<bool>().prop_map(WindowStep::Complete),
            (any::<bool>(), prop_oneof![0..300usize, 0..2 * VERBS_RING_BYTES])
                .prop_map(|(s, n)| WindowStep::Read(s, n)),
        ];
        prop::collection::vec(step, 1..300)
    }

    fn send(sides: &mut [WindowSide; 2], side: usize, mut wanted: usize) {
        loop {
            let (at, most) = sides[side].out.space();
            let bytes = wanted.min(most);
            if bytes == 0 {
                return;
            }
            let from = sides[side].sent;
            for i in 0..bytes {
                sides[side].staging[at + i] = byte(from + i as u64);
            }
            sides[side].sent += bytes as u64;
            let credit = sides[side].into.take_credit();
            let message = sides[side].out.post(bytes, credit);
            assert_eq!((message.at, message.bytes), (at, bytes));
            let copy = sides[side].staging[at..at + bytes].to_vec();
            sides[1 - side].wire.push_back((message, copy));
            wanted -= bytes;
        }
    }

    fn deliver(sides: &mut [WindowSide; 2], side: usize, most: usize) {
        for _ in 0..most {
            let Some((message, copy)) = sides[side].wire.pop_front() else { break };
            // The device reads the memory late: it must still have the posted bytes.
            let late = &sides[1 - side].staging[message.at..message.at + message.bytes];
            assert!(late == copy, "a posted buffer was touched");
            sides[side].ring[message.at..message.at + message.bytes].copy_from_slice(&copy);
            let word = Credit::decode(message.credit.encode());
            assert_eq!(word, message.credit);
            sides[side].into.arrive(message.bytes as u32, word).unwrap();
            sides[side].out.credited(word).unwrap();
            if message.signalled {
                sides[1 - side].completions.push_back(message.id);
            }
            repay(sides, side);
        }
    }

    fn repay(sides: &mut [WindowSide; 2], side: usize) {
        if sides[side].into.has_much_credit() && sides[side].out.has_place() {
            let credit = sides[side].into.take_credit();
            let message = sides[side].out.post_credit(credit);
            sides[1 - side].wire.push_back((message, Vec::new()));
        }
        let (waiting, receives) = (sides[1 - side].wire.len(), sides[1 - side].queues.receives());
        assert!(waiting <= receives, "{waiting} messages for {receives} receives");
    }

    fn read(sides: &mut [WindowSide; 2], side: usize, mut wanted: usize) {
        while wanted > 0 && !sides[side].into.is_empty() {
            let (at, run) = sides[side].into.unread();
            let bytes = run.min(wanted);
            for i in 0..bytes {
                assert_eq!(sides[side].ring[at + i], byte(sides[side].got + i as u64));
            }
            sides[side].got += bytes as u64;
            sides[side].into.consume(bytes);
            wanted -= bytes;
            repay(sides, side);
        }
    }

    fn complete(sides: &mut [WindowSide; 2], side: usize) {
        if let Some(id) = sides[side].completions.pop_front() {
            sides[side].out.completed(id).unwrap();
            repay(sides, side);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn bytes_come_in_order_and_no_side_gets_stuck(
            steps in steps(), depths in [prop::sample::select(vec![48, 100, 255, 4000]), prop::sample::select(vec![48, 4000])]
        ) {
            let mut sides = [WindowSide::new(depths[0], depths[1]), WindowSide::new(depths[1], depths[0])];
            for step in steps {
                match step {
                    WindowStep::Send(side, bytes) => send(&mut sides, usize::from(side), bytes),
                    WindowStep::Deliver(side, most) => deliver(&mut sides, usize::from(side), most),
                    WindowStep::Complete(side) => complete(&mut sides, usize::from(side)),
                    WindowStep::Read(side, bytes) => read(&mut sides, usize::from(side), bytes),
                }
            }
            // Whatever happened: after everything is delivered and read, both sides have space again.
            for _ in 0..8 {
                for side in 0..2 {
                    deliver(&mut sides, side, usize::MAX);
                    read(&mut sides, side, usize::MAX);
                    while !sides[side].completions.is_empty() {
                        complete(&mut sides, side);
                    }
                }
            }
            for side in 0..2 {
                prop_assert_eq!(sides[1 - side].got, sides[side].sent);
                prop_assert!(sides[side].out.room() >= VERBS_RING_BYTES / 2, "{:?}", &sides[side].out);
            }
        }
    }

    #[test]
    fn what_a_peer_makes_up_is_refused() {
        let mut out = Outgoing::new(Queues::WANTED);
        let message = out.post(100, Credit::default());
        assert_eq!(
            out.credited(Credit { bytes: 101, messages: 1 }),
            Err(ProtocolViolation::Credit { bytes: 101, messages: 1 })
        );
        assert_eq!(
            out.credited(Credit { bytes: 0, messages: 2 }),
            Err(ProtocolViolation::Credit { bytes: 0, messages: 2 })
        );
        assert_eq!(out.completed(message.id), Err(ProtocolViolation::Completion(0)), "it was not signalled");
        let mut into = Incoming::new(Queues::WANTED);
        into.arrive(VERBS_RING_BYTES as u32 - 1, Credit::default()).unwrap();
        assert_eq!(into.arrive(2, Credit::default()), Err(ProtocolViolation::Overrun { bytes: 2, room: 1 }));
        let mut into = Incoming::new(Queues::WANTED);
        (0..VERBS_MESSAGES_MAX).for_each(|_| into.arrive(1, Credit::default()).unwrap());
        assert_eq!(into.arrive(1, Credit::default()), Err(ProtocolViolation::Flood(VERBS_MESSAGES_MAX)));
        let mut into = Incoming::new(Queues::WANTED);
        into.arrive(0, Credit { bytes: 0, messages: 1 }).unwrap();
        assert!(!into.has_ended());
        into.arrive(0, Credit::default()).unwrap();
        assert!(into.has_ended());
        assert_eq!(into.arrive(1, Credit::default()), Err(ProtocolViolation::AfterEnd));
    }
}
