//! Servers with data folders. All of them may die at once: they go on with the rows in their folders, if nobody else
//! has had their places.

use super::*;
use crate::blocking::SHARED;
use gannet_core::{Read, Schema, Write};
use gannet_sim::Faults;
use gannet_transport::Net;
use gannet_worker::{Worker, WorkerConfig};

/// Runs a cluster while workers push, and all servers die at once now and then. Returns how often they did, and how
/// many servers failed alone.
fn run_folders(seed: u64, replication: ReplicationMode) -> [u64; 2] {
    let sim = Sim::new(seed, faults(seed));
    let mut cluster = Cluster::with_folders(&sim, seed, replication, None);
    let workers = 2;
    let mode = match seed / 2 % 3 {
        0 => None,
        1 => Some(SyncMode::Ssp(seed as u32 % 4)),
        _ => Some(SyncMode::Bsp(StepReduce { aggregate: workers, merge: Merge::Sum })),
    };
    let book: Book = Rc::new(RefCell::new(vec![Pushes::default(); workers as usize]));
    let table = schema("t", workers, 8);
    let places = Places { coordinator: cluster.reach(), job: "job".into() };
    let servers = cluster.servers();
    let hosts: Vec<Sim> = (0..=workers).map(|rank| cluster.host(&format!("worker {rank}"))).collect();
    let program = |rank: u32| Program {
        sim: hosts[rank as usize].clone(),
        servers: servers.clone(),
        table: table.clone(),
        rank,
        workers,
        incarnation: 1,
        mode,
        book: book.clone(),
        seed,
        places: Some(places.clone()),
        one_sided: OneSided::Auto,
    };
    let spawn = |rank| {
        let program: Program = program(rank);
        sim.spawn(move || program.run())
    };
    let processes: Vec<SimProcess> = (0..workers).map(spawn).collect();
    let reader = mode.is_none().then(|| {
        let (servers, table, places) = (servers.clone(), table.clone(), places.clone());
        let sim = hosts[workers as usize].clone();
        let reader = reader::Reader { sim: sim.clone(), servers, table, book: book.clone(), places, seed };
        sim.spawn(move || reader.run())
    });
    let failed = cluster.run_with_blackouts(|| processes.iter().any(|worker| !worker.has_ended()));
    // Once more behind the last push.
    let last = cluster.are_all_in_folders() && cluster.black_out();
    reader.iter().for_each(|reader| sim.kill(reader));
    while !cluster.serves(0) {
        cluster.restart(None);
        sim.run(Duration::from_millis(100));
        assert!(sim.now() < Duration::from_secs(20_000), "seed {seed}: {}", cluster.state());
    }
    reader::check(&cluster, &table, workers, &book.borrow(), &places, &servers);
    [failed[0] + u64::from(last), failed[1]]
}

#[test]
fn all_servers_with_folders_may_die_at_once() {
    let failed = run_all(seeds_from(3_000, 24), ReplicationMode::Sync);
    // Servers failed alone, too.
    assert!(!are_all() || failed[0] > 7 && failed[1] > 0, "{failed:?}: the test shows nothing");
}

#[test]
fn so_they_may_when_their_rows_are_read_at_once() {
    let failed = run_all(seeds_from(3_100, 12), ReplicationMode::Async);
    assert!(!are_all() || failed[0] > 7, "{failed:?}: the test shows nothing");
}

/// How often all servers died at once in these seeds, and how many servers failed alone.
fn run_all(all: Range<u64>, replication: ReplicationMode) -> [u64; 2] {
    let mut failed = [0; 2];
    for seed in all {
        let _seed = Seed::begin(seed);
        let of_this = run_folders(seed, replication);
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
    }
    failed
}

/// A cluster that the coordinator always answers, and what one worker has pushed.
struct Quiet {
    sim: Sim,
    cluster: Cluster,
    table: Schema,
    pushed: f32,
}

impl Quiet {
    fn new(seed: u64, places: u32, backups: u32) -> Quiet {
        let sim = Sim::new(seed, Faults::none());
        // No call of a coordinator is lost with a seed that is a multiple of 3.
        let mut cluster = Cluster::empty_with_folders(&sim, seed * 3, ReplicationMode::Sync);
        cluster.start_ring(places, backups);
        Quiet { sim, cluster, table: schema("t", 1, 8), pushed: 0.0 }
    }

    fn until(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let end = self.sim.now() + Duration::from_secs(100);
        while !holds(&self.cluster) {
            assert!(self.sim.now() < end, "{what}: {}", self.cluster.state());
            self.sim.run(Duration::from_millis(50));
        }
    }

    /// Pushes once, and checks that the rows have all pushes once.
    fn push(&mut self) {
        let places = Some(Places { coordinator: self.cluster.reach(), job: "job".into() });
        let incarnation = 1 + self.pushed as u64;
        let config = WorkerConfig { places, ..WorkerConfig::new(self.cluster.servers(), 1, incarnation) };
        let mut worker = Worker::connect(self.sim.clone(), config).unwrap();
        let table = worker.open_table(&self.table).unwrap();
        let keys: Vec<u64> = (0..40).map(|n| n * 0x1_0000_0001).chain([SHARED]).collect();
        worker.push(table, &keys, Write::Gradient, &vec![1.0; keys.len()]).unwrap();
        self.pushed += 1.0;
        let mut out = vec![0.0; keys.len()];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        assert!(out.iter().all(|count| *count == self.pushed), "{} pushes: {out:?}", self.pushed);
    }
}

/// The server is killed with each of its calls to the coordinator in turn, before and behind the coordinator's part.
/// Every write to its folder is between two of them.
#[test]
fn a_server_that_takes_its_place_again_may_die_with_any_call() {
    let mut quiet = Quiet::new(1, 1, 0);
    quiet.until("no owner", |cluster| cluster.serves(0));
    quiet.push();
    for is_lost in [true, false] {
        let mut has_served = false;
        for call in 0.. {
            quiet.cluster.kill(0);
            let before = quiet.cluster.epoch(0);
            quiet.cluster.start_until(0, call, is_lost);
            quiet.until("no last call", |cluster| cluster.is_cut_off(0));
            quiet.sim.run(Duration::from_millis(50));
            has_served |= quiet.cluster.epoch(0) > before && quiet.cluster.known(0).is_some();
            quiet.cluster.kill(0);
            quiet.cluster.start_at(0);
            quiet.until("no owner", |cluster| cluster.serves(0));
            quiet.push();
            // It was killed before it had the place, in the middle, and behind.
            if has_served && call > 20 {
                break;
            }
            assert!(call < 200, "it never serves");
        }
    }
}

/// The same while it begins the place for the first time.
#[test]
fn a_server_that_begins_its_place_may_die_with_any_call() {
    for (call, is_lost) in (0..24).flat_map(|call| [(call, true), (call, false)]) {
        let mut quiet = Quiet::new(2, 1, 0);
        quiet.cluster.kill(0);
        quiet.cluster.start_until(0, call, is_lost);
        quiet.sim.run(Duration::from_secs(4));
        quiet.cluster.kill(0);
        quiet.cluster.start_at(0);
        quiet.until("no owner", |cluster| cluster.serves(0));
        quiet.push();
        quiet.cluster.kill(0);
        quiet.cluster.start_at(0);
        quiet.push();
    }
}

/// A backup takes a place, and dies with any call before it is ready. Then nobody has acknowledged anything since.
#[test]
fn the_owner_before_takes_its_place_again_from_a_backup_that_was_not_ready() {
    let mut shown = 0;
    for call in 0.. {
        let mut quiet = Quiet::new(6, 2, 1);
        quiet.until("no backups", |cluster| cluster.serves(1));
        quiet.push();
        quiet.cluster.kill(0);
        // The backup notices it a little later.
        while quiet.cluster.has_lease(0) {
            quiet.sim.run(Duration::from_millis(1));
        }
        quiet.cluster.cut_off_with(1, call);
        quiet.until("no last call", |cluster| cluster.is_cut_off(1));
        quiet.sim.run(Duration::from_millis(50));
        let is_ready = quiet.cluster.known(0).is_some();
        if quiet.cluster.epoch(0) > 1 && is_ready {
            break;
        }
        shown += u32::from(quiet.cluster.epoch(0) > 1);
        quiet.cluster.kill(1);
        quiet.cluster.start_at(1);
        quiet.cluster.start_at(0);
        quiet.until("no owner", |cluster| cluster.serves(1));
        quiet.push();
        assert!(call < 200, "the backup is never ready");
    }
    assert!(shown > 1, "{shown}: the test shows nothing");
}

#[test]
fn a_server_whose_place_was_taken_moves_its_rows_away_and_is_a_backup() {
    let mut quiet = Quiet::new(3, 2, 1);
    quiet.until("no backups", |cluster| cluster.serves(1));
    quiet.push();
    quiet.cluster.kill(0);
    quiet.until("no other owner", |cluster| {
        cluster.known(0).is_some_and(|(owner, _)| owner == Cluster::addr(1, 0))
    });
    quiet.push();
    let taken = quiet.cluster.epoch(0);
    quiet.cluster.start_at(0);
    quiet.until("no backups", |cluster| cluster.serves(1));
    quiet.push();
    assert_eq!(quiet.cluster.epoch(0), taken, "{}", quiet.cluster.state());
    let former = quiet.cluster.folder(0).join("former");
    assert!(former.join("PLACE").is_file() && former.join("t").is_dir());
    assert!(!quiet.cluster.folder(0).join("t").exists());
    // It takes its place again, with its copies, which are in memory.
    quiet.cluster.kill(1);
    quiet
        .until("no owner", |cluster| cluster.known(0).is_some_and(|(owner, _)| owner == Cluster::addr(0, 0)));
    quiet.push();
    quiet.cluster.start_at(1);
    quiet.until("no backups", |cluster| cluster.serves(1));
    quiet.push();
    assert!(!quiet.cluster.folder(0).join("t").exists(), "rows of copies are in memory");
}

/// As by a full disk, which cannot store the claim.
#[test]
fn a_server_that_cannot_store_its_claim_waits_and_loses_nothing() {
    let mut quiet = Quiet::new(5, 1, 0);
    quiet.until("no owner", |cluster| cluster.serves(0));
    quiet.push();
    quiet.cluster.kill(0);
    let epoch = quiet.cluster.epoch(0);
    let in_the_way = quiet.cluster.folder(0).join("PLACE.new");
    std::fs::create_dir(&in_the_way).unwrap();
    quiet.cluster.start_at(0);
    quiet.sim.run(Duration::from_secs(60));
    assert!(!quiet.cluster.has_ended(0) && quiet.cluster.epoch(0) == epoch, "{}", quiet.cluster.state());
    std::fs::remove_dir(&in_the_way).unwrap();
    quiet.until("no owner", |cluster| cluster.serves(0));
    quiet.push();
}

/// As after a power loss, when images are refused: nobody serves the place, and nothing is lost that can be read again.
#[test]
fn a_server_whose_images_cannot_be_opened_ends_and_goes_on_when_they_can() {
    let mut quiet = Quiet::new(7, 1, 0);
    quiet.until("no owner", |cluster| cluster.serves(0));
    quiet.push();
    for _ in 0..2 {
        quiet.cluster.kill(0);
        let image = quiet.cluster.folder(0).join("t/shard-0001.image");
        let away = quiet.cluster.folder(0).join("image");
        std::fs::rename(&image, &away).unwrap();
        quiet.cluster.start_at(0);
        quiet.until("it goes on", |cluster| cluster.has_ended(0));
        assert!(quiet.cluster.known(0).is_none(), "{}", quiet.cluster.state());
        std::fs::rename(&away, &image).unwrap();
        quiet.cluster.start_at(0);
        quiet.until("no owner", |cluster| cluster.serves(0));
        quiet.push();
    }
}

/// The coordinator was started again without its keys. The server must not begin its place anew.
#[test]
fn a_server_whose_coordinator_has_forgotten_its_place_ends() {
    let mut quiet = Quiet::new(4, 1, 0);
    quiet.until("no owner", |cluster| cluster.serves(0));
    quiet.push();
    quiet.cluster.kill(0);
    quiet.cluster.forget();
    quiet.cluster.start_at(0);
    quiet.until("it goes on", |cluster| cluster.has_ended(0));
    assert_eq!(quiet.cluster.epoch(0), 0, "it has begun the place without its rows");
    assert!(quiet.cluster.folder(0).join("t").is_dir(), "the rows stay where they are");
}
