//! Tests of the queue for a backup: what is lost with a connection, and for which fill workers wait.

use crate::places::own::OwnPlace;
use crate::replication::queue::*;
use crate::replication::stream::Fill;
use gannet_core::{CommandChange, CommandRecord, RowStates};
use gannet_wire::command_block::Block;
use gannet_wire::messages::control::CopyV1;

const SHARD: u32 = 3;

/// Begins a table whose only shard is kept by the last of a backup's threads.
const PLACE: OwnPlace = OwnPlace { epoch: 1, is_ready: true, is_held: false };

fn begin(queue: &CommandQueue, threads: usize) {
    let copies = |thread| CopyV1 {
        schema: Vec::new(),
        uid: [0; 16],
        server: 0,
        servers: 2,
        confirmed: true,
        all_births: 0,
        births: if thread + 1 == threads { vec![(SHARD, 1)] } else { Vec::new() },
    };
    let begun = StreamBeginning { stream: 7, place: PLACE, told: 0, is_awaited: true };
    queue.begin_table(0, begun, &(0..threads).map(copies).collect::<Vec<_>>());
}

fn add_piece(queue: &CommandQueue, told: u64) {
    let states = RowStates { piece: 1, keys: &[5], rows: &[0.5], gone: &[] };
    let change = CommandChange::Rows(states);
    queue.add_piece(0, told, &CommandRecord { shard: SHARD, previous: 0, before: 0, after: 0, change });
}

#[test]
fn rows_for_a_backup_that_is_lost_meanwhile_are_dropped() {
    let queue = CommandQueue::default();
    queue.connect(1, 1);
    begin(&queue, 1);
    assert_eq!(queue.next_fill(usize::MAX), Some((0, SHARD, Fill::NotBegun)));
    queue.disconnect();
    add_piece(&queue, 0);
    queue.set_fill(0, SHARD, Fill::Whole, 1);
    assert!(queue.bytes() == 0 && queue.next_fill(usize::MAX).is_none());
    queue.connect(1, 1);
    add_piece(&queue, 1);
    assert!(queue.take(0).is_none(), "the table has no stream over this connection");
    begin(&queue, 1);
    add_piece(&queue, 2);
    queue.set_fill(0, SHARD, Fill::Whole, 3);
    assert!(matches!(queue.take(0), Some(Block::Copy { .. })));
    assert!(matches!(queue.take(0), Some(Block::Commands { number: 1, .. })));
    queue.note_ready(1);
    assert!(!queue.is_ready(1), "the rows are not acknowledged");
    (0..2).for_each(|_| queue.acknowledge(0));
    queue.note_ready(1);
    assert!(queue.is_ready(1) && queue.bytes() == 0);
}

#[test]
fn rows_for_a_backup_that_came_back_with_fewer_threads_are_dropped() {
    let queue = CommandQueue::default();
    queue.connect(1, 1);
    // The server thread has not noticed yet that the backup had two threads before.
    begin(&queue, 2);
    add_piece(&queue, 0);
    assert!(queue.take(0).is_none() && queue.bytes() == 0);
}

/// Begins one more table of the thread.
fn begin_another(queue: &CommandQueue, table: usize, is_awaited: bool) {
    let (schema, births) = (Vec::new(), vec![(SHARD, 1)]);
    let copies =
        CopyV1 { schema, uid: [1; 16], server: 1, servers: 2, confirmed: true, all_births: 0, births };
    let begun = StreamBeginning { stream: 8 + table as u64, place: PLACE, told: 9, is_awaited };
    queue.begin_table(table, begun, &[copies]);
}

#[test]
fn workers_wait_for_the_fill_of_a_new_table_and_not_for_that_of_a_place_that_was_taken() {
    let queue = CommandQueue::default();
    queue.connect(1, 1);
    queue.note_ready(0);
    queue.join();
    begin_another(&queue, 0, false);
    assert_eq!(queue.gate(1), 9, "the copies of the place are begun behind nine commands");
    assert_eq!(queue.gate(2), 0, "a table was opened, and its stream is not begun");
    begin_another(&queue, 1, true);
    assert_eq!(queue.gate(2), 0);
    assert_eq!(queue.next_fill(usize::MAX), Some((1, SHARD, Fill::NotBegun)), "the new table is first");
    let states = RowStates { piece: 1, keys: &[5], rows: &[0.5], gone: &[] };
    let change = CommandChange::Rows(states);
    queue.add_piece(1, 9, &CommandRecord { shard: SHARD, previous: 0, before: 0, after: 0, change });
    queue.set_fill(1, SHARD, Fill::Whole, 10);
    while queue.take(0).is_some() {
        assert_eq!(queue.gate(2), 0, "the rows of the new table are not acknowledged");
    }
    (0..3).for_each(|_| queue.acknowledge(0));
    assert_eq!(queue.gate(2), u64::MAX);
    queue.note_ready(2);
    assert!(!queue.is_ready(1), "the backup has not the place that was taken");
    assert_eq!(queue.next_fill(usize::MAX), Some((0, SHARD, Fill::NotBegun)));
}
