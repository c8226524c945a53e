//! Requests to the scheduler made of any choices: plans, heartbeats, tasks, barriers and bytes of the data, by
//! incarnations that exist and others.

use crate::hostile::frames::{Choices, PUSHERS};
use gannet_transport::Head;
use gannet_wire::frames::any_head;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::runs::RunFrame;
use gannet_wire::frames::scheduler::{BookFrame, FeedFrame};
use gannet_wire::limits::FEED_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::data::DataRequest;
use gannet_wire::messages::job_plan::{JobPlan, PlanFile};
use gannet_wire::messages::jobs::{SchedulerActionV1, SchedulerRequestV3};
use gannet_wire::messages::member::{Activity, ActivityKind, Progress, WorkerIncarnation};
use gannet_wire::messages::runs::{JoinV1, RunActionV1, RunBeatV2, RunIntent, RunRequestV1, RunSetting};

/// A request to the scheduler: one whole, or one cut short.
pub(crate) fn request(choices: &mut Choices<'_>, id: u64) -> (Head, Vec<u8>) {
    if choices.below(4) == 0 {
        return feed(choices, id);
    }
    let incarnation = |choices: &mut Choices<'_>| WorkerIncarnation {
        rank: choices.below(PUSHERS) as u32,
        incarnation: choices.below(3),
    };
    let text = |choices: &mut Choices<'_>| "x".repeat(choices.below(2000) as usize);
    let what = match choices.below(9) {
        0 | 1 => SchedulerActionV1::Register { plan: plan(choices) },
        2 => SchedulerActionV1::ReportV3 {
            progress: Progress {
                clock: choices.word(),
                loss: f64::from_bits(choices.word()),
                waits_for: Some((choices.word() as u32, choices.word())),
                acked: vec![(choices.below(5), choices.word()); choices.below(4) as usize],
                ..Progress::default()
            },
            work: Activity { doing: ActivityKind::Learning, progress: choices.word() },
        },
        3 => SchedulerActionV1::Take { holding: vec![choices.below(5); choices.below(4) as usize] },
        4 => SchedulerActionV1::Done { index: choices.word(), examples: choices.below(100) },
        5 => SchedulerActionV1::FencedV2 { dead: incarnation(choices), acked: vec![(0, 1)] },
        6 => SchedulerActionV1::Meet { name: text(choices) },
        7 => SchedulerActionV1::Fail { why: text(choices) },
        _ => [
            SchedulerActionV1::Leave,
            SchedulerActionV1::Status,
            SchedulerActionV1::Saved,
            SchedulerActionV1::Enough,
        ][choices.below(4) as usize]
            .clone(),
    };
    let run = ["", "one", "two", "no/name"][choices.below(4) as usize].to_owned();
    let incarnation = incarnation(choices);
    let (generation, birth) = (choices.below(4) as u32, choices.below(2));
    let mut payload = control::seal_as(3, &SchedulerRequestV3 { run, generation, birth, incarnation, what });
    if choices.below(8) == 0 {
        payload.truncate(choices.below(payload.len() as u64) as usize);
    }
    (BookFrame {}.encode(id), payload)
}

/// A request to the registry of runs: one whole, or one cut short.
pub(crate) fn run(choices: &mut Choices<'_>, id: u64) -> (Head, Vec<u8>) {
    let incarnation =
        WorkerIncarnation { rank: choices.below(PUSHERS) as u32, incarnation: choices.below(3) };
    let generation = choices.below(4) as u32;
    let name = ["", "one", "two", "no/name", "../up"][choices.below(5) as usize].to_owned();
    let tables = vec!["x".repeat(choices.below(80) as usize); choices.below(20) as usize];
    let what = match choices.below(6) {
        0 | 1 => RunActionV1::Join(JoinV1 {
            want: [RunIntent::Auto, RunIntent::Continue, RunIntent::Fresh][choices.below(3) as usize],
            settings: vec![RunSetting::new("--x", choices.below(2)); choices.below(400) as usize],
            left: tables.clone(),
            tables,
            at: choices.word(),
            notes: "n".repeat(choices.below(8000) as usize),
            birth: choices.below(2),
            timeout_ms: choices.word(),
        }),
        2 => {
            let (batches, timeout_ms) = (choices.word(), choices.word());
            let acked = vec![(choices.below(5), choices.word()); choices.below(400) as usize];
            let progress = (choices.below(2) == 0).then(|| Progress { acked, ..Progress::default() });
            let work = Activity { doing: ActivityKind::Learning, progress: choices.word() };
            RunActionV1::BeatV2 { generation, beat: RunBeatV2 { batches, timeout_ms, work, progress } }
        }
        3 => RunActionV1::Done { generation },
        4 => {
            let missing = vec![choices.below(PUSHERS) as u32; choices.below(3) as usize];
            RunActionV1::Finish { generation, rows: choices.word(), at: choices.word(), missing }
        }
        _ => {
            let look = RunActionV1::Look { tables: tables.clone() };
            let others = [
                RunActionV1::Dropped { tables },
                RunActionV1::List,
                look,
                RunActionV1::Withdraw { generation },
                RunActionV1::JobV2 { generation, number: choices.below(3), unfenced: vec![incarnation; 3] },
                RunActionV1::Forget,
                RunActionV1::TablesV2,
                RunActionV1::Fenced { generation, dead: incarnation },
                RunActionV1::Leave { generation },
            ];
            others[choices.below(9) as usize].clone()
        }
    };
    let mut payload = control::seal(&RunRequestV1 { name, incarnation, what });
    if choices.below(8) == 0 {
        payload.truncate(choices.below(payload.len() as u64) as usize);
    }
    (RunFrame {}.encode(id), payload)
}

/// A request for bytes of the data.
fn feed(choices: &mut Choices<'_>, id: u64) -> (Head, Vec<u8>) {
    let bytes = [0, 1, 4096, FEED_BYTES_MAX, FEED_BYTES_MAX + 1, usize::MAX][choices.below(6) as usize];
    let feed = match choices.below(3) {
        0 => DataRequest::Text { index: choices.below(5), from: choices.word(), bytes },
        1 => DataRequest::Head { file: choices.below(3) as u32, bytes },
        _ => DataRequest::Offer,
    };
    let mut payload = feed.payload();
    if choices.below(8) == 0 {
        payload.truncate(choices.below(payload.len() as u64) as usize);
    }
    // An aux of 1 is refused.
    (any_head(FeedFrame::KIND, choices.below(2) as u16, id, [0; 4]), payload)
}

fn plan(choices: &mut Choices<'_>) -> JobPlan {
    let file = PlanFile {
        name: "x".repeat(choices.below(3) as usize * 30_000),
        bytes: choices.word(),
        print: choices.below(2),
        whole: choices.below(2) == 0,
    };
    JobPlan {
        workers: choices.word() as u32,
        files: vec![file; choices.below(4) as usize],
        task_bytes: choices.word(),
        batch: choices.below(100) as u32,
        epochs: choices.word() as u32,
        worker_timeout_ms: choices.word(),
        settings: Vec::new(),
    }
}
