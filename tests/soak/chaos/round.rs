//! The faults of one round, drawn from a seed.

use std::time::Duration;

/// One round.
#[derive(Debug)]
pub struct Round {
    /// Workers at the start. With `spare` there is one more index, whose worker replaces a killed one.
    pub workers: u32,
    pub spare: bool,
    pub servers: usize,
    /// Whether the servers have their shards in folders.
    pub durable: bool,
    pub transport: &'static str,
    /// The seed of the order in which each worker lists the servers.
    pub hosts: u64,
    /// The faults in order.
    pub deeds: Vec<Deed>,
}

/// A fault, this long after this percentage of the tasks is done.
#[derive(Debug)]
pub struct Deed {
    pub percent: u64,
    pub delay: Duration,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// SIGKILL for a worker. After a while worker `then` is started.
    Kill { index: u32, then: u32, after: Duration },
    /// SIGSTOP, and SIGCONT after this time.
    Sleep { index: u32, time: Duration },
    /// SIGKILL for a server. After a while it is started again on its folder with other settings.
    KillServer { which: usize, after: Duration, threads: u32, limits: Limits },
}

/// The limits of a server's sessions.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub credit_requests: u32,
    pub session_bytes: u64,
    pub keyset_bytes: u64,
}

impl Limits {
    /// The defaults.
    pub const USUAL: Limits = Limits { credit_requests: 1024, session_bytes: 1 << 30, keyset_bytes: 1 << 30 };

    fn draw(dice: &mut Dice) -> Limits {
        let mut one = |of: [u64; 3]| of[dice.below(3) as usize];
        Limits {
            credit_requests: one([16, 64, 1024]) as u32,
            session_bytes: one([64 << 20, 256 << 20, 1 << 30]),
            keyset_bytes: one([1 << 10, 1 << 20, 1 << 30]),
        }
    }

    /// As flags of `gannet server`.
    pub fn flags(&self) -> String {
        format!(
            "--credit-requests {} --session-memory {} --keyset-memory {}",
            self.credit_requests, self.session_bytes, self.keyset_bytes
        )
    }
}

/// Numbers from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        gannet::table::mix(self.0) % n
    }

    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

impl Round {
    /// Kinds of faults follow the seed's residues, so that a few consecutive seeds have all of them. The rest is
    /// random.
    pub fn draw(seed: u64, mode: &str) -> Round {
        let mode = mode.bytes().fold(0, |all: u64, byte| all << 8 | u64::from(byte));
        let dice = &mut Dice(seed ^ gannet::table::mix(mode));
        let (workers, servers) = (2 + dice.below(3) as u32, 1 + dice.below(3) as usize);
        let (spare, twice) = (seed.is_multiple_of(2), seed.is_multiple_of(3));
        let (asleep, server) = (seed % 4 == 1, seed % 3 == 1);
        let index = dice.below(workers.into()) as u32;
        let then = if spare { workers } else { index };
        // The worker that sleeps is not the one that is killed.
        let sleeper = (index + 1 + dice.below(u64::from(workers) - 1) as u32) % workers;
        let time = if dice.below(2) == 0 { dice.millis(200, 1500) } else { dice.millis(2500, 4000) };
        let which = dice.below(servers as u64) as usize;
        let kinds = [
            asleep.then_some(What::Sleep { index: sleeper, time }),
            Some(What::Kill { index, then, after: dice.millis(0, 800) }),
            server.then_some(What::KillServer {
                which,
                after: dice.millis(0, 500),
                threads: 0,
                limits: Limits::USUAL,
            }),
            twice.then_some(What::Kill { index: then, then, after: dice.millis(0, 800) }),
        ];
        let mut percent = 5;
        let deed = |what| {
            percent += dice.below(20);
            Deed { percent, delay: dice.millis(0, 40), what }
        };
        let mut deeds: Vec<Deed> = kinds.into_iter().flatten().map(deed).collect();
        let durable = server || dice.below(2) == 0;
        let transport = if dice.below(2) == 0 { "auto" } else { "tcp" };
        // Drawn last, so that the other values of a seed stay as they were.
        for deed in &mut deeds {
            if let What::KillServer { threads, limits, .. } = &mut deed.what {
                (*threads, *limits) = (1 + dice.below(4) as u32, Limits::draw(dice));
            }
        }
        let hosts = dice.below(u64::MAX);
        Round { workers, spare, servers, durable, transport, hosts, deeds }
    }

    /// The same job without faults.
    pub fn undisturbed(workers: u32) -> Round {
        let (spare, servers, durable, transport) = (false, 1, false, "auto");
        Round { workers, spare, servers, durable, transport, hosts: 0, deeds: Vec::new() }
    }

    /// An order of this many servers, for the n-th worker that is started.
    pub fn order(&self, servers: usize, n: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..servers).collect();
        order.sort_by_key(|&server| {
            gannet::table::mix(self.hosts ^ gannet::table::mix(n << 8 | server as u64))
        });
        order
    }

    pub fn declared(&self) -> u32 {
        self.workers + u32::from(self.spare)
    }
}
