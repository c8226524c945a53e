//! The faults of a round of followers, drawn from a seed.

use crate::chaos::Dice;
use std::time::Duration;

/// What happens to a process, in the order in which processes come back: a follower begins when its servers are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL. It comes back on its data folder, or a backup takes its place and it comes back as a backup.
    KillServer(usize),
    /// SIGKILL for a server with backups. Another one comes in its stead, at a new address: the place moves.
    MoveServer(usize),
    /// SIGSTOP, then SIGCONT. A server with backups loses its place meanwhile.
    StopServer(usize),
    /// SIGKILL for a follower: the one that feeds the other (0), or that one.
    KillFollower(usize),
    /// SIGKILL for a trainer.
    KillTrainer(usize),
    /// All servers and trainers are killed, and begin again from an older checkpoint.
    Restore,
}

/// Faults at once.
#[derive(Debug)]
pub struct Blow {
    /// It comes when so many percent of the tasks are done.
    pub percent: u64,
    pub faults: Vec<Fault>,
    /// How long processes are away.
    pub pause: Duration,
    /// The next blow comes when followers are new again.
    pub waits: bool,
    /// Chooses a checkpoint.
    pub chance: u64,
}

/// A round.
#[derive(Debug)]
pub struct Round {
    /// Servers are backups of each other. Otherwise they have data folders.
    pub backed: bool,
    pub threads: [u64; 2],
    pub blows: Vec<Blow>,
}

impl Round {
    /// The first blow of each round has a kind of fault that follows the seed, so that a few seeds have all kinds.
    pub fn draw(seed: u64) -> Round {
        let dice = &mut Dice(seed ^ 0xF011_0E12);
        let backed = seed % 3 == 2;
        let servers = |dice: &mut Dice| dice.below(2) as usize;
        let mut percent = 0;
        let blows = (0..3 + dice.below(2)).map(|number| {
            percent += 8 + dice.below(12);
            let kind = if number == 0 { seed / 3 } else { dice.below(6) };
            let main = match (kind % 6, backed) {
                (0, _) => Fault::KillServer(servers(dice)),
                (1, true) => Fault::MoveServer(servers(dice)),
                (1, false) | (2, false) => Fault::Restore,
                (2, true) | (3, _) => Fault::StopServer(servers(dice)),
                (4, _) => Fault::KillFollower(servers(dice)),
                _ => Fault::KillTrainer(servers(dice)),
            };
            let mut faults = vec![main];
            let second = match dice.below(4) {
                0 => Some(Fault::KillFollower(servers(dice))),
                1 => Some(Fault::KillTrainer(servers(dice))),
                _ => None,
            };
            faults.extend(second.filter(|second| *second != main && main != Fault::Restore));
            faults.sort();
            let pause = if dice.below(3) == 0 { dice.millis(3500, 5000) } else { dice.millis(50, 1500) };
            Blow { percent, faults, pause, waits: dice.below(3) > 0, chance: dice.below(1 << 32) }
        });
        let blows = blows.collect();
        Round { backed, threads: [1 + dice.below(3), 1 + dice.below(3)], blows }
    }

    /// A round of a deterministic job, which cannot lose its worker alone, on servers with data folders.
    pub fn draw_of_tables(seed: u64) -> Round {
        let mut round = Round { backed: false, ..Round::draw(seed) };
        for fault in round.blows.iter_mut().flat_map(|blow| &mut blow.faults) {
            *fault = match *fault {
                Fault::MoveServer(which) | Fault::KillTrainer(which) => Fault::KillServer(which),
                other => other,
            };
        }
        for Blow { faults, .. } in &mut round.blows {
            let is_of_server = |fault: &Fault| matches!(fault, Fault::KillServer(_) | Fault::StopServer(_));
            if faults.len() > 1 && (faults.contains(&Fault::Restore) || faults.iter().all(is_of_server)) {
                faults.truncate(1);
            }
            faults.sort();
        }
        round
    }
}
