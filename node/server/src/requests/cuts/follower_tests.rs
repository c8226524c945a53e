//! Followers over raw links that read nothing, too late, or rows that are dropped meanwhile.

use crate::limits::{CUT_UNASKED, FOLLOWER_FREEZE_MAX, FOLLOWERS_MAX};
use crate::sessions::refusals_tests::{acked, ask, bytes, greet, open, refused, small_world};
use gannet_core::Write;
use gannet_sim::{Sim, SimStream};
use gannet_transport::{Head, Link, Net};
use gannet_wire::frames::bulk::PushFrame;
use gannet_wire::frames::cuts::{CutFrame, CutRowsFrame, ReadCutFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::tables::{DropTableFrame, TableDroppedFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::DropTableV1;
use gannet_wire::messages::cuts::{CutActionV1, CutReplyV1, CutRequestV1, FollowerMarkV1};
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Rows of a push. Three of them do not fit into one block of a cut.
const ROWS: u64 = 8_000;

/// A server with a table, and the link of a worker.
struct World {
    sim: Sim,
    addr: String,
    worker: Link<SimStream>,
    seq: u64,
}

impl World {
    fn new() -> World {
        let (sim, addr) = small_world();
        let (mut worker, _) = greet(&sim, &addr);
        open(&sim, &mut worker);
        let mut world = World { sim, addr, worker, seq: 0 };
        (0..3).for_each(|part| assert_eq!(world.push(part), ROWS as u32));
        world
    }

    /// Pushes 1 to a part of the rows. Returns how many were applied.
    fn push(&mut self, part: u64) -> u32 {
        self.seq += 1;
        let keys: Vec<u64> = (part * ROWS..(part + 1) * ROWS).collect();
        let push = PushFrame {
            table: 0,
            keys: keys.len() as u32,
            write: Write::Gradient,
            seq: self.seq,
            row: 0,
            total: 0,
            keyset: 0,
            slots: false,
            named: false,
            some: false,
            f16: false,
            since: false,
        };
        let payload = bytes(&keys, &vec![1.0; keys.len()]);
        acked(&ask(&self.sim, &mut self.worker, push.encode(1), &payload).0).applied
    }

    fn drop_table(&mut self) {
        let drop = control::seal(&DropTableV1 { table: "t".into() });
        let dropped = ask(&self.sim, &mut self.worker, DropTableFrame {}.encode(2), &drop);
        assert_eq!(dropped.0.kind, TableDroppedFrame::KIND);
    }

    fn follower(&self, cut: u64) -> Following {
        Following { sim: self.sim.clone(), link: greet(&self.sim, &self.addr).0, cut }
    }
}

/// A follower's link, and the number of its cut.
struct Following {
    sim: Sim,
    link: Link<SimStream>,
    cut: u64,
}

impl Following {
    fn step(&mut self, action: CutActionV1) -> (Head, Vec<u8>) {
        let request = CutRequestV1 { cut: self.cut, run: String::new(), action };
        ask(&self.sim, &mut self.link, CutFrame {}.encode(3), &control::seal(&request))
    }

    fn freeze(&mut self, ms: u32) -> (Head, Vec<u8>) {
        self.step(CutActionV1::FreezeForFollower { ms })
    }

    fn mark(&mut self) {
        self.freeze(100);
        let mark = FollowerMarkV1 { tables: vec!["t".into()], bases: Vec::new() };
        let (_, marked) = self.step(CutActionV1::MarkForFollower(mark));
        assert!(matches!(control::open(&marked).unwrap(), CutReplyV1::Marked { .. }));
        self.step(CutActionV1::Release);
    }

    fn read(&mut self) -> (Head, Vec<u8>) {
        ask(&self.sim, &mut self.link, ReadCutFrame { cut: self.cut }.encode(4), &[])
    }
}

/// A table that was dropped while it was read gave half of its rows, as if they were all.
#[test]
fn a_table_that_is_dropped_while_it_is_read_is_refused() {
    let mut world = World::new();
    let mut follower = world.follower(1);
    follower.mark();
    let first = CutRowsFrame::decode(&follower.read().0).unwrap();
    assert!(first.rows > 0 && first.flags & CutRowsFrame::LAST == 0);
    world.drop_table();
    let (refusal, text) = refused(follower.read());
    assert!(refusal == Refusal::Cut && text.contains("begin again"), "{text}");
}

/// A follower that marks a cut and reads nothing stops no push, and is forgotten.
#[test]
fn a_follower_that_reads_nothing_stops_nobody() {
    let mut world = World::new();
    let mut follower = world.follower(1);
    follower.mark();
    for part in [0, 1, 2, 0, 1, 2] {
        assert_eq!(world.push(part), ROWS as u32);
    }
    world.sim.run(CUT_UNASKED + Duration::from_secs(2));
    assert_eq!(refused(follower.read()).0, Refusal::Cut);
    follower.cut = 2;
    follower.mark();
    assert!(CutRowsFrame::decode(&follower.read().0).unwrap().rows > 0);
}

/// A follower that never releases holds pushes back for a part of a second, whatever it asks for.
#[test]
fn a_follower_that_never_releases_lets_pushes_in() {
    let mut world = World::new();
    let mut follower = world.follower(1);
    follower.freeze(60_000);
    let from = world.sim.now();
    assert_eq!(world.push(0), ROWS as u32);
    let held = world.sim.now() - from;
    assert!(held < FOLLOWER_FREEZE_MAX + Duration::from_millis(100), "{held:?}");
    assert_eq!(refused(follower.step(CutActionV1::Release)).0, Refusal::Cut);
}

#[test]
fn followers_have_a_limit_and_a_cut_must_be_marked() {
    let world = World::new();
    let mut all: Vec<Following> = (1..=FOLLOWERS_MAX as u64).map(|cut| world.follower(cut)).collect();
    all.iter_mut().for_each(Following::mark);
    let mut further = world.follower(99);
    let (refusal, text) = refused(further.freeze(100));
    assert!(refusal == Refusal::Cut && text.contains("the limit"), "{text}");
    // Each of them reads its own cut to the end, and the next one has a place.
    for follower in &mut all {
        let mut rows = 0;
        loop {
            let block = CutRowsFrame::decode(&follower.read().0).unwrap();
            rows += u64::from(block.rows);
            if block.flags & CutRowsFrame::LAST != 0 {
                break;
            }
        }
        assert_eq!(rows, 3 * ROWS);
        follower.step(CutActionV1::End);
    }
    further.freeze(100);
    let (refusal, text) = refused(further.read());
    assert!(refusal == Refusal::Malformed && text.contains("not marked"), "{text}");
}
