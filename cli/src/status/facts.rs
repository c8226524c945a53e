//! What the status of a job says of its workers.

use gannet::job::{ActivityKind, JobStatus, Member, WorkerIncarnation, WorkerState};

/// The worker that tests and saves the model.
pub fn chief(job: &JobStatus) -> Option<u32> {
    job.chief.map(|chief| chief.rank)
}

pub fn standing(job: &JobStatus, member: &Member) -> &'static str {
    match member.state {
        WorkerState::Live => "live",
        WorkerState::Left => "left",
        WorkerState::Dead if job.unfenced.contains(&member.incarnation) => "dead, not yet fenced",
        WorkerState::Dead => "dead",
    }
}

/// The tasks that a worker trains.
pub fn tasks_of(job: &JobStatus, incarnation: WorkerIncarnation) -> Vec<u64> {
    job.leases.iter().filter(|(_, of)| *of == incarnation).map(|(task, _)| *task).collect()
}

/// What a live worker at this index does.
pub fn at(job: &JobStatus, place: usize, member: &Member) -> Option<&'static str> {
    let doing = job.work.get(place).map(|work| work.doing).unwrap_or_default();
    let at = match doing {
        // The worker got tasks after it reported to be idle.
        ActivityKind::Idle if job.leases.iter().any(|(_, of)| *of == member.incarnation) => "learns",
        ActivityKind::Learning => "learns",
        ActivityKind::Reading => "waits for its data",
        ActivityKind::Waiting => "waits for others",
        ActivityKind::Idle => "has no task",
        ActivityKind::Meeting => "waits at a barrier",
        ActivityKind::Saving => "tests or saves",
        ActivityKind::Ending => "waits for the end",
    };
    (member.state == WorkerState::Live).then_some(at)
}

/// A worker's mean loss, once it has reported one.
pub fn loss(member: &Member) -> Option<f64> {
    let progress = &member.progress;
    Some(progress.loss).filter(|loss| progress.examples > 0 && loss.is_finite() && *loss != 0.0)
}

/// Examples a second of all live workers. `None` while none of them has reported any.
pub fn rate(job: &JobStatus) -> Option<f64> {
    let live = || job.members.iter().filter(|member| member.state == WorkerState::Live);
    let none_reported = live().next().is_some() && live().all(|member| member.progress.examples == 0);
    // Starts at 0, because the sum of nothing is -0.
    (!none_reported).then(|| live().fold(0.0, |sum, member| sum + member.progress.rate))
}
