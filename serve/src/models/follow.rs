//! A model that follows a training on servers: several times a second it takes over what has changed.
//!
//! There are two copies of the model. One answers, and never changes. The changes go into the other one, which then
//! takes its place. So an answer is of one position, and no request waits.

use super::served::ServedModel;
use super::slot::Slot;
use crate::limits::{COPY_WAIT, FOLLOW_BEHIND_BYTES_MAX};
use gannet::Transports;
use gannet::runs::RunId;
use gannet::storage::{FollowedCut, Follower};
use gannet::table::Schema;
use gannet::train::saved::{BATCH_TABLES, JobTables, ModelNotes, RunNotes, SavedModel, SavedModelError};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Takes the notes about its model out of those of a run.
pub type NotesOfRun = fn(&str) -> RunNotes;

/// Takes a cut over that is this old, and hands it on to other readers.
pub type Relay = Box<dyn FnMut(&Arc<FollowedCut>, Duration) -> Result<(), String> + Send>;

/// Servers that are followed.
pub struct FollowedServers {
    /// What messages call them.
    pub place: String,
    /// The connections.
    pub follower: Follower<Transports>,
    /// Reads the notes of the run.
    pub notes: NotesOfRun,
    /// Hands each cut on. `None`: there are no other readers.
    pub relay: Option<Relay>,
}

/// A model that follows servers.
pub struct Following {
    servers: FollowedServers,
    /// The tables to which each batch of the run pushes.
    batch_tables: Vec<String>,
    copies: Option<Copies>,
    /// The model of the first cut, until it is served.
    first: Option<ServedModel>,
}

/// The copy of the model that does not answer.
struct Copies {
    tables: JobTables,
    /// It, when nobody uses it any more.
    idle: Option<SavedModel>,
    /// It, as long as requests may use it.
    retired: Option<Arc<ServedModel>>,
    /// What it lacks of the one that answers.
    missed: Vec<Arc<FollowedCut>>,
    /// What both lack.
    new: Vec<Arc<FollowedCut>>,
}

fn failed(place: &str, why: impl std::fmt::Display) -> SavedModelError {
    SavedModelError::Job(format!("{place}: {why}"))
}

impl Following {
    /// Begins to follow. The first call of [`next`](Self::next) reads all rows.
    pub fn new(servers: FollowedServers) -> Following {
        Following { servers, batch_tables: Vec::new(), copies: None, first: None }
    }

    /// What messages call the servers.
    pub fn place(&self) -> &str {
        &self.servers.place
    }

    /// Reads all rows. [`first`](Self::first) then returns them as a model.
    ///
    /// # Errors
    /// A server cannot be reached, or the run has no model that scores.
    pub fn prepare(&mut self) -> Result<(), SavedModelError> {
        self.servers.follower.begin_anew();
        self.copies = None;
        let cut = self.cut()?;
        self.first = Some(self.begin(&cut)?);
        self.hand_on(&cut)
    }

    /// All rows, as a new model.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub fn first(&mut self) -> Result<ServedModel, SavedModelError> {
        if self.first.is_none() {
            self.prepare()?;
        }
        self.first.take().ok_or_else(|| failed(&self.servers.place, "no rows were read"))
    }

    /// Takes over what has changed since. Returns how many commands that are.
    ///
    /// # Errors
    /// A server cannot be reached, or the run has no model that scores any more. The model of before is served.
    pub fn next(&mut self, slot: &Slot) -> Result<u64, SavedModelError> {
        if self.copies.is_none() {
            // Changes alone make no model.
            self.servers.follower.begin_anew();
        }
        let cut = self.cut()?;
        self.hand_on(&cut)?;
        if self.copies.is_none() || cut.is_full {
            let commands = cut.commands;
            // If the rows make no model, the changes after them make none either.
            self.copies = None;
            let model = self.begin(&cut)?;
            let former = slot.replace(model);
            tracing::info!(name = slot.name, former = former.version, "all rows were read anew");
            return Ok(commands);
        }
        let before = self.copies.as_ref().and_then(|copies| copies.last()).map_or(0, |last| last.commands);
        let commands = cut.commands.saturating_sub(before);
        if let Some(copies) = &mut self.copies {
            copies.new.push(cut);
        }
        self.publish(slot)?;
        Ok(commands)
    }

    /// Forgets the copies: the next call reads all rows.
    pub fn begin_anew(&mut self) {
        self.copies = None;
    }

    /// Hands a cut on to other readers. If they do not get it, they get all rows with the next one.
    fn hand_on(&mut self, cut: &Arc<FollowedCut>) -> Result<(), SavedModelError> {
        let age = self.servers.follower.age(cut);
        let Some(relay) = &mut self.servers.relay else { return Ok(()) };
        relay(cut, age).map_err(|why| {
            self.servers.follower.begin_anew();
            self.copies = None;
            failed(&self.servers.place, why)
        })
    }

    /// Cuts the tables, so that each batch is in all of them or in none.
    fn cut(&mut self) -> Result<Arc<FollowedCut>, SavedModelError> {
        let place = self.servers.place.clone();
        let error = |error| failed(&place, error);
        let cut = self.servers.follower.cut(&self.batch_tables).map_err(error)?;
        let tables = batch_tables(&cut, self.servers.notes);
        if tables == self.batch_tables {
            return Ok(Arc::new(cut));
        }
        // Only the cut says which tables these are.
        self.batch_tables = tables;
        self.servers.follower.begin_anew();
        self.servers.follower.cut(&self.batch_tables).map(Arc::new).map_err(error)
    }

    /// Makes both copies of a cut with all rows. Returns the one that is to answer.
    fn begin(&mut self, cut: &Arc<FollowedCut>) -> Result<ServedModel, SavedModelError> {
        let place = &self.servers.place;
        let Some((run, notes)) = &cut.run else {
            return Err(failed(
                place,
                "the servers know no such run: name it with --run, or start its workers",
            ));
        };
        let notes = (self.servers.notes)(notes);
        if notes.note("format").is_none() {
            let text = format!(
                "run {:?} does not say how its data was read: jobs of lbfgs and lda, data from a pipe, data with \
                 thousands of columns, and runs of earlier versions do not; serve the model that the training saves \
                 (--model), or a checkpoint",
                run.name
            );
            return Err(failed(place, text));
        }
        let schemas: Vec<Schema> = cut.tables.iter().map(|schema| of_run(run, schema.clone())).collect();
        let schemas: Vec<&Schema> = schemas.iter().collect();
        let (mut served, mut tables) = JobTables::of(&notes, &schemas, Path::new(place))?;
        let (mut idle, _) = JobTables::of(&notes, &schemas, Path::new(place))?;
        for copy in [&mut served, &mut idle] {
            put(&mut tables, copy, cut);
            tables.settle(copy)?;
        }
        let served = self.served(served, cut)?;
        let new = Vec::new();
        // The cut has nothing that the copy lacks: it only says the position.
        let position = FollowedCut {
            tables: Vec::new(),
            rows: Vec::new(),
            cursors: Vec::new(),
            run: None,
            snapshot: None,
            ..**cut
        };
        let missed = vec![Arc::new(position)];
        self.copies = Some(Copies { tables, idle: Some(idle), retired: None, missed, new });
        Ok(served)
    }

    /// Puts the copy that does not answer in the place of the other one. If a request still uses it, the changes wait
    /// for the next time.
    fn publish(&mut self, slot: &Slot) -> Result<(), SavedModelError> {
        let Some(mut copies) = self.copies.take() else { return Ok(()) };
        let Some(mut saved) = copies.free_copy() else {
            if copies.waiting_bytes() <= FOLLOW_BEHIND_BYTES_MAX {
                self.copies = Some(copies);
            }
            return Ok(());
        };
        for cut in copies.missed.iter().chain(&copies.new) {
            put(&mut copies.tables, &mut saved, cut);
        }
        copies.tables.settle(&mut saved)?;
        let Some(last) = copies.last() else { return Ok(()) };
        let model = self.served(saved, last)?;
        copies.retired = Some(slot.replace(model));
        copies.missed = std::mem::take(&mut copies.new);
        self.copies = Some(copies);
        Ok(())
    }

    /// The model at the position of a cut.
    fn served(&self, saved: SavedModel, cut: &FollowedCut) -> Result<ServedModel, SavedModelError> {
        let age = self.servers.follower.age(cut);
        let version = format!("{}-{:08x}", cut.commands, cut.history >> 32);
        ServedModel::new(saved, version, SystemTime::now() - age)
    }
}

impl Copies {
    /// The last cut that was read.
    fn last(&self) -> Option<&FollowedCut> {
        self.new.last().or(self.missed.last()).map(|cut| &**cut)
    }

    /// Bytes of the rows that wait to be put into the copy.
    fn waiting_bytes(&self) -> usize {
        let all = self.missed.iter().chain(&self.new).flat_map(|cut| &cut.rows);
        all.map(|of| of.keys.len() * 8 + of.rows.as_ref().map_or(0, |rows| rows.len() * 4)).sum()
    }

    /// The copy that does not answer, when no request uses it any more.
    fn free_copy(&mut self) -> Option<SavedModel> {
        if let Some(idle) = self.idle.take() {
            return Some(idle);
        }
        let mut retired = self.retired.take()?;
        let until = Instant::now() + COPY_WAIT;
        loop {
            retired = match Arc::try_unwrap(retired) {
                Ok(free) => return Some(free.saved),
                Err(used) => used,
            };
            if Instant::now() >= until {
                self.retired = Some(retired);
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Puts what a cut has into a copy.
fn put(tables: &mut JobTables, copy: &mut SavedModel, cut: &FollowedCut) {
    for of in &cut.rows {
        match &of.rows {
            Some(rows) => tables.put(copy, of.table, &of.keys, rows),
            None => tables.remove(copy, of.table, &of.keys),
        }
    }
}

/// The schema of a table under its name in the run. That of another generation of the run has no name.
fn of_run(run: &RunId, schema: Schema) -> Schema {
    let is_other = |own: &&str| own.split_once('.').is_some_and(|(since, _)| since.parse::<u32>().is_ok());
    let own = schema.name.strip_prefix(&run.table("")).filter(|own| !is_other(own));
    let name = own.unwrap_or_default().to_owned();
    Schema { name, ..schema }
}

/// The names on the servers of the tables to which each batch of the run pushes.
fn batch_tables(cut: &FollowedCut, notes: NotesOfRun) -> Vec<String> {
    let Some((run, of_run)) = &cut.run else { return Vec::new() };
    let notes = notes(of_run);
    let names = notes.note(BATCH_TABLES).unwrap_or_default();
    names.split_whitespace().map(|name| run.table(name)).collect()
}
