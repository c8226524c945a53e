//! A deterministic job needs every worker. Whoever waits for a dead one ends, and says for whom it waited. Nobody is
//! fenced, so the dead one may come back.

use crate::model::schema;
use crate::stepping::{Seed, Servers, Stepper, faults, member, seeds_from};

use gannet_sim::Sim;
use gannet_transport::Prng;
use gannet_wire::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet_worker::WorkerError;
use std::ops::Range;
use std::time::Duration;

const WORKERS: u32 = 3;
const BSP: SyncMode = SyncMode::Bsp(StepReduce { aggregate: WORKERS, merge: Merge::Mean });
const TIMEOUT: Duration = Duration::from_secs(10);

struct Scene {
    sim: Sim,
    steppers: Vec<Stepper>,
    prng: Prng,
    seed: u64,
    _servers: Servers,
}

impl Scene {
    fn new(seed: u64, mode: SyncMode) -> Scene {
        let sim = Sim::new(seed, faults(seed));
        let servers = Servers::new(&sim, 1 + seed % 2, 1 + seed as usize % 3);
        let stepper = |rank| {
            let strict = SyncConfig { worker_timeout: TIMEOUT, strict: true, ..member(rank, WORKERS, mode) };
            Stepper::new(&sim, &servers.addrs(), &schema("t", 1, 8), strict, 10, 0)
        };
        let steppers = (0..WORKERS).map(stepper).collect();
        Scene { sim, steppers, prng: Prng::new(seed), seed, _servers: servers }
    }

    /// A turn of a worker. Whether it has made all its steps.
    fn turn(&mut self, rank: usize) -> Result<bool, WorkerError> {
        self.sim.run(Duration::from_millis(self.prng.below(20)));
        let stepper = &mut self.steppers[rank];
        if let Some((cut, _, pull)) = stepper.turn(&mut self.prng, 20)? {
            let values = vec![1.0; cut.keys().len()];
            stepper.push(&cut, pull.id, values)?;
        }
        Ok(stepper.made == stepper.steps)
    }

    /// Worker `stops` stops after its fourth step. Returns the errors of the others.
    fn end(&mut self, stops: usize) -> Vec<(usize, WorkerError)> {
        let mut ended = Vec::new();
        for turn in 0..100_000 {
            let rank = turn % WORKERS as usize;
            if rank == stops && self.steppers[rank].made == 4 || ended.iter().any(|(of, _)| *of == rank) {
                continue;
            }
            match self.turn(rank) {
                Ok(is_done) => assert!(!is_done, "seed {}: {rank} went on without {stops}", self.seed),
                Err(error) => ended.push((rank, error)),
            }
            if ended.len() == WORKERS as usize - 1 {
                return ended;
            }
        }
        panic!("seed {}: no end", self.seed)
    }
}

fn ends(mode: SyncMode, seeds: Range<u64>) {
    for seed in seeds {
        let _seed = Seed::begin(seed);
        let mut scene = Scene::new(seed, mode);
        let stops = seed as usize % WORKERS as usize;
        for (rank, error) in scene.end(stops) {
            let text = error.to_string();
            let is_it = matches!(error, WorkerError::WorkerLost { rank, silent, .. }
                if rank as usize == stops && silent > TIMEOUT);
            let says = format!("worker {stops}, which is at clock ");
            let says = text.contains(&says) && text.contains("has given no sign for 1");
            assert!(is_it && says, "seed {seed} worker {rank}: {text}");
        }
        // It was only asleep. It goes on, until it waits for the others, who have ended.
        scene.steppers.iter_mut().filter(|of| of.member.rank as usize != stops).for_each(|of| of.done = true);
        scene.steppers.retain(|of| !of.done);
        let error = (0..20_000).find_map(|_| scene.turn(0).err()).expect("the others have ended");
        let is_it = matches!(error, WorkerError::WorkerLost { rank, .. } if rank as usize != stops);
        assert!(is_it, "seed {seed}: it was fenced, or another end: {error}");
    }
}

#[test]
fn whoever_waits_for_a_dead_worker_of_a_strict_group_ends_and_nobody_is_fenced() {
    ends(BSP, seeds_from(300, 8));
}

#[test]
fn also_within_a_bound() {
    ends(SyncMode::Ssp(1), seeds_from(320, 8));
}

/// Its link broke while it was asleep, so the server had not its last step, and its pull waited for that. It asked
/// whether the worker for which it waits is dead, and was told that it is: nothing had been heard of it.
#[test]
fn a_worker_that_woke_up_asked_whether_it_is_dead_itself_and_ended() {
    ends(BSP, 310..311);
}
