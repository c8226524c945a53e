//! Copies that are begun again, while others of the same shards are there: frame by frame.

use crate::sessions::refusals_tests::{ask, greet, refused, small_world};
use bytemuck::cast_slice;
use gannet_core::{CommandChange, CommandRecord, Schema, ShardMemory};
use gannet_optim::{Add, Rule};
use gannet_sim::{Sim, SimStream};
use gannet_transport::Link;
use gannet_wire::frames::command_payload;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::replication::{
    CommandsDoneFrame, CommandsFrame, CopiedFrame, CopyFrame, PromoteFrame, PromotedFrame, StateDoneFrame,
    StateFrame,
};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{CopyV1, StateV1};
use gannet_wire::refusal::Refusal;

/// Begins copies of the only shard of a table. The shard is that of server 0 of 1, and this backup has no tables.
fn begin(sim: &Sim, link: &mut Link<SimStream>, (stream, epoch): (u64, u64), keeps: bool) -> Option<Refusal> {
    let schema = Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) };
    let copy = CopyV1 {
        schema: schema.encode(),
        uid: [7; 16],
        server: 0,
        servers: 1,
        confirmed: true,
        all_births: 1,
        births: vec![(0, 5)],
    };
    let answer = ask(sim, link, CopyFrame { stream, epoch, keeps }.encode(1), &control::seal(&copy));
    (answer.0.kind != CopiedFrame::KIND).then(|| refused(answer).0)
}

/// Tells all that the copies of a stream need to be whole: there are no rows.
fn fill(sim: &Sim, link: &mut Link<SimStream>, stream: u64) {
    let memory = CommandChange::Memory(ShardMemory { piece: 1, pushers: &[], sketch: &[] });
    let mut words = Vec::new();
    command_payload::put_command(
        &mut words,
        &CommandRecord { shard: 0, previous: 0, before: 0, after: 0, change: memory },
    );
    let frame = CommandsFrame { stream, number: 1, more: false };
    assert_eq!(ask(sim, link, frame.encode(1), cast_slice(&words)).0.kind, CommandsDoneFrame::KIND);
}

fn state(sim: &Sim, link: &mut Link<SimStream>, (stream, epoch): (u64, u64)) -> Option<Refusal> {
    let state = StateV1 { name: "runs".into(), run: String::new(), bytes: vec![1] };
    let frame = StateFrame { stream, number: 1, more: false, epoch };
    let answer = ask(sim, link, frame.encode(1), &control::seal(&state));
    (answer.0.kind != StateDoneFrame::KIND).then(|| refused(answer).0)
}

/// An owner that has lost a link begins all streams again over the next one. What it sent over the first may come
/// later, and so may what an earlier owner sent over a later link.
#[test]
fn copies_are_ordered_by_the_epoch_and_then_by_the_link() {
    let (sim, addr) = small_world();
    let (mut first, _) = greet(&sim, &addr);
    let (mut second, _) = greet(&sim, &addr);
    for begin in [|sim: &Sim, link: &mut _, of| begin(sim, link, of, false), state] {
        assert_eq!(begin(&sim, &mut second, (2, 1)), None);
        assert_eq!(begin(&sim, &mut first, (1, 1)), Some(Refusal::Unknown), "an earlier link");
        assert_eq!(begin(&sim, &mut second, (3, 1)), None, "the same link");
        assert_eq!(begin(&sim, &mut first, (4, 2)), None, "a later owner");
        assert_eq!(
            begin(&sim, &mut second, (5, 1)),
            Some(Refusal::Unknown),
            "an earlier owner over a later link"
        );
    }
}

/// A server that has just taken a place fills a backup that has everything. It may die before it has done so.
#[test]
fn whole_copies_that_are_kept_count_until_the_new_ones_are_whole() {
    for (keeps, fills) in [(false, false), (true, false), (true, true)] {
        let (sim, addr) = small_world();
        let (mut link, _) = greet(&sim, &addr);
        assert_eq!(begin(&sim, &mut link, (1, 1), false), None);
        fill(&sim, &mut link, 1);
        assert_eq!(begin(&sim, &mut link, (2, 2), keeps), None);
        if fills {
            fill(&sim, &mut link, 2);
            let stream = CommandsFrame { stream: 1, number: 2, more: false };
            let answer = ask(&sim, &mut link, stream.encode(1), &[]);
            assert_eq!(refused(answer).0, Refusal::Unknown, "the old copies have ended");
        }
        let promote = PromoteFrame { server: 0, servers: 1, epoch: 3 }.encode(1);
        let answer = ask(&sim, &mut link, promote, &[]);
        match keeps {
            true => assert_eq!(PromotedFrame::decode(&answer.0).unwrap().tables, 1),
            false => assert_eq!(refused(answer).0, Refusal::Images),
        }
    }
}
