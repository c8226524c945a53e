//! What the server of place 0 knows besides rows: the jobs of the scheduler, the registry of runs, and the counter of
//! incarnations. Thread 0 tells its backups each of these states whole whenever it has changed, before the answer that
//! depends on it leaves. A backup that takes place 0 goes on with them.

use crate::peers::kinds::only_reads;
use crate::peers::outcome::{RequestOutcome, refuse};
use crate::places::own::SCHEDULER_PLACE;
use crate::places::states::{INCARNATIONS, StateHolders};
use crate::replication::copies::StreamOrigin;
use crate::replication::state_copies::StateCopies;
use crate::server_tables::{FOLLOWS, ServerTables};
use gannet_jobs::TASKS;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::replication::{StateDoneFrame, StateFrame};
use gannet_wire::frames::runs::RunFrame;
use gannet_wire::frames::scheduler::{BookFrame, JobTableFrame};
use gannet_wire::frames::sync::AwaitFrame;
use gannet_wire::messages::runs::RUNS;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Tells the backups the states that have changed, if this is thread 0 of the owner of place 0.
pub(crate) fn tell_states(tables: &mut ServerTables, mut holders: StateHolders<'_>) {
    let (owns, place) = (tables.places.has_taken(SCHEDULER_PLACE), tables.places.get(SCHEDULER_PLACE));
    let Some(replication) = tables.backups.replication.as_mut().filter(|_| owns && place.is_ready) else {
        return;
    };
    let begins = replication.begin_states(place.epoch);
    if begins {
        holders.note_all_changed();
    }
    if !holders.has_changed() {
        return;
    }
    let StateHolders { scheduler, runs, incarnations } = holders;
    scheduler.take_changed(|run, bytes| replication.tell_state(begins, TASKS, run, bytes));
    if let Some(runs) = runs {
        runs.take_changed(|run, bytes| replication.tell_state(begins, RUNS, run, bytes));
    }
    if std::mem::take(&mut incarnations.changed) {
        replication.tell_state(begins, INCARNATIONS, "", incarnations.snapshot());
    }
}

/// Sends those away who come for the scheduler, the registry of runs, a verdict or an incarnation to a server that
/// does not own place 0.
pub(crate) fn must_be_scheduler(tables: &ServerTables) -> RequestOutcome {
    tables.must_own(SCHEDULER_PLACE)
}

/// As [`must_be_scheduler`], for a request of this kind.
pub(crate) fn must_be_asked(tables: &ServerTables, kind: u16) -> RequestOutcome {
    if tables.mirror.is_some() && !only_reads(kind) {
        return refuse(Refusal::Mismatch, FOLLOWS);
    }
    match kind {
        AwaitFrame::KIND | BookFrame::KIND | JobTableFrame::KIND | RunFrame::KIND => {
            must_be_scheduler(tables)
        }
        _ => Ok(()),
    }
}

/// Keeps a state that the scheduler's server tells.
pub(crate) fn answer_state(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    session: u32,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let StateFrame { stream, number, more, epoch } = StateFrame::decode(&frame.head)?;
    transmit.reserve(0).ok_or(Full)?;
    if tables.thread() != 0 {
        return refuse(Refusal::WrongShard, "thread 0 of a backup keeps the states of a scheduler");
    }
    if tables.places.has_taken(SCHEDULER_PLACE) {
        return refuse(Refusal::Identity, "this server is the scheduler itself");
    }
    let is_known = tables.backups.states.as_ref().is_some_and(|known| known.stream == stream);
    if !is_known {
        let origin = StreamOrigin { epoch, session };
        if number != 1 || tables.backups.states.as_ref().is_some_and(|known| origin.is_before(known.origin)) {
            return refuse(Refusal::Unknown, format!("no states of stream {stream:016x} are here"));
        }
        let before = tables.backups.states.take().map(|known| known.base(epoch)).unwrap_or_default();
        tables.backups.states = Some(StateCopies { stream, origin, before, ..StateCopies::default() });
    }
    if let Some(copies) = &mut tables.backups.states
        && let Err(why) = copies.take(number, more, frame.payload)
    {
        copies.has_failed = true;
        return refuse(Refusal::Images, why);
    }
    transmit.commit(StateDoneFrame {}.encode(frame.head.id), 0);
    Ok(())
}

/// Goes on with the states of the scheduler before, of which this is the backup. `since`: an owner of this epoch or
/// a later one has told everything that was acknowledged.
///
/// # Errors
/// They are not here, or cannot be read: in words.
pub(crate) fn take_over_states(
    tables: &mut ServerTables,
    mut holders: StateHolders<'_>,
    since: u64,
    now: Duration,
) -> Result<(), String> {
    match tables.backups.states.take().and_then(|copies| copies.all(since)) {
        Some(states) => holders.take_over(&states, now),
        None => Err("this backup has no states of the scheduler".into()),
    }
}
