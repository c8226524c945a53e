//! How a table is made in two phases, frame by frame. A start that was interrupted goes on, and a request for an
//! earlier incarnation of the server makes nothing.

use crate::config::ServerConfig;
use crate::local::LocalServer;
use crate::sessions::refusals_tests::{ask, greet, refused};
use gannet_core::{Read, Schema, Store, Write};
use gannet_optim::{Add, Rule};
use gannet_sim::{Faults, Sim, SimStream};
use gannet_transport::{Head, Link};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::tables::{
    ConfirmFrame, ConfirmedFrame, IdentifyFrame, OpenTableFrame, TableOpenedFrame,
};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{ConfirmV2, HeldV1, IdentifyV2, IdentityV1, OpenTableV2, TableOpenedV4};
use gannet_wire::refusal::Refusal;
use gannet_worker::{Worker, WorkerConfig};

fn schema() -> Schema {
    Schema { shards: 8, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn start(sim: &Sim, addr: &str, store: &Store) -> (u64, String) {
    let config = ServerConfig { threads: 2, store: store.clone(), ..ServerConfig::new(addr) };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    (sim.add_actor(move || server.run().unwrap()), addr)
}

fn identify(sim: &Sim, link: &mut Link<SimStream>) -> Option<HeldV1> {
    let request = control::seal_as(2, &IdentifyV2 { table: "t".into(), server: 0, servers: 0 });
    let (_, answer) = ask(sim, link, IdentifyFrame {}.encode(0), &request);
    control::open::<IdentityV1>(&answer).unwrap().held
}

fn open(sim: &Sim, link: &mut Link<SimStream>, uid: [u8; 16], make_in: u64) -> (Head, Vec<u8>) {
    let request = OpenTableV2 { schema: schema().encode(), uid, server: 0, servers: 2, make_in };
    ask(sim, link, OpenTableFrame::default().encode(0), &control::seal_as(2, &request))
}

/// A table for which there was no memory could not be made with fewer shards: the server took it for an existing one.
#[test]
fn a_table_that_could_not_be_made_is_forgotten() {
    let sim = Sim::new(1, Faults::none());
    let store = Store::memory_with(gannet_core::GrowthConfig { memory_limit: 4 << 20, clock: None });
    let config = ServerConfig { threads: 1, store, ..ServerConfig::new("sim:0") };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    sim.add_actor(move || server.run().unwrap());
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([&*addr], 1, 1)).unwrap();
    let many = worker.open_table(&Schema { shards: 4096, ..schema() }).unwrap_err().to_string();
    assert!(many.contains("limit"), "{many}");
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([&*addr], 1, 2)).unwrap();
    let table = worker.open_table(&schema()).unwrap();
    assert_eq!(worker.status(table).unwrap().stats.rows, 0);
}

#[test]
fn a_creation_that_was_killed_between_two_servers_goes_on() {
    let sim = Sim::new(1, Faults::none());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let stores = folders.each_ref().map(|folder| Store::open_dir(folder.path()).unwrap());
    let (actor, one) = start(&sim, "sim:0", &stores[0]);
    let (_, other) = start(&sim, "sim:0", &stores[1]);
    let (mut link, welcome) = greet(&sim, &one);
    // The worker that makes the table dies when one thread of one server has made its shards.
    let (head, opened) = open(&sim, &mut link, [0; 16], welcome.incarnation);
    assert_eq!(head.kind, TableOpenedFrame::KIND);
    let opened = control::open_as::<TableOpenedV4>(4, &opened).unwrap();
    assert_eq!((opened.shards, opened.confirmed), (vec![(0, 2)], false));
    sim.remove_actor(actor);
    sim.reset_all(&one);
    start(&sim, &one, &stores[0]);
    let (mut link, _) = greet(&sim, &one);
    let held = identify(&sim, &mut link).unwrap();
    assert_eq!((held.uid, held.server, held.servers, held.confirmed), (opened.uid, 0, 2, false));
    // The next worker names the servers in the opposite order.
    for (incarnation, times) in [(1, 1.0), (2, 2.0)] {
        let mut worker =
            Worker::connect(sim.clone(), WorkerConfig::new([&*other, &*one], 5, incarnation)).unwrap();
        let table = worker.open_table(&schema()).unwrap();
        let keys: Vec<u64> = (0..500).collect();
        worker.push(table, &keys, Write::Gradient, &[1.0; 500]).unwrap();
        let mut out = [0.0; 500];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        assert_eq!(out, [times; 500]);
        let record = worker.table_record(table);
        assert_eq!((record.uid, record.births[..2].to_vec()), (opened.uid, opened.births.clone()));
        assert_eq!((&record.holders[1].addr, record.holders[1].first), (&one, 0));
    }
    let held = identify(&sim, &mut link).unwrap();
    assert!(held.uid == opened.uid && held.confirmed);
}

#[test]
fn what_was_asked_in_another_life_of_a_server_makes_nothing() {
    let sim = Sim::new(1, Faults::none());
    let store = Store::memory();
    let (actor, addr) = start(&sim, "sim:0", &store);
    let (mut link, before) = greet(&sim, &addr);
    assert_eq!(identify(&sim, &mut link), None);
    sim.remove_actor(actor);
    sim.reset_all(&addr);
    start(&sim, &addr, &store);
    let (mut link, now) = greet(&sim, &addr);
    for make_in in [before.incarnation, 0] {
        let (refusal, text) = refused(open(&sim, &mut link, [7; 16], make_in));
        assert!(refusal == Refusal::Identity && text.contains("nothing of table"), "{text}");
    }
    assert_eq!(identify(&sim, &mut link), None);
    let (_, opened) = open(&sim, &mut link, [7; 16], now.incarnation);
    let opened = control::open_as::<TableOpenedV4>(4, &opened).unwrap();
    assert_eq!(opened.uid, [7; 16]);
    // Another table of the same name, and a new one, do not have the id of the table that is here.
    for uid in [[8; 16], [0; 16]] {
        let (refusal, text) = refused(open(&sim, &mut link, uid, now.incarnation));
        assert!(refusal == Refusal::Identity && text.contains("is here with id 0707"), "{text}");
    }
    let mut confirm = |table, uid| {
        let request = control::seal_as(2, &ConfirmV2 { table, uid, all_births: 6 });
        ask(&sim, &mut link, ConfirmFrame {}.encode(0), &request)
    };
    for (table, uid) in [(opened.table, [8; 16]), (opened.table + 1, [7; 16])] {
        assert_eq!(refused(confirm(table, uid)).0, Refusal::Identity);
    }
    assert_eq!(confirm(opened.table, [7; 16]).0.kind, ConfirmedFrame::KIND);
    assert!(identify(&sim, &mut link).unwrap().confirmed);
    let (refusal, text) = refused({
        let request = control::seal_as(2, &IdentifyV2 { table: "../t".into(), server: 0, servers: 0 });
        ask(&sim, &mut link, IdentifyFrame {}.encode(0), &request)
    });
    assert!(refusal == Refusal::Malformed && text.contains("table name"), "{text}");
}
