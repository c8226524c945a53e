//! Clients without an index that are gone: their entries are used again, and none of their pushes is applied twice.

use gannet_core::*;
use gannet_optim::{Add, Rule};
use std::sync::{Arc, Mutex};

const SHARDS: u32 = 4;
const ALL: usize = usize::MAX;

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) }
}

/// One key of each shard, in the order of the shards.
fn keys() -> Vec<u64> {
    let of = |shard| (0..).find(|&key| shard_of(hash(key), SHARDS) == shard).unwrap();
    (0..SHARDS).map(of).collect()
}

fn name(client: u64, seq: u64) -> PushName {
    PushName { pusher: CLIENTS + client, incarnation: client, seq, row: 0 }
}

/// Pushes one row into each of these shards.
fn push(shards: &mut Shards, name: PushName, to: &[u32]) -> Result<Applied, PushError> {
    let all = keys();
    let keys: Vec<u64> = to.iter().map(|&shard| all[shard as usize]).collect();
    shards.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()])
}

fn sums(shards: &mut Shards) -> Vec<f32> {
    let mut out = vec![0.0; SHARDS as usize];
    shards.pull(&keys(), Read::Weights, &mut out, None).unwrap();
    out
}

fn is_refused(pushed: &Result<Applied, PushError>) -> bool {
    matches!(pushed, Err(PushError::Fenced { .. } | PushError::Forgotten { .. }))
}

/// What an owner's backup has.
struct Copy(Arc<Mutex<Shards>>);

impl CommandListener for Copy {
    fn hear(&mut self, command: &CommandRecord<'_>, _: &mut ToldShard<'_>) {
        self.0.lock().unwrap().replay(command).expect("the copy has all earlier commands");
    }
}

/// Each client pushes to all shards, and only now and then to some of them.
fn of(client: u64) -> Vec<u32> {
    if client.is_multiple_of(5) { vec![(client / 5 % 4) as u32] } else { vec![0, 1, 2, 3] }
}

#[test]
fn killed_clients_closed_a_table_for_every_new_pusher() {
    const MANY: u64 = limits::PUSHERS_MAX as u64;
    const NEW: u64 = MANY / 2;
    let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open_dir(folder.path()).unwrap();
    let copied = Store::open_dir(copies.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(), 0..SHARDS).unwrap();
    let copy = Arc::new(Mutex::new(Shards::open(&copied, &schema(), 0..SHARDS).unwrap()));
    shards.tell(Some(Box::new(Copy(copy.clone()))));
    // A worker with an index, a split of the data, and clients until a shard is full.
    let named = |(pusher, incarnation)| PushName { pusher, incarnation, ..name(1, 1) };
    let others = [(3, 2), (DATA_PUSHERS | 9, 4)].map(named);
    others.iter().for_each(|&other| assert!(push(&mut shards, other, &[0, 1, 2, 3]).is_ok()));
    let full = (1..).find(|&client| push(&mut shards, name(client, 1), &of(client)).is_err()).unwrap();
    assert!(full > MANY - 10 && full < MANY * 2);
    assert!(shards.has_more_pushers(MANY as usize - 2), "{}", shards.pushers_known());
    // These live, and one of them has pushed to one shard only. The others are gone.
    let here = [17, 20, full - 1];
    let before = sums(&mut shards);
    // Some have ended well.
    let is_closed = |client: u64| client % 11 == 3 && !client.is_multiple_of(5);
    for client in (1..full).filter(|&client| is_closed(client)) {
        shards.close_pusher(CLIENTS + client, client).unwrap();
    }
    let mut forgotten = 0;
    while shards.has_more_pushers(100) {
        let now = shards.forget_clients(|_| true, &here, 256).unwrap();
        assert!((1..=256).contains(&now));
        forgotten += now;
    }
    assert!(forgotten > MANY as usize - 200 && shards.push_progress().len() < 110);
    // New ones come, and use entries again: not the same ones in each shard.
    for client in full + 1..=full + NEW {
        push(&mut shards, name(client, 1), &[0, 1, 2, 3]).unwrap();
        if client % 300 == 0 {
            let live: Vec<u64> = here.into_iter().chain([client]).collect();
            shards.forget_clients(|_| true, &live, ALL).unwrap();
        }
    }
    let want: Vec<f32> = before.iter().map(|sum| sum + NEW as f32).collect();
    let check = |shards: &mut Shards, round: &str| {
        assert_eq!(sums(shards), want, "{round}");
        for client in (1..full).filter(|client| !here.contains(client)) {
            for shard in of(client) {
                let resent = push(shards, name(client, 1), &[shard]);
                // A shard may still know what one has pushed that has ended well.
                let knows = is_closed(client) && resent.as_ref().is_ok_and(|resent| resent.applied == 0);
                assert!(knows || is_refused(&resent), "{round}: client {client}, shard {shard}: {resent:?}");
            }
        }
        let others = others.map(|other| (other, vec![0, 1, 2, 3]));
        for (known, to) in here.map(|live| (name(live, 1), of(live))).into_iter().chain(others) {
            assert_eq!(push(shards, known, &to).unwrap().duplicate as usize, to.len(), "{round}: {known:?}");
        }
    };
    check(&mut shards, "as it was");
    drop(shards);
    check(&mut Shards::open(&store, &schema(), 0..SHARDS).unwrap(), "opened again");
    drop(copy);
    let mut shards = Shards::open(&copied, &schema(), 0..SHARDS).unwrap();
    check(&mut shards, "the backup");
    // A client that lives goes on, also in shards that had not heard of it.
    for live in here {
        assert_eq!(push(&mut shards, name(live, 2), &[0, 1, 2, 3]).unwrap().applied, SHARDS);
    }
}

/// Whatever a forgotten client asks for, no shard takes anything of it.
#[test]
fn a_forgotten_client_has_no_other_way_in() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..SHARDS).unwrap();
    for client in [5, 6, 7] {
        push(&mut shards, name(client, 1), &[0, 1, 2, 3]).unwrap();
    }
    shards.close_pusher(CLIENTS + 6, 6).unwrap();
    assert_eq!(shards.forget_clients(|client| client == 7, &[], ALL).unwrap(), 2);
    // Other pushers have the entries of both now.
    for client in 8..11 {
        push(&mut shards, name(client, 1), &[0, 1, 2, 3]).unwrap();
    }
    for client in [1, 6, 7] {
        let (pusher, incarnation) = (CLIENTS + client, client);
        assert!(shards.check_pusher(pusher, incarnation).is_err(), "client {client}");
        assert!(shards.introduce_pusher(pusher, incarnation).is_err());
        shards.close_pusher(pusher, incarnation).unwrap();
        shards.fence_pusher(pusher, incarnation).unwrap();
        for shard in 0..SHARDS {
            assert!(is_refused(&push(&mut shards, name(client, 1), &[shard])), "client {client}");
        }
    }
    // The one that was not gone, and all that come, are taken. So is a program that names itself by other numbers.
    for client in [5, 11] {
        assert_eq!(push(&mut shards, name(client, 2), &[0, 1, 2, 3]).unwrap().applied, SHARDS);
    }
    let program = PushName { incarnation: 1, ..name(2, 1) };
    assert_eq!(push(&mut shards, program, &[0]).unwrap().applied, 1);
    assert_eq!(sums(&mut shards), [9.0, 8.0, 8.0, 8.0]);
}

/// What a checkpoint has of pushers is enough: a table that is restored refuses the forgotten ones, too.
#[test]
fn a_restored_table_refuses_clients_that_were_forgotten() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..SHARDS).unwrap();
    for client in 1..=20 {
        push(&mut shards, name(client, 1), &of(client)).unwrap();
    }
    shards.forget_clients(|client| client <= 12, &[3], ALL).unwrap();
    let cursor = |of: &PushProgress| {
        let PushProgress { pusher, incarnation, seq, closed, .. } = *of;
        Cursor { pusher, incarnation, seq, closed }
    };
    let cursors: Vec<Cursor> = shards.push_progress().iter().map(cursor).collect();
    let forgotten = cursors.iter().find(|cursor| cursor.pusher == CLIENTS).unwrap().incarnation;
    assert_eq!(forgotten, 12);
    assert!(!cursors.iter().any(|cursor| cursor.is_forgotten(forgotten)), "{cursors:?}");
    let mut restored = Shards::open(&Store::memory(), &schema(), 0..SHARDS).unwrap();
    cursors.iter().for_each(|cursor| restored.set_cursor(cursor).unwrap());
    for client in 1..=20 {
        let resent = push(&mut restored, name(client, 1), &[0, 1, 2, 3]);
        match client <= 12 && client != 3 {
            true => assert!(is_refused(&resent), "client {client}: {resent:?}"),
            false => assert_eq!(resent.unwrap().duplicate, SHARDS, "client {client}"),
        }
    }
}

/// Shards come together that two servers had, or two threads. One has forgotten a client, and the other knows it.
#[test]
fn a_shard_that_has_forgotten_a_client_refuses_it_beside_shards_that_know_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(), 0..SHARDS).unwrap();
    for client in 1..=9 {
        push(&mut shards, name(client, 1), &[0, 1, 2, 3]).unwrap();
    }
    drop(shards);
    let mut some = Shards::open(&store, &schema(), 0..2).unwrap();
    assert_eq!(some.forget_clients(|_| true, &[], ALL).unwrap(), 9);
    for client in 20..29 {
        push(&mut some, name(client, 1), &[0, 1]).unwrap();
    }
    drop(some);
    let mut shards = Shards::open(&store, &schema(), 0..SHARDS).unwrap();
    for client in 1..=9 {
        shards.introduce_pusher(CLIENTS + client, client).unwrap();
        shards.close_pusher(CLIENTS + client, client).unwrap();
        for shard in [0, 1] {
            let resent = push(&mut shards, name(client, 1), &[shard]);
            assert!(is_refused(&resent), "client {client}, shard {shard}: {resent:?}");
        }
        assert_eq!(push(&mut shards, name(client, 1), &[2, 3]).unwrap().duplicate, 2);
    }
    // The others are forgotten, too, while these are here. They still get no entry where they were forgotten.
    shards.forget_clients(|client| client > 20, &[1, 2], ALL).unwrap();
    for (client, shard) in [(1, 0), (2, 1)] {
        assert!(is_refused(&push(&mut shards, name(client, 1), &[shard])), "client {client}");
    }
    assert_eq!(sums(&mut shards), [18.0, 18.0, 9.0, 9.0]);
}
