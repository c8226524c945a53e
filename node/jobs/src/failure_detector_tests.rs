//! The failure detector beside a plain list of what was heard of each worker, while the thread itself may stop.

use crate::failure_detector::*;
use proptest::prelude::*;

fn worker(rank: u32) -> WorkerIncarnation {
    WorkerIncarnation { rank, incarnation: 7 }
}

const SECOND: Duration = Duration::from_secs(1);
const SILENCE: u64 = 10;

#[derive(Debug, Clone)]
enum Event {
    Hear(u32),
    /// A sign from so many seconds ago.
    HearOld(u32, u64),
    Train(u32),
    Note(u32, u64),
    Excuse(u32),
    Pass(u64),
    /// The thread itself stops for so long.
    Stop(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let rank = 0u32..3;
    let event = prop_oneof![
        4 => rank.clone().prop_map(Event::Hear),
        1 => (rank.clone(), 1u64..30).prop_map(|(rank, ago)| Event::HearOld(rank, ago)),
        2 => rank.clone().prop_map(Event::Train),
        2 => (rank.clone(), 0u64..3).prop_map(|(rank, progress)| Event::Note(rank, progress)),
        1 => rank.prop_map(Event::Excuse),
        4 => (0u64..12).prop_map(Event::Pass),
        1 => (4u64..100).prop_map(Event::Stop),
    ];
    prop::collection::vec(event, 0..80)
}

/// What was heard of a worker: for how many seconds nothing, and for how many there was no progress.
#[derive(Debug, Clone, Copy, Default)]
struct Plain {
    silent: u64,
    still: u64,
    progress: u64,
}

proptest! {
    /// Only the time in which the thread runs counts.
    #[test]
    fn agrees_with_a_list(events in events()) {
        let (detector, mut now) = (FailureDetector::default(), 1000);
        let at = Duration::from_secs;
        let limits = WorkerLimits::of(at(SILENCE));
        detector.wake(at(now));
        (0..3).for_each(|rank| detector.begin(worker(rank), limits, at(now)));
        let (mut plain, mut ran) = ([Plain::default(); 3], 0u64);
        for event in events {
            match event {
                Event::Hear(rank) => {
                    prop_assert!(detector.hear(worker(rank), at(now)));
                    plain[rank as usize].silent = 0;
                }
                Event::HearOld(rank, ago) => {
                    detector.hear(worker(rank), at(now - ago));
                    // A sign from before the thread stopped counted when it came.
                    let one = &mut plain[rank as usize];
                    one.silent = if ago <= ran { one.silent.min(ago) } else { one.silent };
                }
                Event::Train(rank) => {
                    detector.hear_training(worker(rank), at(now));
                    plain[rank as usize].still = 0;
                }
                Event::Note(rank, progress) => {
                    detector.note(worker(rank), Activity { progress, ..Activity::default() }, at(now));
                    let one = &mut plain[rank as usize];
                    one.still = if one.progress == progress { one.still } else { 0 };
                    one.progress = progress;
                }
                Event::Excuse(rank) => {
                    detector.excuse(worker(rank), at(now));
                    plain[rank as usize].still = 0;
                }
                Event::Pass(seconds) => {
                    for _ in 0..seconds {
                        now += 1;
                        ran += 1;
                        detector.wake(at(now));
                        plain.iter_mut().for_each(|one| (one.silent, one.still) = (one.silent + 1, one.still + 1));
                    }
                }
                Event::Stop(seconds) => {
                    now += seconds;
                    ran = 0;
                    detector.wake(at(now));
                }
            }
            for (rank, one) in (0..).zip(&plain) {
                let silent = one.silent > SILENCE;
                let stuck = at(one.still) > limits.progress;
                let want = |awaited: bool| match (silent, stuck && awaited) {
                    (true, _) => Verdict::Silent(at(one.silent)),
                    (_, true) => Verdict::Stuck(at(one.still)),
                    _ => Verdict::Alive,
                };
                prop_assert_eq!(detector.verdict(worker(rank), true, at(now)), want(true));
                prop_assert_eq!(detector.verdict(worker(rank), false, at(now)), want(false));
                prop_assert_eq!(detector.silence(worker(rank), at(now)), at(one.silent));
            }
        }
    }
}

/// The scheduler, the registry of runs and the groups of one thread have one detector: what one of them hears, all have
/// heard.
#[test]
fn all_handles_are_of_one_detector() {
    let (detector, limits) = (FailureDetector::default(), WorkerLimits::of(SECOND * 10));
    let other = detector.clone();
    detector.begin(worker(1), limits, SECOND);
    assert!(!other.hear(worker(2), SECOND), "nobody has asked about it");
    assert!(other.hear(worker(1), SECOND * 9));
    assert_eq!(detector.verdict(worker(1), false, SECOND * 19), Verdict::Alive);
    assert!(other.verdict(worker(1), false, SECOND * 20).is_dead());
    // A worker that is expected after a restart has its full time.
    detector.expect(worker(3), limits, SECOND);
    assert!(!other.verdict(worker(3), false, SECOND * 11).is_dead());
    assert!(other.verdict(worker(3), false, SECOND * 12).is_dead());
}

/// A server whose lease had ended held its answers back. The workers waited for the answers to their heartbeats, and
/// sent no others. When the coordinator was back, the server gave all of them up.
#[test]
fn the_time_in_which_a_server_held_its_answers_back_counted_as_silence_of_its_workers() {
    let (detector, limits) = (FailureDetector::default(), WorkerLimits::of(SECOND * 5));
    let tick = |second: u32, holds_back: bool| {
        detector.hold_back(holds_back, SECOND * second);
        detector.wake(SECOND * second);
    };
    tick(1, false);
    detector.begin(worker(1), limits, SECOND);
    detector.begin(worker(2), limits, SECOND);
    (2..=3).for_each(|second| tick(second, false));
    // The lease ends, and is back after 40 s.
    (4..=44).for_each(|second| tick(second, true));
    (45..=46).for_each(|second| tick(second, false));
    assert!(!detector.verdict(worker(1), true, SECOND * 46).is_dead());
    // From then on it counts, and a worker that is heard has its full time.
    detector.hear(worker(1), SECOND * 46);
    (47..=49).for_each(|second| tick(second, false));
    assert!(!detector.verdict(worker(1), true, SECOND * 49).is_dead());
    assert!(detector.verdict(worker(2), true, SECOND * 49).is_dead());
    // Progress stands still as well.
    let (begin, limit) = (50, limits.progress.as_secs() as u32);
    detector.note(worker(1), Activity { progress: 1, ..Activity::default() }, SECOND * 49);
    for second in begin..begin + limit * 2 {
        tick(second, second > begin + 1 && second < begin + limit * 2 - 3);
        detector.hear(worker(1), SECOND * second);
    }
    assert!(!detector.verdict(worker(1), true, SECOND * (begin + limit * 2)).is_dead());
}

/// The memory of a detector is bounded: it forgets workers of which nothing was heard for days.
#[test]
fn workers_of_long_ago_are_forgotten() {
    let (detector, limits) = (FailureDetector::default(), WorkerLimits::of(SECOND));
    let old = |incarnation| WorkerIncarnation { rank: 0, incarnation };
    for incarnation in 0..=DETECTOR_WORKERS as u64 {
        detector.begin(old(incarnation), limits, SECOND);
    }
    let (mut now, end) = (Duration::ZERO, DETECTOR_MEMORY + DETECTOR_TIDIED * 2);
    while now < end {
        now += SECOND;
        detector.wake(now);
    }
    assert!(!detector.hear(old(1), now), "it is forgotten");
}
