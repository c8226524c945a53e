//! Makes frames of all kinds out of any bytes: valid ones, and ones with wrong lengths, ids, words, tables, keysets and
//! shards, with flipped bits, cut short, or sent twice.

use crate::hostile::job_clients;
use gannet_core::{Read, Schema, Segments, Write};
use gannet_optim::{Add, Float16, Rule, Sgd};
use gannet_transport::Head;
use gannet_transport::limits::{FRAME_BYTES_MAX, HEAD_BYTES};
use gannet_wire::frames::any_head;
use gannet_wire::frames::bulk::{PullFrame, PushFrame, ScanFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::pull_newer::{bit_words, ones};
use gannet_wire::frames::push_payload::{PushPayload, PushValues};
use gannet_wire::frames::session::{HelloFrame, KnockFrame, PingFrame, ProveFrame};
use gannet_wire::frames::subscriptions::SubscribeFrame;
use gannet_wire::frames::sync::{AwaitFrame, FenceFrame, JoinFrame, LeaveFrame, TickFrame};
use gannet_wire::frames::tables::{
    ClosePusherFrame, ConfirmFrame, DropTableFrame, ForgetClientsFrame, IdentifyFrame, OpenTableFrame,
    StatusFrame,
};
use gannet_wire::frames::vectors::VectorFrame;
use gannet_wire::frames::word::pair_of_words;
use gannet_wire::messages::awaited::AwaitV1;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{
    ConfirmV2, DropTableV1, HelloV1, IdentifyV2, JoinV1, KnockV1, OpenTableV2, ProofV1, StepV1, VectorV1,
};

/// Bytes as a source of choices. When they are used up, every choice is the first.
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    /// The next 16 bits.
    fn bits(&mut self) -> u64 {
        let Some((&[a, b], rest)) = self.0.split_first_chunk() else {
            self.0 = &[];
            return 0;
        };
        self.0 = rest;
        u64::from(u16::from_le_bytes([a, b]))
    }

    /// A number below `bound`, at most 65,536.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// A word at an edge of its range, as it often breaks protocols.
    pub(crate) fn word(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => u64::MAX - self.below(3),
            2 => 1 << self.below(64),
            3 => u64::from(u32::MAX) + self.below(3) - 1,
            4 => self.below(10),
            _ => self.bits() | self.bits() << 16 | self.bits() << 32 | self.bits() << 48,
        }
    }

    fn is_used_up(&self) -> bool {
        self.0.is_empty()
    }
}

/// The tables that scripts open and use: 1, 3, 16, 64 weights of a few shards. The 16th weight counts pushes. The 64
/// are stored as f16, so a stored row has 32 floats.
pub fn schema(number: u64) -> Schema {
    let dim = [1, 3, 15, 64][number as usize % 4];
    let name = format!("hostile-{}", number % 4);
    let schema = Schema { name, dim, shards: 8, ..Schema::scalar("", Rule::Add(Add)) };
    let sgd = Rule::Sgd(Sgd { lr: 0.5 });
    match number % 4 {
        2 => schema.counting(),
        3 => Schema { rule: sgd.with_packed_weights(Float16::F16).unwrap_or(sgd), ..schema },
        _ => schema,
    }
}

/// Scripts use pusher numbers from 1 to below this. Pushers above are left alone.
pub const PUSHERS: u64 = 17;

/// All keys that scripts push on purpose have the highest bit set. Other keys are left alone.
pub const KEY_BIT: u64 = 1 << 63;

/// What a hostile peer sends on one connection, from its greeting on. The server has `threads` threads.
pub fn script(choices: &mut Choices<'_>, threads: u32) -> Vec<u8> {
    let mut out = Vec::new();
    if !greet(choices, threads, &mut out) {
        return out;
    }
    let (mut last, mut seq) = (0..0, choices.below(1000));
    while !choices.is_used_up() && out.len() < 2 << 20 {
        let from = out.len();
        let (head, payload) = request(choices, &mut seq);
        add(&mut out, head, &payload);
        match choices.below(96) {
            0 => flip(choices, &mut out, from..from + HEAD_BYTES, false),
            1 => flip(choices, &mut out, from..from + HEAD_BYTES, true),
            2 => out.truncate(from + 1 + choices.below((out.len() - from) as u64) as usize),
            3..8 => out.extend_from_within(last.clone()),
            8 => set(&mut out, from, 8, &(choices.word() as u32).to_le_bytes()),
            9..14 => {
                let at = 24 + 8 * choices.below(4) as usize;
                set(&mut out, from, at, &choices.word().to_le_bytes());
            }
            14 => set(&mut out, from, 4, &(choices.bits() as u16).to_le_bytes()),
            15 => set(&mut out, from, 6, &(choices.bits() as u16).to_le_bytes()),
            16 => set(&mut out, from, 16, &choices.word().to_le_bytes()),
            17..20 => {
                // Behind the keys, so that a pull and the next push have the same keys.
                let behind = from + HEAD_BYTES + (out.len() - from - HEAD_BYTES) * 3 / 4;
                let end = out.len();
                flip(choices, &mut out, behind..end, false);
            }
            20 => (0..choices.below(300)).for_each(|_| out.push(choices.bits() as u8)),
            _ => {}
        }
        last = from..out.len();
    }
    out
}

/// Frames of greetings, in any order: knocks, proofs, hellos, and wrong ones.
pub(crate) fn greetings(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + choices.below(6) {
        let from = out.len();
        let seal =
            |choices: &mut Choices<'_>| -> [u8; 32] { std::array::from_fn(|_| choices.below(256) as u8) };
        let (kind, payload) = match choices.below(6) {
            0 => (KnockFrame::KIND, control::seal(&KnockV1 { nonce: seal(choices) })),
            1 => (ProveFrame::KIND, control::seal(&ProofV1 { proof: seal(choices) })),
            2..5 => {
                let hello = HelloV1 {
                    pusher: choices.word(),
                    incarnation: choices.word(),
                    thread: choices.word() as u32,
                };
                (HelloFrame::KIND, control::seal(&hello))
            }
            _ => (choices.below(40) as u16, bytes_of(&[choices.word(), choices.word()])),
        };
        // A greeting has no fields; one with fields is refused.
        let aux = if choices.below(8) == 0 { choices.bits() as u16 } else { 0 };
        add(&mut out, any_head(kind, aux, choices.word(), [0; 4]), &payload);
        let end = out.len();
        match choices.below(12) {
            0 => flip(choices, &mut out, from..from + HEAD_BYTES, false),
            1 => flip(choices, &mut out, from..from + HEAD_BYTES, true),
            2 => flip(choices, &mut out, from + HEAD_BYTES..end, false),
            3 => out.truncate(from + 1 + choices.below((end - from) as u64) as usize),
            4 => set(&mut out, from, 8, &(choices.word() as u32).to_le_bytes()),
            _ => {}
        }
    }
    out
}

/// Writes the greeting. Returns `false` if nothing should follow.
fn greet(choices: &mut Choices<'_>, threads: u32, out: &mut Vec<u8>) -> bool {
    let thread = choices.below(u64::from(threads)) as u32;
    let (pusher, incarnation) = (1 + choices.below(PUSHERS - 1), choices.below(3));
    let hello = |thread| control::seal(&HelloV1 { pusher, incarnation, thread });
    let head = HelloFrame {}.encode(choices.word());
    match choices.below(40) {
        0 => {
            (0..choices.below(2000)).for_each(|_| out.push(choices.bits() as u8));
            return false;
        }
        1 => {
            add(out, head, &hello(thread));
            out.truncate(choices.below(out.len() as u64) as usize);
            return false;
        }
        2 => add(out, any_head(choices.below(30) as u16, 0, head.id, [0; 4]), &hello(thread)),
        3 => add(out, head, &hello(threads + choices.below(9) as u32)),
        4 => {
            let mut payload = hello(thread);
            let at = choices.below(payload.len() as u64) as usize;
            payload[at] ^= 1 << choices.below(8);
            add(out, head, &payload);
        }
        5 => {
            out.extend(b"GET /metrics HTTP/1.1\r\nHost: gannet\r\nAccept: */*\r\n\r\n".repeat(3));
            return false;
        }
        6 => add(out, head, &vec![0xEE; FRAME_BYTES_MAX]),
        _ => add(out, head, &hello(thread)),
    }
    true
}

fn request(choices: &mut Choices<'_>, seq: &mut u64) -> (Head, Vec<u8>) {
    let id = choices.word();
    // One more table than scripts open: the honest client's, and one that no client opened.
    let table = choices.below(6) as u32;
    let read = if choices.below(2) == 0 { Read::Weights } else { Read::State };
    let keys = [0, 1, 2, 64, 500, 8192, 8193][choices.below(7).min(choices.below(7)) as usize];
    let keep = [0, 1, 2, 100, 4096, 4097, u32::MAX][choices.below(7) as usize];
    let clock = (choices.below(4) == 0).then(|| choices.below(5));
    match choices.below(28) {
        24 | 25 => keeping_step(choices, id, table),
        26 if choices.below(3) == 0 => job_clients::run(choices, id),
        26 => job_clients::request(choices, id),
        27 => program(choices, seq, id, table),
        0..9 => {
            let keys = some_keys(choices, keys);
            // Their rows have one segment, so some choices name segments that do not exist.
            let segments = Segments::of_bits([0, 1, 2, u8::MAX][choices.below(4) as usize]);
            let (count, slots) = (keys.len() as u32, choices.below(3) == 0);
            let newer = !slots && choices.below(3) == 0;
            let f16 = choices.below(3) == 0;
            let versioned = choices.below(4) == 0;
            let frame =
                PullFrame { table, keys: count, read, keep, segments, slots, newer, clock, f16, versioned };
            (frame.encode(id), if newer { asking(choices, &keys) } else { bytes_of(&keys) })
        }
        9..17 => push(choices, seq, id, table, keys),
        17 => {
            let (most, shard, from) =
                (choices.word() as u32, choices.below(70) as u32, choices.word() as u32);
            (ScanFrame { table, most, shard, from }.encode(id), Vec::new())
        }
        18 => (StatusFrame { table }.encode(id), Vec::new()),
        19 => (ClosePusherFrame { table, pusher: 0, incarnation: 0 }.encode(id), Vec::new()),
        20 if choices.below(2) == 0 => {
            let words = [choices.word() * choices.below(2); 4];
            (any_head(PingFrame::KIND, 0, id, words), Vec::new())
        }
        20 => {
            let keys = some_keys(choices, keys);
            let (every_ms, flags) = (choices.below(3) as u32, choices.below(5) as u32);
            let count = keys.len() as u32 + u32::from(choices.below(8) == 0);
            let words = [pair_of_words(table, count), pair_of_words(every_ms, flags), choices.word(), 0];
            (any_head(SubscribeFrame::KIND, 0, id, words), bytes_of(&keys))
        }
        21 => open_table(choices, id),
        22 if choices.below(2) == 0 => known_table(choices, id),
        22 => {
            let words = [choices.word(), choices.word(), choices.word(), choices.word()];
            (
                any_head(choices.below(60) as u16, choices.bits() as u16, id, words),
                bytes_of(&[choices.word()]),
            )
        }
        _ => (HelloFrame {}.encode(id), vec![choices.bits() as u8; 40]),
    }
}

/// Opens one of the scripts' tables, or one with a flipped bit in its schema.
fn open_table(choices: &mut Choices<'_>, id: u64) -> (Head, Vec<u8>) {
    let mut schema = schema(choices.below(4)).encode();
    if choices.below(2) == 0 {
        let at = choices.below(schema.len() as u64) as usize;
        // The name stays: another name would be a valid table to open.
        let behind = at.max(4 + "hostile-0".len());
        schema[behind] ^= 1 << choices.below(8);
    }
    let servers = [1, 1, 1, 1, 2, 0, u32::MAX][choices.below(7) as usize];
    let (uid, make_in) = ([choices.below(2) as u8; 16], choices.below(3));
    let server = choices.below(2) as u32;
    let message = OpenTableV2 { schema, uid, server, servers, make_in };
    let mut payload = control::seal_as(2, &message);
    if choices.below(8) == 0 {
        payload.truncate(choices.below(payload.len() as u64) as usize);
    }
    let [below, in_bytes] = [choices.below(3), choices.below(3)].map(|n| [0, 1, u32::MAX][n as usize]);
    let [after_ms, capacity, floor] = [(); 3].map(|()| [0, 0, 1, 7, u64::MAX][choices.below(5) as usize]);
    (OpenTableFrame { below, in_bytes, after_ms, capacity, floor }.encode(id), payload)
}

/// Asks about a table, confirms one, or drops one.
fn known_table(choices: &mut Choices<'_>, id: u64) -> (Head, Vec<u8>) {
    let table = ["hostile-0", "kept", "", "../kept", "none"][choices.below(5) as usize].to_owned();
    let (kind, payload) = match choices.below(3) {
        // Not a table that scripts use: the test knows what was pushed there.
        2 if !matches!(&*table, "hostile-0" | "kept") => {
            (DropTableFrame::KIND, control::seal(&DropTableV1 { table }))
        }
        0 => (IdentifyFrame::KIND, control::seal_as(2, &IdentifyV2 { table, server: 0, servers: 0 })),
        _ => {
            let (table, uid) = (choices.below(4) as u32, [choices.below(2) as u8; 16]);
            let all_births = choices.below(3);
            (ConfirmFrame::KIND, control::seal_as(2, &ConfirmV2 { table, uid, all_births }))
        }
    };
    (any_head(kind, 0, id, [0; 4]), payload)
}

/// Joins, ticks, fences and leaves, valid and invalid.
fn keeping_step(choices: &mut Choices<'_>, id: u64, table: u32) -> (Head, Vec<u8>) {
    let kinds = [
        JoinFrame::KIND,
        TickFrame::KIND,
        AwaitFrame::KIND,
        FenceFrame::KIND,
        LeaveFrame::KIND,
        ForgetClientsFrame::KIND,
    ];
    let kind = kinds[choices.below(6) as usize];
    let head = match kind {
        TickFrame::KIND => {
            TickFrame { table, clock: choices.below(5), skip: choices.below(2) == 1 }.encode(id)
        }
        FenceFrame::KIND => {
            let (index, pusher) = (choices.below(4) as u32, 1 + choices.below(PUSHERS - 1));
            FenceFrame { table, index, pusher, incarnation: choices.below(3) }.encode(id)
        }
        LeaveFrame::KIND => LeaveFrame { table }.encode(id),
        ForgetClientsFrame::KIND => ForgetClientsFrame {}.encode(id),
        AwaitFrame::KIND => {
            let (rank, pusher) = (choices.below(4) as u32, choices.below(PUSHERS));
            let table = "x".repeat(choices.below(4) as usize);
            let of = AwaitV1 { table, rank, pusher, incarnation: choices.below(3) };
            return (AwaitFrame {}.encode(id), control::seal(&of));
        }
        _ => JoinFrame { table }.encode(id),
    };
    if kind != JoinFrame::KIND {
        return (head, Vec::new());
    }
    let workers = [1, 1, 2, 3, 33, 0, u32::MAX][choices.below(7) as usize];
    let (rank, mode, bound) = (choices.below(3) as u32, choices.below(4) as u32, choices.below(4) as u32);
    let (mean, strict) = (choices.below(2) == 0, choices.below(2) == 0);
    let (timeout_ms, left) = (choices.below(3), choices.below(4));
    let clock = [u64::MAX, 0, 1, u64::MAX - 1][choices.below(4) as usize];
    let join = JoinV1 { rank, workers, mode, bound, mean, strict, timeout_ms, clock, left };
    (head, control::seal(&join))
}

/// A program. No table is one of vectors: neither those of scripts nor the honest client's.
fn program(choices: &mut Choices<'_>, seq: &mut u64, id: u64, table: u32) -> (Head, Vec<u8>) {
    *seq = seq.wrapping_add(choices.below(4));
    let column = |choices: &mut Choices<'_>| choices.below(12) as u16;
    let steps = (0..choices.below(4)).map(|_| {
        let columns = [column(choices), column(choices), column(choices)];
        let term = (f64::from_bits(choices.word()), column(choices), choices.below(2) == 0);
        let (kind, number) = (choices.below(6) as u16, f64::from_bits(choices.word()));
        StepV1 { kind, to: column(choices), columns, number, terms: vec![term; choices.below(1200) as usize] }
    });
    let steps = steps.collect();
    let sums =
        vec![[choices.below(6) as u16, column(choices), column(choices)]; choices.below(6000) as usize];
    let (shard, free) = (choices.below(70) as u32, Some(choices.word()));
    let mut payload = control::seal(&VectorV1 { shard, seq: *seq, pass: choices.word(), free, steps, sums });
    if choices.below(8) == 0 {
        payload.truncate(choices.below(payload.len() as u64) as usize);
    }
    (VectorFrame { table }.encode(id), payload)
}

/// The cached versions that a worker claims for these keys: mostly of the right length, of any incarnation and age.
fn asking(choices: &mut Choices<'_>, keys: &[u64]) -> Vec<u8> {
    let mut payload = bytes_of(&[choices.word(), choices.word()]);
    payload.extend(bytes_of(keys));
    let bits: Vec<u64> = (0..bit_words(keys.len())).map(|_| choices.word()).collect();
    payload.extend(bytes_of(&bits));
    let held = ones(&bits, keys.len()) + usize::from(choices.below(16) == 0);
    (0..held).for_each(|_| payload.extend((choices.word() as u32).to_le_bytes()));
    payload.resize(payload.len().next_multiple_of(8), 0);
    payload
}

fn push(choices: &mut Choices<'_>, seq: &mut u64, id: u64, table: u32, keys: usize) -> (Head, Vec<u8>) {
    let dim = [1, 1, 3, 16, 32, 64][choices.below(6) as usize];
    let keys = some_keys(choices, keys.min((256 << 10) / (8 + 4 * dim)));
    let keyset = match choices.below(4) {
        0 => pair_of_words(choices.word() as u32, choices.below(4) as u32),
        _ => 0,
    };
    let writes = [
        Write::Gradient,
        Write::Gradient,
        Write::Change,
        Write::Sum,
        Write::Damped,
        Write::Row,
        Write::Delete,
    ];
    let write = writes[choices.below(writes.len() as u64) as usize];
    *seq = seq.wrapping_add(choices.below(4)).wrapping_sub(choices.below(2));
    let (row, count) = (choices.below(3) as u32, keys.len() as u32);
    let slots = keyset == 0 && choices.below(3) == 0;
    let some = keyset != 0 && choices.below(2) == 0;
    let head = PushFrame {
        table,
        keys: count,
        write,
        seq: *seq,
        row,
        total: count,
        keyset,
        slots,
        named: false,
        some,
        f16: write == Write::Gradient && choices.below(3) == 0,
        since: matches!(write, Write::Change | Write::Damped) && choices.below(2) == 0,
    };
    let (mut bits, mut hints, mut others) = (Vec::new(), Vec::new(), &keys[..]);
    if some {
        bits.extend((0..bit_words(keys.len())).map(|_| choices.word()));
        others = &keys[ones(&bits, keys.len())..];
    } else if keyset != 0 {
        others = &[];
    }
    if slots {
        hints.extend((0..count).map(|_| choices.word() as u32 >> (choices.below(4) * 8)));
    }
    let value =
        [0.0, 1.0, -1e30, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 2.0][choices.below(6) as usize];
    let (values, narrow) = (vec![value; keys.len() * dim], vec![value.to_bits() as u16; keys.len() * dim]);
    let values = if head.f16 { PushValues::F16(&narrow) } else { PushValues::F32(&values) };
    let since = [choices.below(1000), choices.below(2)];
    let since = head.since.then_some(&since);
    let payload = PushPayload { name: None, since, bits: &bits, keys: others, slots: &hints, values };
    (head.encode(id), payload.to_bytes())
}

/// Keys of a small set: in shard order, repeated, or in any order.
fn some_keys(choices: &mut Choices<'_>, count: usize) -> Vec<u64> {
    let (first, step) = (choices.below(3000), choices.below(3));
    let key = |i: u64| KEY_BIT | (((first + i * step) % 3000) * 0x0001_0000_0001);
    let mut keys: Vec<u64> = (0..count as u64).map(key).collect();
    if choices.below(8) > 0 {
        keys.sort_unstable_by_key(|key| gannet_core::hash(*key));
    }
    keys
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn add(out: &mut Vec<u8>, head: Head, payload: &[u8]) {
    let from = out.len();
    out.resize(from + HEAD_BYTES, 0);
    Head { len: payload.len().next_multiple_of(8) as u32, ..head }.encode(&mut out[from..]);
    out.extend_from_slice(payload);
    out.resize(from + HEAD_BYTES + payload.len().next_multiple_of(8), 0);
}

/// Changes bytes of the head at `from`, and makes its checksum right.
fn set(out: &mut [u8], from: usize, at: usize, bytes: &[u8]) {
    out[from + at..from + at + bytes.len()].copy_from_slice(bytes);
    seal(&mut out[from..from + HEAD_BYTES]);
}

fn seal(head: &mut [u8]) {
    let crc = crc32c::crc32c(&head[..HEAD_BYTES - 4]);
    head[HEAD_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn flip(choices: &mut Choices<'_>, out: &mut [u8], range: std::ops::Range<usize>, sealed: bool) {
    if range.is_empty() {
        return;
    }
    let at = range.start + choices.below(65_536) as usize % range.len();
    out[at] ^= 1 << choices.below(8);
    if sealed {
        seal(&mut out[range]);
    }
}
