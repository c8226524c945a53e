//! A shard whose rows outgrow the addresses that were reserved for them: the owner and its readers go over to a larger
//! range.

use crate::viewing::{agree, cut, name, schema, value, view};
use gannet_core::limits::SLAB_RESERVE_BYTES;
use gannet_core::*;
use gannet_optim::{Add, Rule};

const DIM: usize = 256;
const BATCH: u64 = 1000;

fn push(table: &mut Shards, batch: u64) {
    let keys = cut((batch * BATCH..(batch + 1) * BATCH).collect(), 1);
    let values: Vec<f32> = keys.iter().flat_map(|&key| (0..DIM).map(move |at| value(key, at))).collect();
    assert_eq!(
        table.push(&name(batch + 1), Write::Gradient, &keys, None, &values).unwrap().applied,
        BATCH as u32
    );
}

#[test]
fn rows_and_their_readers_stay_when_a_shard_outgrows_its_addresses() {
    let folder = tempfile::tempdir().unwrap();
    for store in [Store::memory(), Store::open_dir(folder.path()).unwrap()] {
        let schema = Schema { init: Init::Zero, ..schema(Rule::Add(Add), DIM as u32, 1) };
        let mut table = Shards::open(&store, &schema, 0..1).unwrap();
        push(&mut table, 0);
        let mut early = view(&table);
        let listed = table.readable(&ShardSet::from(0..1));
        let batches = 3 * SLAB_RESERVE_BYTES as u64 / (BATCH * (16 + 4 * DIM as u64));
        for batch in 1..batches {
            push(&mut table, batch);
            agree(&mut table, &mut early, &[0, 7, batch * BATCH, (batch + 1) * BATCH - 1, u64::MAX]);
        }
        // What a device was told stays where it is.
        let now = table.readable(&ShardSet::from(0..1));
        assert_eq!((now[0].header, now[0].rows[0]), (listed[0].header, listed[0].rows[0]));
        assert!(now[0].rows.iter().map(|rows| rows.bytes).sum::<usize>() > 2 * SLAB_RESERVE_BYTES);
        let all: Vec<u64> = (0..batches * BATCH).step_by(37).collect();
        agree(&mut table, &mut early, &all);
        let mut late = view(&table);
        agree(&mut table, &mut late, &all);
        if store.durable() {
            drop(table);
            let mut again = Shards::open(&store, &schema, 0..1).unwrap();
            assert_eq!(again.stats().rows, batches * BATCH);
            let mut late = view(&again);
            agree(&mut again, &mut late, &all);
            push(&mut again, batches);
            agree(&mut again, &mut late, &[batches * BATCH]);
        }
    }
}
