//! What the registry decides about processes that come to a run, in every order; and the file in which runs are stored.

use crate::failure_detector::FailureDetector;
use crate::limits::{LATE_TIME, RUNS_MAX};
use crate::runs::registry::Registry;
use gannet_wire::StateFileError;
use gannet_wire::limits::WORKER_TIMEOUT;
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::messages::runs::{
    JoinV1, RunActionV1, RunBeatV2, RunDecision, RunIntent, RunReplyV1, RunRequestV1, RunSetting,
};
use gannet_wire::refusal::Refusal;
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

pub(crate) const NOW: Duration = Duration::from_secs(100);

pub(crate) fn incarnation(rank: u32, incarnation: u64) -> WorkerIncarnation {
    WorkerIncarnation { rank, incarnation }
}

/// A heartbeat of a worker without a job.
pub(crate) fn beat_of(generation: u32, timeout_ms: u64) -> RunActionV1 {
    RunActionV1::BeatV2 { generation, beat: RunBeatV2 { timeout_ms, ..RunBeatV2::default() } }
}

pub(crate) fn open(folder: Option<&Path>) -> Registry {
    Registry::open(folder, &FailureDetector::default(), NOW).unwrap()
}

fn settings(epochs: u32) -> Vec<RunSetting> {
    vec![RunSetting::new("--model", "lr"), RunSetting::new("--epochs", epochs)]
}

pub(crate) fn ask(
    registry: &mut Registry,
    incarnation: WorkerIncarnation,
    what: RunActionV1,
    now: Duration,
) -> Result<RunReplyV1, (Refusal, String)> {
    let session = incarnation.rank.wrapping_mul(1000).wrapping_add(incarnation.incarnation as u32);
    registry.answer(RunRequestV1 { name: "r".into(), incarnation, what }, session, now, &[])
}

fn join(want: RunIntent, settings: Vec<RunSetting>) -> JoinV1 {
    let (tables, left, notes) = (Vec::new(), Vec::new(), String::new());
    JoinV1 { want, settings, tables, at: 1_000_000, notes, birth: 5, left, timeout_ms: 0 }
}

/// Comes to run "r". Returns the decision, the generation, and the generation that began its rows.
pub(crate) fn come(
    registry: &mut Registry,
    incarnation: WorkerIncarnation,
    want: RunIntent,
    epochs: u32,
) -> Result<(RunDecision, u32, u32), String> {
    come_at(registry, incarnation, want, epochs, NOW)
}

pub(crate) fn come_at(
    registry: &mut Registry,
    incarnation: WorkerIncarnation,
    want: RunIntent,
    epochs: u32,
    now: Duration,
) -> Result<(RunDecision, u32, u32), String> {
    let join = JoinV1 { tables: vec!["t".into()], ..join(want, settings(epochs)) };
    match ask(registry, incarnation, RunActionV1::Join(join), now).map_err(|(_, text)| text)? {
        RunReplyV1::Joined { generation, rows_since, decided, .. } => {
            Ok((RunDecision::of_code(decided).unwrap(), generation, rows_since))
        }
        RunReplyV1::Taken { .. } => Err("taken".into()),
        other => panic!("{other:?}"),
    }
}

fn finish(registry: &mut Registry, incarnation: WorkerIncarnation, generation: u32) {
    ask(
        registry,
        incarnation,
        RunActionV1::Finish { generation, rows: 7, at: 1_000_000 - 300, missing: Vec::new() },
        NOW,
    )
    .unwrap();
}

#[test]
fn the_first_decides_and_the_others_take_its_decision() {
    let mut registry = open(None);
    assert_eq!(come(&mut registry, incarnation(1, 1), RunIntent::Auto, 3), Ok((RunDecision::Begun, 1, 1)));
    // The answer was lost.
    assert_eq!(come(&mut registry, incarnation(1, 1), RunIntent::Auto, 3), Ok((RunDecision::Begun, 1, 1)));
    assert_eq!(
        come(&mut registry, incarnation(0, 2), RunIntent::Continue, 3),
        Ok((RunDecision::Joined, 1, 1))
    );
    let other = come(&mut registry, incarnation(2, 3), RunIntent::Auto, 4).unwrap_err();
    assert!(other.contains("--epochs: worker 1 has 3, this worker (2) was given 4"), "{other}");
    assert!(other.contains("--run NAME") && !other.contains("--fresh"), "{other}");
    let live = come(&mut registry, incarnation(2, 3), RunIntent::Fresh, 3).unwrap_err();
    assert!(live.contains("worker 0 is in it and lives"), "{live}");
    assert_eq!(come(&mut registry, incarnation(0, 4), RunIntent::Auto, 3), Err("taken".into()));
    // The session ends, and another incarnation takes the worker's place. The old one is no longer a member.
    registry.closed(2);
    assert_eq!(come(&mut registry, incarnation(0, 4), RunIntent::Auto, 3), Ok((RunDecision::Resumed, 1, 1)));
    let (refusal, text) = ask(&mut registry, incarnation(0, 2), beat_of(1, 0), NOW).unwrap_err();
    assert!(refusal == Refusal::Fenced && text.contains("place of worker 0"), "{text}");
    // All workers are gone. Other settings begin the run anew only with --fresh.
    let later = NOW + WORKER_TIMEOUT + Duration::from_secs(1);
    // The server runs all the time.
    (0..=61).for_each(|second| registry.detector.wake(NOW + Duration::from_secs(second)));
    let anew = come_at(&mut registry, incarnation(2, 5), RunIntent::Auto, 4, later).unwrap_err();
    assert!(
        anew.contains("--fresh starts the run again") && anew.contains("--continue trains its rows"),
        "{anew}"
    );
    assert_eq!(
        come_at(&mut registry, incarnation(2, 5), RunIntent::Fresh, 4, later),
        Ok((RunDecision::Fresh, 2, 2))
    );
    // A worker that restarts with the same flags goes on.
    registry.closed(2005);
    assert_eq!(
        come_at(&mut registry, incarnation(2, 6), RunIntent::Fresh, 4, later),
        Ok((RunDecision::Resumed, 2, 2))
    );
    assert_eq!(
        come_at(&mut registry, incarnation(1, 7), RunIntent::Fresh, 4, later),
        Ok((RunDecision::Joined, 2, 2))
    );
    let (refusal, _) = ask(&mut registry, incarnation(0, 4), beat_of(1, 0), later).unwrap_err();
    assert_eq!(refusal, Refusal::Fenced);
}

/// After a finished run was continued with a wrong flag, users could only go on with that flag, or lose the rows.
#[test]
fn a_run_that_was_continued_with_a_wrong_flag_could_not_be_continued_with_the_right_one() {
    let mut registry = open(None);
    come(&mut registry, incarnation(0, 1), RunIntent::Auto, 3).unwrap();
    finish(&mut registry, incarnation(0, 1), 1);
    assert_eq!(
        come(&mut registry, incarnation(0, 2), RunIntent::Continue, 4),
        Ok((RunDecision::Continued, 2, 1))
    );
    // While the worker is alive, nobody changes the run that it has begun.
    assert!(come(&mut registry, incarnation(1, 3), RunIntent::Continue, 3).is_err());
    registry.closed(2);
    assert!(come(&mut registry, incarnation(0, 4), RunIntent::Auto, 3).is_err());
    assert_eq!(
        come(&mut registry, incarnation(0, 4), RunIntent::Continue, 3),
        Ok((RunDecision::Continued, 3, 1))
    );
    assert_eq!(
        come(&mut registry, incarnation(0, 4), RunIntent::Continue, 3),
        Ok((RunDecision::Continued, 3, 1)),
        "its answer was lost"
    );
    assert_eq!(
        come(&mut registry, incarnation(1, 5), RunIntent::Continue, 3),
        Ok((RunDecision::Joined, 3, 1))
    );
    let (refusal, _) = ask(&mut registry, incarnation(0, 2), beat_of(2, 0), NOW).unwrap_err();
    assert_eq!(refusal, Refusal::Fenced);
}

/// A supervisor restarted a killed worker with the same command just after the end, and the finished rows were dropped.
#[test]
fn a_worker_that_was_killed_before_the_end_began_the_run_anew_after_it() {
    for want in [RunIntent::Fresh, RunIntent::Continue] {
        let mut registry = open(None);
        let begun = come(&mut registry, incarnation(0, 1), want, 3).unwrap();
        assert_eq!((begun.0, begun.1), (RunDecision::Begun, 1));
        // Every worker has the same flags, on new servers too.
        assert_eq!(come(&mut registry, incarnation(1, 2), want, 3), Ok((RunDecision::Joined, 1, 1)));
        registry.closed(1002);
        ask(&mut registry, incarnation(0, 1), RunActionV1::Done { generation: 1 }, NOW).unwrap();
        finish(&mut registry, incarnation(0, 1), 1);
        assert_eq!(
            come_at(&mut registry, incarnation(1, 3), want, 3, NOW + 9 * LATE_TIME),
            Ok((RunDecision::Late, 1, 1))
        );
        // A worker that had trained its share and comes with the flag again wants the flag again.
        let again = come(&mut registry, incarnation(0, 4), want, 3).unwrap();
        assert_eq!((again.0 == RunDecision::Fresh, again.1), (want == RunIntent::Fresh, 2));
    }
}

/// A worker was killed after the end, and nobody started it again. On the next day the same command trained nothing.
/// One that a supervisor starts again at once has nothing to train, also when the registry was restarted.
#[test]
fn a_worker_that_was_killed_after_the_end_trains_when_it_continues_later() {
    let (soon, later) = ((5, RunDecision::Late), (3_600, RunDecision::Continued));
    for ((seconds, decided), restarts) in [(soon, false), (soon, true), (later, false), (later, true)] {
        let (folder, saves) = (tempfile::tempdir().unwrap(), incarnation(0, 1));
        let mut registry = open(Some(folder.path()));
        come(&mut registry, saves, RunIntent::Continue, 3).unwrap();
        // The clock of whoever comes stands at 1,000,000 s.
        let finish =
            RunActionV1::Finish { generation: 1, rows: 7, at: 1_000_000 - seconds, missing: Vec::new() };
        let job = RunActionV1::JobV2 { generation: 1, number: 1, unfenced: Vec::new() };
        for what in [job, finish] {
            ask(&mut registry, saves, what, NOW).unwrap();
        }
        registry.closed(1);
        if restarts {
            drop(registry);
            registry = open(Some(folder.path()));
        }
        let come = come_at(&mut registry, incarnation(0, 2), RunIntent::Continue, 3, NOW * 2);
        assert_eq!(come.map(|come| come.0), Ok(decided), "after {seconds} s");
    }
}

/// A single process that came to its finished run counted as late, and trained the rows again without a word.
#[test]
fn one_process_trained_a_finished_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let come = |want| {
        let mut registry = Registry::of_one_process(folder.path()).unwrap();
        let joined =
            registry.join_alone("r", want, settings(3), vec!["t".into()], 1_000_000, String::new())?;
        registry.finish_alone(&joined.id, 7, 1_000_000)?;
        Ok::<_, String>((joined.decided, joined.id.generation))
    };
    assert_eq!(come(RunIntent::Auto), Ok((RunDecision::Begun, 1)));
    for _ in 0..2 {
        let again = come(RunIntent::Auto).unwrap_err();
        assert!(again.contains("is finished") && again.contains("--continue"), "{again}");
    }
    for generation in 2..4 {
        assert_eq!(come(RunIntent::Continue), Ok((RunDecision::Continued, generation)));
    }
    for generation in 4..6 {
        assert_eq!(come(RunIntent::Fresh), Ok((RunDecision::Fresh, generation)));
    }
}

#[test]
fn one_whose_share_was_given_up_was_told_that_nothing_was_left() {
    let mut registry = open(None);
    come(&mut registry, incarnation(0, 1), RunIntent::Auto, 3).unwrap();
    let finish = RunActionV1::Finish { generation: 1, rows: 7, at: 0, missing: vec![1] };
    ask(&mut registry, incarnation(0, 1), finish, NOW).unwrap();
    let missed = come(&mut registry, incarnation(1, 2), RunIntent::Auto, 3).unwrap_err();
    assert!(missed.contains("without the share of worker 1") && missed.contains("--fresh"), "{missed}");
    assert_eq!(come(&mut registry, incarnation(2, 3), RunIntent::Auto, 3), Ok((RunDecision::Late, 1, 1)));
}

/// The rows were trained further with other flags, or a run was refused the very flags with which it had begun.
#[test]
fn rows_are_trained_further_with_the_flags_that_they_depend_on() {
    let mut registry = open(None);
    let come = |registry: &mut Registry,
                incarnation: WorkerIncarnation,
                want: RunIntent,
                alpha: &str,
                epochs: u32| {
        let settings = vec![
            RunSetting::new("--alpha", alpha).of_rows(),
            RunSetting::new("--epochs", epochs.to_string()),
        ];
        let reply = ask(registry, incarnation, RunActionV1::Join(join(want, settings)), NOW)
            .map_err(|(_, text)| text)?;
        match reply {
            RunReplyV1::Joined { decided, generation, .. } => {
                Ok((RunDecision::of_code(decided).unwrap(), generation))
            }
            other => panic!("{other:?}"),
        }
    };
    come(&mut registry, incarnation(0, 1), RunIntent::Auto, "0.1", 3).unwrap();
    finish(&mut registry, incarnation(0, 1), 1);
    let refused: String = come(&mut registry, incarnation(0, 2), RunIntent::Continue, "0.5", 3).unwrap_err();
    for words in ["trained with --alpha 0.1", "--alpha 0.5 is given now", "--fresh", "--run"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    assert!(registry.runs["r"].finished.is_some(), "what is refused changes nothing");
    assert_eq!(
        come(&mut registry, incarnation(0, 3), RunIntent::Continue, "0.1", 9),
        Ok((RunDecision::Continued, 2))
    );
}

/// Rows of a run that no registry knew were trained further as if they were new, or were never found again.
#[test]
fn rows_without_their_registry_were_taken_for_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = |table: &str, name: &str| {
        std::fs::create_dir_all(folder.path().join(table)).unwrap();
        std::fs::write(folder.path().join(table).join(name), b"GANNETIM of rows").unwrap();
    };
    ["r.t", "r.3.t", "other.t", "r.x"].iter().for_each(|table| file(table, "shard-0000.image"));
    // Files of the user alone are no rows: they were left when the run was forgotten.
    ["r.4.t", "r.5.t"].iter().for_each(|table| file(table, "notes"));
    let mut registry = open(Some(folder.path()));
    let lost = come(&mut registry, incarnation(0, 1), RunIntent::Auto, 3).unwrap_err();
    for words in ["\"r.t\"", "\"r.3.t\"", "RUNS", "--fresh"] {
        assert!(lost.contains(words), "{words}: {lost}");
    }
    assert!(come(&mut registry, incarnation(0, 1), RunIntent::Continue, 3).is_err());
    assert_eq!(come(&mut registry, incarnation(0, 1), RunIntent::Fresh, 3), Ok((RunDecision::Fresh, 4, 4)));
    assert_eq!(registry.runs["r"].to_drop, ["r.t", "r.3.t"]);
    // In memory, other servers report the tables that they have.
    let mut registry = open(None);
    let reply =
        JoinV1 { left: vec!["r.t".into()], tables: vec!["t".into()], ..join(RunIntent::Auto, settings(3)) };
    assert!(ask(&mut registry, incarnation(0, 1), RunActionV1::Join(reply), NOW).is_err());
}

#[test]
fn a_run_that_was_begun_twice_at_once_is_taken_back() {
    let mut registry = open(None);
    come(&mut registry, incarnation(0, 1), RunIntent::Auto, 3).unwrap();
    ask(&mut registry, incarnation(0, 1), RunActionV1::Withdraw { generation: 1 }, NOW).unwrap();
    assert!(registry.runs.is_empty());
    come(&mut registry, incarnation(0, 2), RunIntent::Auto, 3).unwrap();
    come(&mut registry, incarnation(1, 3), RunIntent::Auto, 3).unwrap();
    ask(&mut registry, incarnation(0, 2), RunActionV1::Withdraw { generation: 1 }, NOW).unwrap();
    assert_eq!(registry.runs.len(), 1, "somebody else is in it");
}

#[test]
fn a_run_that_is_over_is_begun_again_only_when_that_is_asked_for() {
    let mut registry = open(None);
    come(&mut registry, incarnation(0, 1), RunIntent::Auto, 3).unwrap();
    come(&mut registry, incarnation(1, 2), RunIntent::Auto, 3).unwrap();
    for of_it in [incarnation(0, 1), incarnation(1, 2)] {
        ask(&mut registry, of_it, RunActionV1::Done { generation: 1 }, NOW).unwrap();
    }
    finish(&mut registry, incarnation(0, 1), 1);
    let over = come(&mut registry, incarnation(0, 3), RunIntent::Auto, 3).unwrap_err();
    for words in ["finished", "5 min ago", "7 rows", "--continue", "--fresh", "--run"] {
        assert!(over.contains(words), "{words}: {over}");
    }
    // A worker that has not taken part comes late, but only once.
    assert_eq!(come(&mut registry, incarnation(2, 4), RunIntent::Auto, 3), Ok((RunDecision::Late, 1, 1)));
    assert_eq!(come(&mut registry, incarnation(2, 4), RunIntent::Auto, 3), Ok((RunDecision::Late, 1, 1)));
    assert!(come(&mut registry, incarnation(2, 5), RunIntent::Auto, 3).is_err());
    assert!(
        come(&mut registry, incarnation(3, 5), RunIntent::Auto, 4).is_err(),
        "other flags are another job"
    );
    // --continue from one of them begins the next generation. The others join it, whatever they want.
    assert_eq!(
        come(&mut registry, incarnation(1, 6), RunIntent::Continue, 5),
        Ok((RunDecision::Continued, 2, 1))
    );
    assert_eq!(come(&mut registry, incarnation(0, 7), RunIntent::Auto, 5), Ok((RunDecision::Joined, 2, 1)));
    finish(&mut registry, incarnation(1, 6), 2);
    // A worker that also wants --continue and comes when that generation is over does not begin a third.
    assert_eq!(come(&mut registry, incarnation(2, 8), RunIntent::Continue, 5), Ok((RunDecision::Late, 2, 1)));
    assert_eq!(
        come(&mut registry, incarnation(2, 9), RunIntent::Continue, 5),
        Ok((RunDecision::Continued, 3, 1))
    );
    finish(&mut registry, incarnation(2, 9), 3);
    assert_eq!(come(&mut registry, incarnation(0, 10), RunIntent::Fresh, 5), Ok((RunDecision::Fresh, 4, 4)));
    finish(&mut registry, incarnation(0, 10), 4);
    assert_eq!(come(&mut registry, incarnation(1, 11), RunIntent::Fresh, 5), Ok((RunDecision::Late, 4, 4)));
    // After a while a worker no longer counts as late.
    let later = NOW + LATE_TIME;
    assert!(come_at(&mut registry, incarnation(2, 12), RunIntent::Auto, 5, later).is_err());
    assert_eq!(
        come_at(&mut registry, incarnation(2, 12), RunIntent::Fresh, 5, later),
        Ok((RunDecision::Fresh, 5, 5))
    );
    let again = join(RunIntent::Auto, settings(5));
    let reply = ask(&mut registry, incarnation(0, 13), RunActionV1::Join(again), later).unwrap();
    let RunReplyV1::Joined { to_drop, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(to_drop, ["r.t", "r.4.t"], "the tables of all generations whose rows are gone");
    ask(&mut registry, incarnation(0, 13), RunActionV1::Dropped { tables: to_drop }, later).unwrap();
    let again = join(RunIntent::Auto, settings(5));
    let reply = ask(&mut registry, incarnation(0, 13), RunActionV1::Join(again), later).unwrap();
    assert!(matches!(&reply, RunReplyV1::Joined { to_drop, .. } if to_drop.is_empty()), "{reply:?}");
}

#[test]
fn runs_come_back_as_they_were_and_a_torn_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = open(Some(folder.path()));
    come(&mut registry, incarnation(0, 1), RunIntent::Auto, 3).unwrap();
    drop(registry);
    let mut registry = open(Some(folder.path()));
    // The worker may be alive: its rows are not dropped before it has had time to report.
    assert!(come(&mut registry, incarnation(0, 2), RunIntent::Fresh, 3).unwrap_err().contains("lives"));
    // But the worker itself goes on at once after a restart.
    assert_eq!(come(&mut registry, incarnation(0, 2), RunIntent::Auto, 3), Ok((RunDecision::Resumed, 1, 1)));
    finish(&mut registry, incarnation(0, 2), 1);
    drop(registry);
    let mut registry = open(Some(folder.path()));
    assert!(come(&mut registry, incarnation(1, 3), RunIntent::Auto, 3).unwrap_err().contains("finished"));
    drop(registry);
    let file = folder.path().join("RUNS");
    let whole = std::fs::read(&file).unwrap();
    for at in [0, 7, 8, 12, 16, 40, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let torn = Registry::open(Some(folder.path()), &FailureDetector::default(), NOW).unwrap_err();
        assert!(torn.to_string().contains("RUNS") && torn.to_string().contains("move it away"), "{torn}");
        assert!(
            match at {
                7 => matches!(torn, StateFileError::Version { .. }),
                _ => matches!(torn, StateFileError::Torn { .. }),
            },
            "byte {at}: {torn}"
        );
    }
    std::fs::write(&file, &whole[..15]).unwrap();
    assert!(Registry::open(Some(folder.path()), &FailureDetector::default(), NOW).is_err());
    // A change that cannot be saved does not happen.
    std::fs::write(&file, &whole).unwrap();
    let mut registry = open(Some(folder.path()));
    std::fs::create_dir(folder.path().join("RUNS.new")).unwrap();
    assert!(come(&mut registry, incarnation(0, 9), RunIntent::Fresh, 3).is_err());
    std::fs::remove_dir(folder.path().join("RUNS.new")).unwrap();
    assert_eq!(come(&mut registry, incarnation(0, 9), RunIntent::Fresh, 3), Ok((RunDecision::Fresh, 2, 2)));
}

#[test]
fn runs_have_limits_and_names_that_no_two_tables_share() {
    let mut registry = open(None);
    for n in 0..RUNS_MAX {
        let join = join(RunIntent::Auto, Vec::new());
        let what = RunActionV1::Join(join);
        registry
            .answer(RunRequestV1 { name: format!("n{n}"), incarnation: incarnation(0, 1), what }, 1, NOW, &[])
            .unwrap();
    }
    let full = come(&mut registry, incarnation(0, 1), RunIntent::Auto, 1).unwrap_err();
    assert!(full.contains("the limit"), "{full}");
    for name in ["", "a.b", "../x", "a b", &"x".repeat(33)] {
        assert!(gannet_wire::messages::runs::RunId::check_name(name).is_err(), "{name:?}");
    }
    let table = |name: &str, rows_since| {
        gannet_wire::messages::runs::RunId { name: name.into(), generation: 9, rows_since, birth: 0 }
            .table("lr")
    };
    assert_eq!(
        (table("a", 1), table("a", 2), table("a-2", 1)),
        ("a.lr".into(), "a.2.lr".into(), "a-2.lr".into())
    );
}

#[derive(Debug, Clone)]
enum RunEvent {
    Come { rank: u32, want: RunIntent, epochs: u32 },
    Finish,
    Close,
}

fn act() -> impl Strategy<Value = RunEvent> {
    let want = prop_oneof![Just(RunIntent::Auto), Just(RunIntent::Continue), Just(RunIntent::Fresh)];
    prop_oneof![
        4 => (0u32..3, want, 1u32..3).prop_map(|(rank, want, epochs)| RunEvent::Come { rank, want, epochs }),
        1 => Just(RunEvent::Finish),
        1 => Just(RunEvent::Close),
    ]
}

proptest! {
    /// Rows that a live worker trains are never dropped, a generation has one set of flags, and a finished run stays
    /// finished unless a worker asks for more.
    #[test]
    fn whatever_comes_nobody_loses_rows(acts in prop::collection::vec(act(), 1..60)) {
        let mut registry = open(None);
        // (incarnation, generation, epochs) of the members.
        let mut inside: Vec<(WorkerIncarnation, u32, u32)> = Vec::new();
        let (mut next, mut generation, mut finished, mut since) = (1, 0, false, 0);
        for act in acts {
            match act {
                RunEvent::Come { rank, want, epochs } => {
                    let who = incarnation(rank, next);
                    next += 1;
                    let Ok((decided, now, rows)) = come(&mut registry, who, want, epochs) else { continue };
                    if now > generation {
                        prop_assert!(generation == 0 || want != RunIntent::Auto, "{decided:?}");
                        prop_assert!(finished || inside.is_empty(), "somebody lived");
                        prop_assert!(rows == since || rows == now && (generation == 0 || want == RunIntent::Fresh));
                        (generation, finished, since) = (now, false, rows);
                        inside.clear();
                    } else {
                        prop_assert_eq!((now, rows), (generation, since));
                        prop_assert_eq!(decided == RunDecision::Late, finished);
                        prop_assert!(inside.iter().all(|one| one.2 == epochs));
                    }
                    if decided != RunDecision::Late {
                        inside.push((who, now, epochs));
                    }
                }
                RunEvent::Finish => if let Some(&(who, now, _)) = inside.first() && !finished {
                    finish(&mut registry, who, now);
                    finished = true;
                },
                RunEvent::Close => if let Some((who, ..)) = inside.pop() {
                    registry.closed(who.rank * 1000 + who.incarnation as u32);
                },
            }
        }
    }
}
