//! Silent workers of a run, and a server that could not hear them: it was stopped, or started again.

use crate::failure_detector::{FailureDetector, WorkerLimits};
use crate::runs::registry::Registry;
use crate::runs::registry_model_tests::{NOW, ask, beat_of, come, incarnation, open};
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::messages::runs::{RunIntent, RunMember, RunReplyV1};
use std::time::Duration;

fn beat(registry: &mut Registry, of: WorkerIncarnation, now: Duration) -> Vec<RunMember> {
    let what = beat_of(1, 2_000);
    match ask(registry, of, what, now).unwrap() {
        RunReplyV1::OrdersV2 { members, .. } => members,
        other => panic!("{other:?}"),
    }
}

/// A server was stopped. The first request behind that learned that all other workers were dead, which nobody could
/// have heard meanwhile. The job went on without a live worker.
#[test]
fn the_first_request_behind_a_stop_of_the_server_gave_up_all_others() {
    let mut registry = open(None);
    let workers = [incarnation(0, 1), incarnation(1, 2)];
    for of in workers {
        come(&mut registry, of, RunIntent::Auto, 3).unwrap();
    }
    let lost = |members: &[RunMember]| members.iter().map(|member| member.lost).collect::<Vec<_>>();
    let second = Duration::from_secs(1);
    for seconds in 0..3 {
        workers.iter().for_each(|of| drop(beat(&mut registry, *of, NOW + second * seconds)));
    }
    let stopped = NOW + second * 60;
    assert_eq!(lost(&beat(&mut registry, workers[0], stopped)), [false, false]);
    // From then on it counts.
    for seconds in 1..=2 {
        assert_eq!(lost(&beat(&mut registry, workers[0], stopped + second * seconds)), [false, false]);
    }
    assert_eq!(lost(&beat(&mut registry, workers[0], stopped + second * 3)), [false, true]);
}

/// After a restart of the registry a worker that had died meanwhile was waited for a minute, whatever its
/// `--worker-timeout`. And the scheduler in the same thread took that minute over.
#[test]
fn a_registry_that_is_opened_again_keeps_to_the_limit_of_its_workers() {
    let folder = tempfile::tempdir().unwrap();
    let workers = [incarnation(0, 1), incarnation(1, 2)];
    let mut before = open(Some(folder.path()));
    for of in workers {
        come(&mut before, of, RunIntent::Auto, 3).unwrap();
    }
    drop(before);
    let (detector, second) = (FailureDetector::default(), Duration::from_secs(1));
    // As the scheduler does, which is opened first.
    detector.expect(workers[1], WorkerLimits::of(second * 5), NOW);
    let mut registry = Registry::open(Some(folder.path()), &detector, NOW).unwrap();
    detector.wake(NOW);
    for at in 1..=6 {
        detector.wake(NOW + second * at);
        assert_eq!(detector.verdict(workers[1], false, NOW + second * at).is_dead(), at > 5, "after {at} s");
    }
    // Nobody else watches these. The first worker that comes back says the limit of all.
    let mut registry_alone = open(Some(folder.path()));
    let members = |registry: &mut Registry, at: u32| beat(registry, workers[0], NOW + second * at);
    let gone: Vec<bool> = (1..=4).map(|at| members(&mut registry_alone, at)[1].lost).collect();
    assert_eq!(gone, [false, false, true, true]);
    assert!(members(&mut registry, 7)[1].lost);
}
