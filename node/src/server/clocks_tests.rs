//! The clocks, compared with a plain list of who is where.

use super::*;
use crate::sync::{Merge, StepReduce};
use proptest::prelude::*;

fn member(workers: u32, mode: SyncMode) -> SyncConfig {
    SyncConfig { rank: 0, workers, mode, worker_timeout: Duration::from_secs(10), strict: false }
}

fn joiner(rank: u32, incarnation: u64, session: u32) -> Joiner {
    Joiner { rank, pusher: u64::from(rank) + 1, incarnation, session }
}

#[derive(Debug, Clone)]
enum Event {
    Join {
        anew: bool,
    },
    Tick,
    End,
    Leave,
    Hear,
    Fence,
    Pass(u64),
    /// The server itself sleeps.
    Sleep(u64),
}

fn events() -> impl Strategy<Value = Vec<(u32, Event)>> {
    let event = prop_oneof![
        3 => any::<bool>().prop_map(|anew| Event::Join { anew }),
        8 => Just(Event::Tick),
        2 => Just(Event::End),
        1 => Just(Event::Leave),
        2 => Just(Event::Hear),
        1 => Just(Event::Fence),
        3 => (0u64..8).prop_map(Event::Pass),
        1 => (3u64..60).prop_map(Event::Sleep),
    ];
    prop::collection::vec((0u32..3, event), 0..80)
}

/// A worker in the plain list.
#[derive(Debug, Clone, Default)]
struct Plain {
    here: bool,
    counts: bool,
    clock: u64,
    heard: u64,
    incarnation: u64,
    fenced: u64,
    session: u32,
    /// Its last word was that it is done.
    left: bool,
}

/// The clocks, and what they should say.
struct ClocksModel {
    clocks: Clocks,
    plain: Vec<Plain>,
    /// In seconds.
    now: u64,
    sessions: u32,
}

impl ClocksModel {
    /// The lowest clock of the workers that count, or the highest of all if none counts.
    fn lowest(&self) -> u64 {
        let highest = self.plain.iter().map(|one| one.clock).max().unwrap();
        self.plain.iter().filter(|one| one.counts).map(|one| one.clock).min().unwrap_or(highest)
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.now)
    }

    /// A worker that is not here joins. `false`: it is fenced.
    fn join(&mut self, rank: u32, one: &mut Plain, anew: bool) -> Result<bool, TestCaseError> {
        self.sessions += 1;
        one.incarnation += u64::from(anew);
        let (clock, time) = ((!anew).then_some(one.clock), self.time());
        let joined = self.clocks.join(joiner(rank, one.incarnation, self.sessions), clock, 0, time);
        if one.incarnation <= one.fenced {
            prop_assert!(matches!(joined, Err(JoinError::Fenced(_))));
            return Ok(false);
        }
        let begin = self.lowest().min(if one.counts { one.clock } else { u64::MAX });
        let want = if anew { begin } else { one.clock };
        prop_assert_eq!(joined, Ok(want));
        // Only a new life of a worker that has left is one of the group again.
        one.left &= !anew;
        (one.here, one.counts, one.heard) = (!one.left, !one.left, self.now);
        (one.session, one.clock) = (self.sessions, want);
        Ok(true)
    }

    fn tick(&mut self, rank: u32, one: &mut Plain) -> Result<(), TestCaseError> {
        let time = self.time();
        prop_assert!(self.clocks.speaks(rank, one.session, one.incarnation, time));
        if !one.counts {
            one.heard = self.now;
        }
        (one.counts, one.clock) = (true, one.clock + 1);
        self.clocks.tick(rank, one.clock);
        Ok(())
    }

    fn end(&mut self, rank: u32, one: &mut Plain) -> Result<(), TestCaseError> {
        let known = self.clocks.end(one.session, self.time());
        prop_assert_eq!(known, Some(rank));
        if one.counts {
            one.heard = self.now;
        }
        one.here = false;
        Ok(())
    }

    fn fence(&mut self, rank: u32, one: &mut Plain) -> Result<(), TestCaseError> {
        let time = self.time();
        prop_assert_eq!(self.clocks.fence(rank, one.incarnation), one.counts);
        (one.counts, one.here, one.fenced) = (false, false, one.incarnation);
        prop_assert!(!self.clocks.speaks(rank, one.session, one.incarnation, time));
        Ok(())
    }

    fn sleep(&mut self, rank: u32, one: &mut Plain, seconds: u64) {
        self.now += seconds;
        self.clocks.forgive(Duration::from_secs(seconds), self.time());
        one.heard += seconds;
        let others = (0u32..).zip(&mut self.plain).filter(|(of, _)| *of != rank);
        others.for_each(|(_, other)| other.heard += seconds);
    }

    fn run(&mut self, rank: u32, event: &Event) -> Result<(), TestCaseError> {
        let mut one = self.plain[rank as usize].clone();
        match event {
            Event::Join { anew } if !one.here => {
                let joined = self.join(rank, &mut one, *anew)?;
                if !joined {
                    return Ok(());
                }
            }
            Event::Tick if one.here => self.tick(rank, &mut one)?,
            Event::End if one.here => self.end(rank, &mut one)?,
            Event::Leave if one.here && one.counts => {
                self.clocks.leave(rank);
                (one.counts, one.here, one.left) = (false, false, true);
            }
            Event::Hear if one.here && one.counts => {
                self.clocks.hear(one.session, self.time());
                one.heard = self.now;
            }
            Event::Fence => self.fence(rank, &mut one)?,
            Event::Pass(seconds) => self.now += seconds,
            Event::Sleep(seconds) => self.sleep(rank, &mut one, *seconds),
            _ => {}
        }
        self.plain[rank as usize] = one;
        Ok(())
    }

    /// Compares the clocks with the plain list: who was silent for too long and is given up, and the lowest clock.
    fn check(&mut self, bound: u32) -> Result<(), TestCaseError> {
        let (time, now) = (self.time(), self.now);
        let given_up: Vec<u32> = self.clocks.give_up(time).iter().map(|behind| behind.rank).collect();
        // Nobody is given up if nobody is left to go on.
        let anyone = self.plain.iter().any(|one| one.here && one.counts);
        let mut want = Vec::new();
        for (rank, one) in (0..).zip(&mut self.plain) {
            if anyone && one.counts && now - one.heard >= 10 {
                one.counts = false;
                want.push(rank);
            }
        }
        prop_assert_eq!(given_up, want);
        let least = self.lowest();
        prop_assert_eq!(self.clocks.lowest(), least);
        for clock in 0..20 {
            prop_assert_eq!(self.clocks.may_pull(clock), clock <= least + u64::from(bound));
        }
        let behind = self.clocks.behind(time).map(|behind| (behind.rank, behind.clock));
        let counted = (0..).zip(&self.plain).filter(|(_, one)| one.counts);
        let first = counted.map(|(rank, one)| (one.clock, rank)).min();
        prop_assert_eq!(behind, first.map(|(clock, rank)| (rank, clock)));
        Ok(())
    }
}

proptest! {
    #[test]
    fn nobody_who_counts_is_behind_the_lowest(events in events(), bound in 0u32..4) {
        let clocks = Clocks::new(&member(3, SyncMode::Ssp(bound)), 0, Duration::ZERO);
        let plain = vec![Plain { counts: true, incarnation: 1, ..Plain::default() }; 3];
        let mut model = ClocksModel { clocks, plain, now: 0, sessions: 0 };
        for (rank, event) in events {
            model.run(rank, &event)?;
            model.check(bound)?;
        }
    }
}

#[test]
fn two_workers_of_one_index_and_another_mode_are_refused() {
    let mut clocks = Clocks::new(&member(2, SyncMode::Ssp(3)), 0, Duration::ZERO);
    clocks.join(joiner(1, 7, 1), None, 0, Duration::ZERO).unwrap();
    let other = clocks.join(joiner(1, 6, 2), None, 0, Duration::ZERO);
    assert!(matches!(other, Err(JoinError::Fenced(why)) if why.contains("one index")));
    assert!(matches!(clocks.check(&member(3, SyncMode::Ssp(3))), Err(JoinError::Mismatch(_))));
    let bsp = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Mean });
    assert!(matches!(clocks.check(&member(2, bsp)), Err(JoinError::Mismatch(why)) if why.contains("--sync")));
    assert!(clocks.check(&member(2, SyncMode::Ssp(3))).is_ok() && !clocks.is_over());
}

#[test]
fn the_lowest_that_is_there_and_alive_decides() {
    let bsp = SyncMode::Bsp(StepReduce { aggregate: 3, merge: Merge::Mean });
    let mut clocks = Clocks::new(&member(3, bsp), 0, Duration::ZERO);
    assert_eq!(clocks.decider(Duration::ZERO), None);
    for rank in 0..3 {
        clocks.join(joiner(rank, 1, rank), None, 0, Duration::ZERO).unwrap();
    }
    let later = Duration::from_secs(60);
    clocks.hear(2, later);
    assert_eq!((clocks.decider(Duration::ZERO), clocks.decider(later)), (Some(0), Some(2)));
    // Under BSP, time alone never decides.
    assert!(clocks.give_up(later).is_empty());
    clocks.end(0, later);
    assert_eq!(clocks.behind(later).map(|behind| behind.rank), Some(0));
    assert!(clocks.fence(0, 1) && !clocks.fence(2, 0));
    assert_eq!(clocks.behind(later).map(|behind| behind.rank), Some(1));
}

/// If a worker that was given up still has its session and speaks, the group waits for it again: no new group replaces
/// it.
#[test]
fn a_group_is_over_when_nobody_can_speak() {
    let mut clocks = Clocks::new(&member(2, SyncMode::Ssp(3)), 0, Duration::ZERO);
    assert!(clocks.is_over());
    for rank in 0..2 {
        clocks.join(joiner(rank, 1, rank), None, 0, Duration::ZERO).unwrap();
    }
    let later = Duration::from_secs(60);
    clocks.hear(1, later);
    assert_eq!(clocks.give_up(later).iter().map(|behind| behind.rank).collect::<Vec<_>>(), [0]);
    clocks.end(1, later);
    assert!(!clocks.is_over(), "worker 0 is silent and has its session");
    let mut spoken = clocks.clone();
    assert!(spoken.speaks(0, 0, 1, later) && !spoken.is_over());
    let mut ended = clocks.clone();
    assert_eq!(ended.end(0, later), Some(0));
    assert!(ended.is_over());
    clocks.fence(0, 1);
    assert!(clocks.is_over(), "a fenced one may not speak");
}

/// Of two sessions of one incarnation, one is left over from a lost link.
#[test]
fn another_session_of_the_same_incarnation_is_found() {
    let mut clocks = Clocks::new(&member(3, SyncMode::Ssp(3)), 0, Duration::ZERO);
    clocks.join(joiner(0, 2, 10), None, 0, Duration::ZERO).unwrap();
    assert_eq!(clocks.other_session(&joiner(0, 2, 11)), Some(10));
    assert_eq!(clocks.other_session(&joiner(0, 2, 10)), None, "its own session");
    assert_eq!(clocks.other_session(&joiner(1, 2, 11)), None, "nobody joined as worker 1");
    assert_eq!(clocks.other_session(&joiner(9, 2, 11)), None, "there is no worker 9");
    assert_eq!(clocks.other_session(&Joiner { pusher: 77, ..joiner(0, 2, 11) }), None, "another pusher");
    for incarnation in [1, 3] {
        assert_eq!(clocks.other_session(&joiner(0, incarnation, 11)), None, "another life");
    }
    // A worker that was given up keeps its session, and may speak again over it.
    let later = Duration::from_secs(60);
    assert!(clocks.give_up(later).iter().any(|behind| behind.rank == 0));
    assert_eq!(clocks.other_session(&joiner(0, 2, 11)), Some(10));
    clocks.end(10, later);
    assert_eq!(clocks.other_session(&joiner(0, 2, 11)), None, "its link is lost");
    clocks.join(joiner(1, 1, 20), None, 0, later).unwrap();
    clocks.leave(1);
    assert_eq!(clocks.other_session(&joiner(1, 1, 21)), None, "it has left");
}
