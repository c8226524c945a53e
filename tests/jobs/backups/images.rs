//! Workers that read rows in the images of servers, which lose their places.

use super::cluster::Cluster;
use crate::world::until;

use gannet::optim::Add;
use gannet::table::TableId;
use gannet::worker::OneSided;
use gannet::{Read, Rule, Schema, Transports, Worker, WorkerConfig, Write};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

/// Keys in shards of all servers. Every push adds one to each.
const KEYS: u64 = 256;

fn schema() -> Schema {
    Schema::scalar("counts", Rule::Add(Add))
}

/// A thread that pushes until it is told to end.
struct Writer {
    acknowledged: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(cluster: &Cluster) -> Writer {
        let config = WorkerConfig::builder(["127.0.0.1:1"]).worker(0).one_sided(OneSided::Never).build();
        let (net, config) = cluster.client(config);
        let (acknowledged, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, ends) = (acknowledged.clone(), over.clone());
        let keys: Vec<u64> = (0..KEYS).collect();
        let thread = std::thread::spawn(move || {
            let mut worker = Worker::connect(net, config).unwrap();
            let table = worker.open_table(&schema()).unwrap();
            while !ends.load(SeqCst) {
                worker.push(table, &keys, Write::Gradient, &[1.0; KEYS as usize]).unwrap();
                count.fetch_add(1, SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        Writer { acknowledged, over, thread }
    }
}

/// A worker that only reads.
struct Reader {
    worker: Worker<Transports>,
    table: TableId,
}

impl Reader {
    fn start(cluster: &Cluster) -> Reader {
        let config = WorkerConfig { one_sided: OneSided::Always, ..WorkerConfig::reader(["127.0.0.1:1"]) };
        let (net, config) = cluster.client(config);
        let mut worker = Worker::connect(net, config).unwrap();
        let table = worker.open_table(&schema()).unwrap();
        Reader { worker, table }
    }

    /// Pulls until `is_over`, which is told how many rows were read without a request. No pull may miss a push that was
    /// acknowledged before it.
    fn read(&mut self, acknowledged: &AtomicU64, mut is_over: impl FnMut(u64) -> bool) {
        let keys: Vec<u64> = (0..KEYS).collect();
        let (from, mut rows) = (self.worker.counters().near_rows, [0.0; KEYS as usize]);
        until("the reader has read enough", || {
            let least = acknowledged.load(SeqCst) as f32;
            self.worker.pull(self.table, &keys, Read::Weights, &mut rows).unwrap();
            let missed = rows.iter().filter(|count| **count < least).count();
            assert_eq!(missed, 0, "of {KEYS} rows, with {least} pushes: {rows:?}");
            is_over(self.worker.counters().near_rows - from)
        });
    }
}

#[test]
fn a_reader_of_images_goes_on_with_those_of_the_next_owner() {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(1);
    let writer = Writer::start(&cluster);
    let mut reader = Reader::start(&cluster);
    reader.read(&writer.acknowledged, |near| near > 20 * KEYS);
    // It does not know that its lease ends, and leaves its images as they are.
    let asleep = cluster.servers[0].take().unwrap();
    asleep.child.signal(Signal::STOP);
    let before = writer.acknowledged.load(SeqCst);
    reader.read(&writer.acknowledged, |_| writer.acknowledged.load(SeqCst) > before + 10);
    assert_eq!((cluster.owner(0), cluster.owner(1)), (1, 1));
    asleep.child.signal(Signal::CONT);
    let mut asleep = asleep;
    assert_eq!(asleep.child.ended().code(), Some(1), "it has lost its place");
    writer.over.store(true, SeqCst);
    writer.thread.join().unwrap();
    // Some pull reads all rows in the images of the next owner.
    let mut before = 0;
    reader.read(&writer.acknowledged, |near| std::mem::replace(&mut before, near) + KEYS == near);
}
