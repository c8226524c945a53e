//! The clocks, compared with a plain list of who is where.

use crate::steps::clocks::*;
use gannet_wire::sync::{Merge, StepReduce};
use proptest::prelude::*;
use std::time::Duration;

fn member(workers: u32, mode: SyncMode) -> SyncConfig {
    SyncConfig { rank: 0, workers, mode, worker_timeout: Duration::from_secs(10), strict: false }
}

fn joiner(rank: u32, incarnation: u64, session: u32) -> Joiner {
    Joiner { rank, pusher: u64::from(rank) + 1, incarnation, session }
}

#[derive(Debug, Clone)]
enum Event {
    Join { anew: bool },
    Tick,
    End,
    Leave,
    Fence,
    FenceOfAnother,
}

fn events() -> impl Strategy<Value = Vec<(u32, Event)>> {
    let event = prop_oneof![
        3 => any::<bool>().prop_map(|anew| Event::Join { anew }),
        8 => Just(Event::Tick),
        2 => Just(Event::End),
        1 => Just(Event::Leave),
        1 => Just(Event::Fence),
        1 => Just(Event::FenceOfAnother),
    ];
    prop::collection::vec((0u32..3, event), 0..80)
}

/// A worker in the plain list.
#[derive(Debug, Clone, Default)]
struct Plain {
    here: bool,
    counts: bool,
    clock: u64,
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
    sessions: u32,
}

impl ClocksModel {
    /// The lowest clock of the workers that count, or the highest of all if none counts.
    fn lowest(&self) -> u64 {
        let highest = self.plain.iter().map(|one| one.clock).max().unwrap();
        self.plain.iter().filter(|one| one.counts).map(|one| one.clock).min().unwrap_or(highest)
    }

    /// A worker that is not here joins. `false`: it is fenced.
    fn join(&mut self, rank: u32, one: &mut Plain, anew: bool) -> Result<bool, TestCaseError> {
        self.sessions += 1;
        one.incarnation += u64::from(anew);
        let clock = (!anew).then_some(one.clock);
        let joined = self.clocks.join(joiner(rank, one.incarnation, self.sessions), clock, 0);
        if one.incarnation <= one.fenced {
            prop_assert!(matches!(joined, Err(JoinError::Fenced(_))));
            return Ok(false);
        }
        let begin = self.lowest().min(if one.counts { one.clock } else { u64::MAX });
        let want = if anew { begin } else { one.clock };
        prop_assert_eq!(joined, Ok(want));
        // Only a new life of a worker that has left is one of the group again.
        one.left &= !anew;
        (one.here, one.counts) = (!one.left, !one.left);
        (one.session, one.clock) = (self.sessions, want);
        Ok(true)
    }

    fn tick(&mut self, rank: u32, one: &mut Plain) -> Result<(), TestCaseError> {
        prop_assert!(self.clocks.speaks(rank, one.session, one.incarnation));
        one.clock += 1;
        self.clocks.tick(rank, one.clock);
        Ok(())
    }

    fn end(&mut self, rank: u32, one: &mut Plain) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.clocks.end(one.session), Some(rank));
        one.here = false;
        Ok(())
    }

    fn fence(&mut self, rank: u32, one: &mut Plain) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.clocks.fence(rank, u64::from(rank) + 1, one.incarnation), one.counts);
        (one.counts, one.here, one.fenced) = (false, false, one.incarnation);
        prop_assert!(!self.clocks.speaks(rank, one.session, one.incarnation));
        Ok(())
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
            Event::Fence => self.fence(rank, &mut one)?,
            // A fence of a pusher that is not the one which has joined, however new its incarnation.
            Event::FenceOfAnother if self.clocks.ranks[rank as usize].incarnation > 0 => {
                prop_assert!(!self.clocks.fence(rank, 99, one.incarnation + 1));
            }
            _ => {}
        }
        self.plain[rank as usize] = one;
        Ok(())
    }

    /// Compares the clocks with the plain list: for whom the others wait, and the lowest clock.
    fn check(&self, bound: u32) -> Result<(), TestCaseError> {
        let least = self.lowest();
        prop_assert_eq!(self.clocks.lowest(), least);
        for clock in 0..20 {
            prop_assert_eq!(self.clocks.may_pull(clock), clock <= least + u64::from(bound));
        }
        let behind = self.clocks.behind().map(|behind| (behind.rank, behind.clock));
        let counted = (0..).zip(&self.plain).filter(|(_, one)| one.counts);
        let first = counted.map(|(rank, one)| (one.clock, one.here, rank)).min();
        prop_assert_eq!(behind, first.map(|(clock, _, rank)| (rank, clock)));
        let all: Vec<u32> = self.clocks.counted().map(|(rank, _)| rank).collect();
        let counted = (0..).zip(&self.plain).filter(|(_, one)| one.counts);
        prop_assert_eq!(all, counted.map(|(rank, _)| rank).collect::<Vec<u32>>());
        Ok(())
    }
}

proptest! {
    #[test]
    fn nobody_who_counts_is_behind_the_lowest(events in events(), bound in 0u32..4) {
        let clocks = Clocks::new(&member(3, SyncMode::Ssp(bound)), 0);
        let plain = vec![Plain { counts: true, incarnation: 1, ..Plain::default() }; 3];
        let mut model = ClocksModel { clocks, plain, sessions: 0 };
        for (rank, event) in events {
            model.run(rank, &event)?;
            model.check(bound)?;
        }
    }
}

#[test]
fn two_workers_of_one_index_and_another_mode_are_refused() {
    let mut clocks = Clocks::new(&member(2, SyncMode::Ssp(3)), 0);
    clocks.join(joiner(1, 7, 1), None, 0).unwrap();
    let other = clocks.join(joiner(1, 6, 2), None, 0);
    assert!(matches!(other, Err(JoinError::Fenced(why)) if why.contains("one index")));
    assert!(matches!(clocks.check(&member(3, SyncMode::Ssp(3))), Err(JoinError::Mismatch(_))));
    let bsp = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Mean });
    assert!(matches!(clocks.check(&member(2, bsp)), Err(JoinError::Mismatch(why)) if why.contains("--sync")));
    assert!(clocks.check(&member(2, SyncMode::Ssp(3))).is_ok() && !clocks.is_over());
}

/// A worker that was fenced may still have its session. A new group does not wait for that to end.
#[test]
fn a_group_is_over_when_nobody_is_here() {
    let mut clocks = Clocks::new(&member(2, SyncMode::Ssp(3)), 0);
    assert!(clocks.is_over());
    for rank in 0..2 {
        clocks.join(joiner(rank, 1, rank), None, 0).unwrap();
    }
    assert!(clocks.fence(0, 1, 1) && !clocks.fence(1, 2, 0));
    assert_eq!(clocks.behind().map(|behind| behind.rank), Some(1));
    assert!(!clocks.is_over(), "worker 1 is here");
    clocks.end(1);
    assert!(clocks.is_over() && !clocks.speaks(0, 0, 1), "a fenced one may not speak");
}

/// Of two sessions of one incarnation, one is left over from a lost link.
#[test]
fn another_session_of_the_same_incarnation_is_found() {
    let mut clocks = Clocks::new(&member(3, SyncMode::Ssp(3)), 0);
    clocks.join(joiner(0, 2, 10), None, 0).unwrap();
    assert_eq!(clocks.other_session(&joiner(0, 2, 11)), Some(10));
    assert_eq!(clocks.other_session(&joiner(0, 2, 10)), None, "its own session");
    assert_eq!(clocks.other_session(&joiner(1, 2, 11)), None, "nobody joined as worker 1");
    assert_eq!(clocks.other_session(&joiner(9, 2, 11)), None, "there is no worker 9");
    assert_eq!(clocks.other_session(&Joiner { pusher: 77, ..joiner(0, 2, 11) }), None, "another pusher");
    for incarnation in [1, 3] {
        assert_eq!(clocks.other_session(&joiner(0, incarnation, 11)), None, "another life");
    }
    clocks.end(10);
    assert_eq!(clocks.other_session(&joiner(0, 2, 11)), None, "its link is lost");
    clocks.join(joiner(1, 1, 20), None, 0).unwrap();
    clocks.leave(1);
    assert_eq!(clocks.other_session(&joiner(1, 1, 21)), None, "it has left");
}
