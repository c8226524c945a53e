//! Requests to the registry of runs, which thread 0 of a server with tables has.

use crate::limits::{CLIENT_FORGOTTEN_ON_REQUEST_AFTER, STATUS_TABLES_MAX};
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse, send_answer};
use crate::server_tables::{FOLLOWS, ServerTables};
use crate::tables::table::ServerTable;
use gannet_core::Shards;
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::runs::{RunFrame, RunIsFrame};
use gannet_wire::limits::RUN_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::member::{Activity, Progress, WorkerIncarnation};
use gannet_wire::messages::runs::{RunActionV1, RunReplyV1, RunRequestV1, TableUse};
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Answers a request about a run.
pub(crate) fn answer_run_request(
    frame: &Frame<'_>,
    runs: Option<&mut Registry>,
    scheduler: Option<&mut Schedulers>,
    session: u32,
    now: Duration,
    tables: &ServerTables,
    transmit: &mut Transmit,
) -> RequestOutcome {
    RunFrame::decode(&frame.head)?;
    let Some(runs) = runs else {
        return refuse(Refusal::Unknown, "the registry of runs is in thread 0 of a server that has tables");
    };
    if frame.payload.len() > RUN_BYTES_MAX {
        let bytes = frame.payload.len();
        return refuse(
            Refusal::Limit,
            format!("a request of {bytes} bytes about a run: the limit is {RUN_BYTES_MAX}"),
        );
    }
    let request = match control::open::<RunRequestV1>(frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    let only_asks =
        matches!(request.what, RunActionV1::List | RunActionV1::Look { .. } | RunActionV1::TablesV2);
    if tables.mirror.is_some() && !only_asks {
        return refuse(Refusal::Mismatch, FOLLOWS);
    }
    // Space for the answer comes first: a decision must reach the worker.
    transmit.reserve(0).ok_or(Full)?;
    let report = report_of(&request);
    let reply = match request.what {
        RunActionV1::TablesV2 => Ok(RunReplyV1::TablesV2 { tables: uses(tables, now) }),
        _ => runs.answer(request, session, now, &tables.names()),
    };
    let mut reply = reply.map_err(|(refusal, text)| RequestFailure::Refused(refusal, text));
    if let Some(scheduler) = scheduler {
        runs.take_forgotten().iter().for_each(|run| scheduler.forget(run));
        if let (Ok(RunReplyV1::OrdersV2 { failed, .. }), Some(report)) = (&mut reply, report) {
            *failed = scheduler.note_report(&report.run, report.worker, report.progress, report.work);
        }
    }
    let reply = reply?;
    send_answer(frame, RunIsFrame {}, &control::seal(&reply), transmit)
}

/// What a heartbeat reports of a job, for the scheduler in this thread.
struct BeatReport {
    run: String,
    worker: WorkerIncarnation,
    progress: Progress,
    work: Activity,
}

fn report_of(request: &RunRequestV1) -> Option<BeatReport> {
    let RunActionV1::BeatV2 { beat, .. } = &request.what else { return None };
    let progress = beat.progress.clone()?;
    Some(BeatReport { run: request.name.clone(), worker: request.incarnation, progress, work: beat.work })
}

/// How full the open tables are.
fn uses(tables: &ServerTables, now: Duration) -> Vec<TableUse> {
    let (absences, clock) = (&tables.checkpoints.cuts.absences, tables.detector.clock(now));
    let is_gone = |client: u64| absences.is_client_gone(client, CLIENT_FORGOTTEN_ON_REQUEST_AFTER, clock);
    let of = |table: &ServerTable| TableUse {
        name: table.schema.name.clone(),
        pushers: table.shards.as_ref().map_or(0, Shards::pushers_known) as u32,
        clients_gone: table.shards.as_ref().map_or(0, |shards| shards.clients_gone(is_gone)) as u32,
        pushers_max: gannet_core::limits::PUSHERS_MAX as u32,
    };
    let open = tables.all.iter().filter(|table| !table.schema.name.is_empty());
    open.take(STATUS_TABLES_MAX).map(of).collect()
}
