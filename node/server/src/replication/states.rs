//! What the server of place 0 knows besides rows: the jobs of the scheduler, the registry of runs, and the counter of
//! incarnations. Thread 0 tells its backups each of these states whole whenever it has changed, before the answer that
//! depends on it leaves. A backup that takes place 0 goes on with them.

use crate::limits::{STATE_BYTES_MAX, STATE_STREAMS_MAX};
use crate::replication::Replication;
use crate::requests::bulk::{RequestOutcome, refuse};
use crate::requests::copies::StreamOrigin;
use crate::restore::states::{INCARNATIONS, StateHolders, TASKS};
use crate::tables::server_tables::ServerTables;
use gannet_core::hash;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::replication::{StateDoneFrame, StateFrame};
use gannet_wire::frames::runs::RunFrame;
use gannet_wire::frames::scheduler::{BookFrame, JobTableFrame};
use gannet_wire::frames::sync::AwaitFrame;
use gannet_wire::messages::control;
use gannet_wire::messages::control::StateV1;
use gannet_wire::messages::runs::RUNS;
use gannet_wire::refusal::Refusal;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The place whose server is the scheduler, keeps the registry of runs and hands out incarnations.
pub(crate) const SCHEDULER_PLACE: u32 = 0;

/// States by name and run.
pub(crate) type ToldStates = BTreeMap<(String, String), Vec<u8>>;

impl StateHolders<'_> {
    fn has_changed(&self) -> bool {
        let runs = self.runs.as_deref().is_some_and(|runs| runs.has_changed());
        self.scheduler.has_changed() || runs || self.incarnations.changed
    }

    fn note_all_changed(&mut self) {
        self.scheduler.note_all_changed();
        self.incarnations.changed = true;
        if let Some(runs) = &mut self.runs {
            runs.note_all_changed();
        }
    }

    /// Goes on with the states of the server before.
    fn take_over(&mut self, states: &ToldStates, now: Duration) -> Result<(), String> {
        for ((name, run), bytes) in states {
            let taken = match (name.as_str(), &mut self.runs) {
                (TASKS, _) => self.scheduler.take_over(run, bytes, now),
                (RUNS, Some(runs)) => runs.take_over(bytes, now),
                (INCARNATIONS, _) => self.incarnations.take_over(bytes),
                _ => Err("this server does not know it".into()),
            };
            taken.map_err(|why| format!("state {name} of run {run:?}: {why}"))?;
        }
        Ok(())
    }
}

impl Replication {
    /// From now on the backups are told states. Returns whether they were not before.
    fn begin_states(&mut self, epoch: u64) -> bool {
        let begins = self.states.is_none();
        self.defers_states = false;
        if begins {
            self.states = Some(ToldStates::new());
            (0..self.queues.len()).for_each(|at| self.tell_all_states(at, epoch));
        }
        begins
    }

    /// Tells a backup that was connected anew all states.
    pub(crate) fn tell_all_states(&mut self, at: usize, epoch: u64) {
        let Some(states) = &self.states else { return };
        let queue = &self.queues[at];
        self.next_stream = hash(self.next_stream.wrapping_add(1));
        queue.begin_states(self.next_stream, epoch);
        for ((name, run), bytes) in states {
            let state = StateV1 { name: name.clone(), run: run.clone(), bytes: bytes.clone() };
            queue.add_state(self.told.fetch_add(1, Relaxed), &control::seal(&state), true);
        }
    }

    /// Tells all backups a state that has changed. `is_first`: they have not been told it before, and need it to have
    /// all.
    fn tell_state(&mut self, is_first: bool, (name, run): (&str, &str), bytes: Vec<u8>) {
        let Some(states) = &mut self.states else { return };
        let state = StateV1 { name: name.to_owned(), run: run.to_owned(), bytes };
        let (sealed, told) = (control::seal(&state), self.told.fetch_add(1, Relaxed));
        for (queue, own) in self.queues.iter().zip(&self.connections) {
            // One that was connected since the last turn is told all states in the next.
            if queue.connection().is_some_and(|(connection, _)| connection == *own) {
                queue.add_state(told, &sealed, is_first);
            }
        }
        let StateV1 { name, run, bytes } = state;
        match bytes.is_empty() {
            true => states.remove(&(name, run)),
            false => states.insert((name, run), bytes),
        };
    }
}

/// Tells the backups the states that have changed, if this is thread 0 of the owner of place 0.
pub(crate) fn tell_states(tables: &mut ServerTables, mut holders: StateHolders<'_>) {
    let (owns, place) = (tables.places.has_taken(SCHEDULER_PLACE), tables.places.get(SCHEDULER_PLACE));
    let Some(replication) = tables.replication.as_mut().filter(|_| owns && place.is_ready) else { return };
    let begins = replication.begin_states(place.epoch);
    if begins {
        holders.note_all_changed();
    }
    if !holders.has_changed() {
        return;
    }
    let StateHolders { scheduler, runs, incarnations } = holders;
    scheduler.take_changed(|run, bytes| replication.tell_state(begins, (TASKS, run), bytes));
    if let Some(runs) = runs {
        runs.take_changed(|run, bytes| replication.tell_state(begins, (RUNS, run), bytes));
    }
    if std::mem::take(&mut incarnations.changed) {
        replication.tell_state(begins, (INCARNATIONS, ""), incarnations.snapshot());
    }
}

/// Sends those away who come for the scheduler, the registry of runs, a verdict or an incarnation to a server that
/// does not own place 0.
pub(crate) fn must_be_scheduler(tables: &ServerTables) -> RequestOutcome {
    tables.must_own(SCHEDULER_PLACE)
}

/// As [`must_be_scheduler`](ServerTables::must_be_scheduler), for a request of this kind.
pub(crate) fn must_be_asked(tables: &ServerTables, kind: u16) -> RequestOutcome {
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
    let is_known = tables.state_copies.as_ref().is_some_and(|known| known.stream == stream);
    if !is_known {
        let origin = StreamOrigin { epoch, session };
        if number != 1 || tables.state_copies.as_ref().is_some_and(|known| origin.is_before(known.origin)) {
            return refuse(Refusal::Unknown, format!("no states of stream {stream:016x} are here"));
        }
        let before = tables.state_copies.take().map(|known| known.base(epoch)).unwrap_or_default();
        tables.state_copies = Some(StateCopies { stream, origin, before, ..StateCopies::default() });
    }
    if let Some(copies) = &mut tables.state_copies
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
    match tables.state_copies.take().and_then(|copies| copies.all(since)) {
        Some(states) => holders.take_over(&states, now),
        None => Err("this backup has no states of the scheduler".into()),
    }
}

/// The states of another server, of which this one is a backup.
#[derive(Debug, Default)]
pub(crate) struct StateCopies {
    stream: u64,
    /// Who began them.
    origin: StreamOrigin,
    /// Frames of the stream that came.
    frames: u64,
    /// The beginning of a state whose end has not come.
    begun: Vec<u8>,
    states: ToldStates,
    /// Bytes of all of them.
    bytes: usize,
    /// A frame could not be taken.
    has_failed: bool,
    /// What owners of earlier epochs have told, the last one at the end. It counts until the owner of this one has told
    /// everything.
    before: Vec<(u64, ToldStates)>,
}

impl StateCopies {
    /// All states, if they are here. The owner of epoch `since` has told everything that was acknowledged. Later ones
    /// have acknowledged nothing, so a state is as it was told last.
    fn all(self, since: u64) -> Option<ToldStates> {
        let StateCopies { origin, before, states, has_failed, .. } = self;
        if origin.epoch <= since {
            return (!has_failed).then_some(states);
        }
        let mut told = before.into_iter().filter(|(epoch, _)| *epoch >= since).peekable();
        told.peek().filter(|(epoch, _)| *epoch == since)?;
        let told = told.map(|(_, states)| states);
        Some(told.chain([states]).flatten().collect())
    }

    /// What counts until a new stream of an owner of this epoch has told everything.
    fn base(self, epoch: u64) -> Vec<(u64, ToldStates)> {
        let StateCopies { origin, mut before, states, has_failed, .. } = self;
        if origin.epoch < epoch && !has_failed {
            before.push((origin.epoch, states));
        }
        before.drain(..before.len().saturating_sub(STATE_STREAMS_MAX));
        before
    }

    fn take(&mut self, number: u64, more: bool, payload: &[u8]) -> Result<(), String> {
        if self.has_failed {
            return Err("an earlier frame of the stream could not be taken".into());
        }
        match number.checked_sub(self.frames) {
            // It came before, over a link that was lost.
            None | Some(0) => return Ok(()),
            Some(1) => self.frames = number,
            Some(_) => return Err(format!("frame {number} of the stream came behind frame {}", self.frames)),
        }
        if self.bytes + self.begun.len() + payload.len() > STATE_BYTES_MAX {
            return Err(format!("the states have more than {STATE_BYTES_MAX} bytes, the limit"));
        }
        self.begun.extend_from_slice(payload);
        if more {
            return Ok(());
        }
        let sealed = std::mem::take(&mut self.begun);
        let StateV1 { name, run, bytes } =
            control::open(&sealed).map_err(|error| format!("a state cannot be read: {error}"))?;
        let (of, has) = ((name, run), bytes.len());
        let before = match bytes.is_empty() {
            true => self.states.remove(&of),
            false => self.states.insert(of, bytes),
        };
        self.bytes = self.bytes + has - before.map_or(0, |before| before.len());
        Ok(())
    }
}
