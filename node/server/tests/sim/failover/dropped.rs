//! A table is dropped, and made anew. A backup that no worker knows of keeps no copies of the first one.

use crate::cluster::Cluster;
use crate::model::schema;
use gannet_core::{Read, Write};
use gannet_sim::{Faults, Sim};
use gannet_worker::{Places, Worker, WorkerConfig};
use std::time::Duration;

const KEYS: u64 = 200;

/// One place, whose backups are two servers without a place, and a coordinator that always answers.
fn taken_after(drop: impl FnOnce(&Sim, &mut Worker<Sim>)) -> [Vec<f32>; 2] {
    let sim = Sim::new(0, Faults::none());
    let mut cluster = Cluster::new(&sim, 0);
    assert_eq!((cluster.places, cluster.backups), (1, 2));
    cluster.heal();
    let places = Places { coordinator: cluster.reach(), job: "job".into() };
    let servers = cluster.servers();
    let connect = |pusher| {
        let config =
            WorkerConfig { places: Some(places.clone()), ..WorkerConfig::new(servers.clone(), pusher, 1) };
        Worker::connect(sim.clone(), config).unwrap()
    };
    let keys: Vec<u64> = (0..KEYS).collect();
    let mut first = connect(1);
    for name in ["t", "u"] {
        let table = first.open_table(&schema(name, 1, 8)).unwrap();
        first.push(table, &keys, Write::Gradient, &[1.0; KEYS as usize]).unwrap();
    }
    std::mem::drop(first);
    drop(&sim, &mut connect(2));
    // The rows of the new table have other values.
    let mut second = connect(3);
    let table = second.open_table(&schema("t", 1, 8)).unwrap();
    second.push(table, &keys, Write::Gradient, &[3.0; KEYS as usize]).unwrap();
    std::mem::drop(second);
    cluster.kill(0);
    for _ in 0..300 {
        sim.run(Duration::from_millis(100));
        if cluster.has_owner(0) {
            break;
        }
    }
    assert!(cluster.has_owner(0), "nobody has taken the place: {}", cluster.state());
    let mut last = connect(4);
    ["t", "u"].map(|name| {
        let table = last.open_table(&schema(name, 1, 8)).unwrap();
        let mut rows = vec![0.0; KEYS as usize];
        last.pull(table, &keys, Read::Weights, &mut rows).unwrap();
        rows
    })
}

#[test]
fn a_backup_ended_when_it_took_a_table_that_was_made_anew() {
    let [made_anew, dropped] = taken_after(|_, worker| {
        worker.drop_table("t").unwrap();
        worker.drop_table("u").unwrap();
    });
    assert!(made_anew.iter().all(|row| *row == 3.0), "{made_anew:?}");
    assert!(dropped.iter().all(|row| *row == 0.0), "{dropped:?}");
}
