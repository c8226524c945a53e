//! The data folder of a server with a place: whose rows are in it, and whether they may be served.
//!
//! The rows of a folder are believed only if nobody else can have acknowledged anything since. The file PLACE, written
//! whole and synced, says which place the folder is of, which *claims* this folder's servers have made to it, and the
//! claim that its rows are of. A claim is an epoch and an incarnation. A server writes its next claim here before it
//! writes that to the coordinator. So whatever a server was doing when it was killed, the next one knows whether the
//! owner that the coordinator names was a server of this folder.
//!
//! ```text
//! PLACE has            the coordinator has           the rows of the folder are
//! rows, claims         one of these claims           the newest: the server goes on with them
//! rows, claims         a higher epoch of another     former rows: they are moved to DIR/former
//! rows, claims         nothing, or a lower epoch     unknown: the server ends, because the coordinator has forgotten
//! no rows              anything                      not complete: a server died while it began the place
//! no such file, tables nothing                       of a job without coordinator: the server begins with them
//! no such file, tables an owner                      unknown: the server ends
//! ```

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;

use crate::config::MembershipConfig;
use crate::places::folder_error::PlaceFolderError;
use gannet_core::own_files::FileOwner;
use gannet_core::{HeldTable, Store, own_files};
use gannet_jobs::runs::runs_file::{RUNS_FILE, RUNS_FILE_NAME};
use gannet_jobs::scheduler::job_state_file::{JOB_STATE_FILE, is_job_state_name};
use gannet_wire::messages::control::PlaceV3;
use gannet_wire::state_file::StateFile;
use rkyv::{Archive, Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

const RECORD: &str = "PLACE";

const RECORD_FILE: StateFile<PlaceRecordV2> = StateFile::new(
    b"GNTPLAC2",
    "the record of a place",
    "move everything in the folder away: the server then begins as a backup of a server that has the rows, and if there \
     is none, --on-server-loss says what happens",
);

/// Where former rows are.
const FORMER: &str = "former";

/// It is there while they are moved.
const MOVING: &str = "former.new";

/// The file in it that says so: a folder of the user may have the name, too.
const MARK: &str = "MOVING";

const MARK_BEGINNING: &[u8] = b"gannet moves former rows here\n";

/// A server's claim to a place.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) epoch: u64,
    pub(crate) incarnation: u64,
}

impl Claim {
    /// Of rows of a job without coordinator.
    const NONE: Claim = Claim { epoch: 0, incarnation: 0 };

    fn is_of(self, place: &PlaceV3) -> bool {
        (self.epoch, self.incarnation) == (place.epoch, place.incarnation)
    }
}

/// What the file PLACE has.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
struct PlaceRecordV2 {
    job: String,
    place: u32,
    places: u32,
    /// Of the job, in the coordinator. 0: the rows are of a job without one.
    birth: u64,
    /// Of the job when the rows were begun.
    generation: u64,
    /// Whose rows these are: all that it has acknowledged. `None`: they were begun and are not complete.
    rows: Option<Claim>,
    /// Claims of servers of this folder that may have reached the coordinator since.
    claims: Vec<Claim>,
}

/// What the rows of a folder are, by what the coordinator knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FolderRows {
    /// There are none.
    None,
    /// Nobody else can have acknowledged anything since.
    Newest,
    /// Another server has, or the job has gone back: why.
    Former(String),
    /// Nobody knows: why, and what to do.
    Unknown(String),
}

fn place_io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PlaceFolderError + use<> {
    let path = path.to_path_buf();
    move |source| PlaceFolderError::Io { what, path, source }
}

fn sync_place_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn place_in_words(job: &str, place: u32, places: u32) -> String {
    format!("place {place} of {places} of job {job:?}")
}

/// The folder. The threads of a server share it.
pub(crate) struct PlaceFolder {
    store: Store,
    path: PathBuf,
    /// What the file would have. `None`: there are no rows.
    record: Mutex<Option<PlaceRecordV2>>,
    job: String,
    place: (u32, u32),
    /// The birth of the job of which the server is a member. 0: it is none yet.
    birth: AtomicU64,
}

impl PlaceFolder {
    /// That of a server that has a place of its own. Ends a move of former rows that was interrupted.
    ///
    /// # Errors
    /// It is the folder of another place, or cannot be read.
    pub(crate) fn open(
        store: &Store,
        config: &MembershipConfig,
    ) -> Result<Option<PlaceFolder>, PlaceFolderError> {
        let Some(path) = store.folder().filter(|_| !config.is_backup) else { return Ok(None) };
        let (store, path, record) = (store.clone(), path.to_path_buf(), Mutex::default());
        let folder = PlaceFolder {
            store,
            path,
            record,
            job: config.job.clone(),
            place: config.place,
            birth: AtomicU64::new(0),
        };
        if is_marked(&folder.path.join(MOVING)) {
            folder.set_aside()?;
        }
        let record = match RECORD_FILE.load(&folder.path.join(RECORD))? {
            Some(record) => Some(folder.checked(record)?),
            None => folder.of_no_coordinator()?,
        };
        *folder.lock() = record;
        Ok(Some(folder))
    }

    fn lock(&self) -> MutexGuard<'_, Option<PlaceRecordV2>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checked(&self, record: PlaceRecordV2) -> Result<PlaceRecordV2, PlaceFolderError> {
        let PlaceRecordV2 { job, place, places, .. } = &record;
        match *job == self.job && (*place, *places) == self.place {
            true => Ok(record),
            false => Err(self.other(place_in_words(job, *place, *places))),
        }
    }

    fn other(&self, has: String) -> PlaceFolderError {
        let (folder, wanted) = (self.path.clone(), place_in_words(&self.job, self.place.0, self.place.1));
        PlaceFolderError::Other { folder, has, wanted }
    }

    /// The rows of a job without coordinator, if the folder has some.
    fn of_no_coordinator(&self) -> Result<Option<PlaceRecordV2>, PlaceFolderError> {
        let tables = self.store.tables();
        for table in &tables {
            let Some(HeldTable { identity, .. }) = self.store.held(table)? else { continue };
            if (identity.server, identity.servers) != self.place {
                return Err(self.other(format!("a job without coordinator, table {table:?}: {identity}")));
            }
        }
        let is_empty = tables.is_empty() && job_states_in(&self.path)?.is_empty();
        Ok((!is_empty).then(|| PlaceRecordV2 { rows: Some(Claim::NONE), ..self.record(0) }))
    }

    fn record(&self, generation: u64) -> PlaceRecordV2 {
        let (job, (place, places), claims) = (self.job.clone(), self.place, Vec::new());
        let birth = self.birth.load(Relaxed);
        PlaceRecordV2 { job, place, places, birth, generation, rows: None, claims }
    }

    /// The birth of the job that the folder has something of. 0: it has nothing of a job with a coordinator.
    pub(crate) fn birth(&self) -> u64 {
        self.lock().as_ref().map_or(0, |record| record.birth)
    }

    /// The server is a member of the job with this birth.
    pub(crate) fn belongs_to(&self, birth: u64) {
        self.birth.store(birth, Relaxed);
    }

    /// Where former rows are.
    pub(crate) fn former(&self) -> PathBuf {
        self.path.join(FORMER)
    }

    /// Whether the folder may have rows.
    pub(crate) fn has_rows(&self) -> bool {
        self.lock().as_ref().is_some_and(|record| record.rows.is_some())
    }

    /// What the rows of the folder are, by what the coordinator knows of the place and of the job's generation.
    pub(crate) fn rows(&self, place: Option<&PlaceV3>, generation: u64) -> FolderRows {
        let record = self.lock();
        let Some((record, rows)) = record.as_ref().and_then(|record| Some((record, record.rows?))) else {
            return FolderRows::None;
        };
        let folder = self.path.display();
        let is_of_job = rows != Claim::NONE;
        let forgot = || {
            let has = place_in_words(&record.job, record.place, record.places);
            FolderRows::Unknown(format!(
                "the folder {folder} has rows of {has}, of epoch {}, which the coordinator does not know: it was started \
                 again without what it knew, or is another one. Start it with its --data-dir (etcd: restore its data), or \
                 move everything in {folder} away to begin without these rows",
                rows.epoch
            ))
        };
        let Some(place) = place else {
            return if is_of_job { forgot() } else { FolderRows::Newest };
        };
        if generation == record.generation && record.is_newest(place) {
            return FolderRows::Newest;
        }
        if generation > record.generation && (is_of_job || !record.claims.is_empty()) {
            return FolderRows::Former("the job has gone back to a checkpoint since".into());
        }
        let PlaceV3 { owner, epoch, .. } = place;
        if !is_of_job {
            return FolderRows::Unknown(format!(
                "the folder {folder} has rows of a job without coordinator, and {owner} has the place, in epoch {epoch}: \
                 move everything in {folder} away, or begin another run"
            ));
        }
        if generation < record.generation || *epoch <= rows.epoch {
            return forgot();
        }
        FolderRows::Former(format!("{owner} has taken the place since, in epoch {epoch}"))
    }

    /// Whose rows are in the folder.
    pub(crate) fn claim(&self) -> Option<Claim> {
        self.lock().as_ref().and_then(|record| record.rows)
    }

    /// Writes down that this server claims the place for the rows of the folder, before it does so. `seen`: what the
    /// coordinator knows of the place.
    pub(crate) fn claim_with_rows(
        &self,
        claim: Claim,
        seen: Option<&PlaceV3>,
        generation: u64,
    ) -> Result<(), PlaceFolderError> {
        let mut record = self.lock();
        let Some(now) = &*record else { return Ok(()) };
        let mut next = PlaceRecordV2 { generation, birth: self.birth.load(Relaxed), ..now.clone() };
        // An older claim reaches the coordinator no more when that has a later epoch.
        next.claims
            .retain(|known| seen.is_none_or(|place| known.epoch >= place.epoch || known.is_named(place)));
        if !next.claims.contains(&claim) {
            next.claims.push(claim);
        }
        self.write(&mut record, next)
    }

    /// Writes down that this server claims the place without rows, before it does so. Removes what a server has left
    /// that died while it began the place.
    pub(crate) fn claim_empty(&self, claim: Claim, generation: u64) -> Result<(), PlaceFolderError> {
        let mut record = self.lock();
        for table in self.store.tables() {
            tracing::info!(table, "removing what an interrupted start has left here");
            self.store.drop_table(&table).map_err(place_io_error("removing", &self.path.join(&table)))?;
        }
        remove_states(&self.path)?;
        sync_place_folder(&self.path).map_err(place_io_error("syncing", &self.path))?;
        let next = PlaceRecordV2 { claims: vec![claim], ..self.record(generation) };
        self.write(&mut record, next)
    }

    /// Writes down that the folder has all rows of this claim. Only then does the server serve them.
    pub(crate) fn note_rows(&self, claim: Claim) -> Result<(), PlaceFolderError> {
        let mut record = self.lock();
        let Some(now) = &*record else { return Ok(()) };
        let mut next = PlaceRecordV2 { rows: Some(claim), ..now.clone() };
        // The coordinator may still name the claim before, until this server is ready.
        next.claims.extend(now.rows.filter(|before| *before != Claim::NONE && *before != claim));
        self.write(&mut record, next)
    }

    fn write(&self, record: &mut Option<PlaceRecordV2>, next: PlaceRecordV2) -> Result<(), PlaceFolderError> {
        RECORD_FILE.save(&self.path.join(RECORD), &next)?;
        *record = Some(next);
        Ok(())
    }

    /// Moves all rows and states of the folder to DIR/former, in place of what was there. A kill in between leaves the
    /// folder former.new, and the next start goes on. Files of the user stay where they are.
    pub(crate) fn set_aside(&self) -> Result<(), PlaceFolderError> {
        let (moving, former) = (self.path.join(MOVING), self.former());
        let failed = |path: &Path| place_io_error("moving former rows to", path);
        let sync_own = || sync_place_folder(&self.path).map_err(failed(&self.path));
        self.begin_move(&moving, &former)?;
        self.store.move_tables(&moving).map_err(failed(&moving))?;
        move_states(&self.path, &moving)?;
        sync_place_folder(&moving).map_err(failed(&moving))?;
        sync_own()?;
        let mark = former.join(MARK);
        if !is_marked(&former) {
            Store::remove_tables(&former).map_err(failed(&former))?;
            remove_states(&former)?;
            RECORD_FILE.remove(&former.join(RECORD)).map_err(failed(&former))?;
            if own_files::remove_folder(&former).map_err(failed(&former))? {
                own_files::rename(&moving, &former).map_err(failed(&former))?;
                sync_own()?;
                own_files::remove_own(&mark, &[MARK_BEGINNING]).map_err(failed(&mark))?;
                *self.lock() = None;
                return Ok(());
            }
            // The user has files there. From here on, what is there is what was moved.
            own_files::replace(&mark, MARK_BEGINNING, MARK_BEGINNING).map_err(failed(&mark))?;
        }
        Store::move_tables_of(&moving, &former).map_err(failed(&former))?;
        move_states(&moving, &former)?;
        sync_place_folder(&former).map_err(failed(&former))?;
        own_files::remove_own(&moving.join(MARK), &[MARK_BEGINNING]).map_err(failed(&moving))?;
        own_files::remove_folder(&moving).map_err(failed(&moving))?;
        sync_own()?;
        own_files::remove_own(&mark, &[MARK_BEGINNING]).map_err(failed(&mark))?;
        *self.lock() = None;
        Ok(())
    }

    /// Makes the folder to which former rows are moved, with its mark, unless a move that was killed has made it.
    fn begin_move(&self, moving: &Path, former: &Path) -> Result<(), PlaceFolderError> {
        let failed = |path: &Path| place_io_error("moving former rows to", path);
        if is_marked(moving) {
            return Ok(());
        }
        if own_files::remove_own(&former.join(MARK), &[MARK_BEGINNING]).map_err(failed(former))? {
            sync_place_folder(former).map_err(failed(former))?;
        }
        fs::create_dir_all(moving).map_err(failed(moving))?;
        // A kill may have left the mark without its name.
        let part = own_files::new_name(&moving.join(MARK));
        let of_user = |entry: fs::DirEntry| entry.path() != part;
        if fs::read_dir(moving).is_ok_and(|entries| entries.flatten().any(of_user)) {
            return Err(failed(moving)(own_files::in_the_way(moving)));
        }
        own_files::replace(&moving.join(MARK), MARK_BEGINNING, MARK_BEGINNING).map_err(failed(moving))?;
        sync_place_folder(&self.path).map_err(failed(&self.path))
    }
}

/// Whether a move of former rows to this folder is under way.
fn is_marked(folder: &Path) -> bool {
    own_files::owner(&folder.join(MARK), &[MARK_BEGINNING]) == FileOwner::Gannet
}

/// The states of the job in a folder, each with what it begins with.
fn job_states_in(folder: &Path) -> Result<Vec<(PathBuf, &'static [u8])>, PlaceFolderError> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries.map_err(place_io_error("reading", folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(place_io_error("reading", folder))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let beginning = match &*name {
            RUNS_FILE_NAME => RUNS_FILE.beginning(),
            name if is_job_state_name(name) => JOB_STATE_FILE.beginning(),
            _ => continue,
        };
        if own_files::owner(&path, &[beginning]) == FileOwner::Gannet {
            found.push((path, beginning));
        }
    }
    found.sort();
    Ok(found)
}

fn remove_states(folder: &Path) -> Result<(), PlaceFolderError> {
    for (path, beginning) in job_states_in(folder)? {
        own_files::remove_own(&path, &[beginning]).map_err(place_io_error("removing", &path))?;
    }
    Ok(())
}

/// Moves the states of the job, and PLACE. PLACE comes last: while it is there, nobody takes these rows for those of a
/// job without coordinator.
fn move_states(folder: &Path, to: &Path) -> Result<(), PlaceFolderError> {
    let record = folder.join(RECORD);
    let record =
        (own_files::owner(&record, &[RECORD_FILE.beginning()]) == FileOwner::Gannet).then_some(record);
    for path in job_states_in(folder)?.into_iter().map(|(path, _)| path).chain(record) {
        let Some(name) = path.file_name() else { continue };
        own_files::rename_new(&path, &to.join(name))
            .map_err(place_io_error("moving former rows from", &path))?;
    }
    Ok(())
}

impl PlaceRecordV2 {
    /// Whether nobody but servers of this folder can have acknowledged anything since: the coordinator has a claim of
    /// them, or the server that has taken the place is not ready, and names one that has everything.
    fn is_newest(&self, place: &PlaceV3) -> bool {
        let mut own = self.claims.iter().copied().chain(self.rows);
        own.any(|claim| claim.is_of(place) || !place.ready && claim.is_named(place))
    }
}

impl Claim {
    /// Whether the server of the claim is among those that have everything.
    fn is_named(self, place: &PlaceV3) -> bool {
        self != Claim::NONE && place.backups.iter().any(|(_, incarnation)| *incarnation == self.incarnation)
    }
}

/// Refuses a folder of a job with a coordinator to a process without one.
///
/// # Errors
/// It is such a folder, or its file PLACE cannot be read.
pub fn refuse_without_coordinator(store: &Store) -> Result<(), PlaceFolderError> {
    let Some(folder) = store.folder() else { return Ok(()) };
    match RECORD_FILE.load(&folder.join(RECORD))? {
        None => Ok(()),
        Some(PlaceRecordV2 { job, place, places, .. }) => Err(PlaceFolderError::NoCoordinator {
            folder: folder.into(),
            has: place_in_words(&job, place, places),
        }),
    }
}
