//! A shard has one owner at a time in a process.

use gannet_core::*;
use gannet_optim::{Add, Rule};

/// Once, two owners of one shard overwrote each other's rows.
#[test]
fn a_shard_that_is_open_is_not_opened_again() {
    let schema = |name: &str| Schema { shards: 4, ..Schema::scalar(name, Rule::Add(Add)) };
    let folder = tempfile::tempdir().unwrap();
    for store in [Store::memory(), Store::open_dir(folder.path()).unwrap()] {
        let first = Shards::open(&store, &schema("t"), 0..2).unwrap();
        // Other shards can be opened: those of another table, and the rest of this one.
        let rest = Shards::open(&store.clone(), &schema("t"), 2..4).unwrap();
        Shards::open(&store, &schema("u"), 0..4).unwrap();
        let refused = Shards::open(&store.clone(), &schema("t"), 1..4).err().unwrap();
        assert!(matches!(refused, OpenError::Open { shard: 1, .. }), "{refused}");
        let text = "shard 1 of table \"t\" is open in this process already";
        assert!(refused.to_string().starts_with(text), "{refused}");
        drop(rest);
        // A refused call leaves no shard open.
        Shards::open(&store, &schema("t"), 0..4).err().unwrap();
        drop(first);
        Shards::open(&store, &schema("t"), 0..4).unwrap();
    }
}
