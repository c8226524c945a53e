//! A server begins a place that nobody has: for the first time, or because nobody has its rows any more.
//!
//! The job has a *generation* in the coordinator, with the number of a checkpoint. All places of one generation begin
//! with the rows of that checkpoint, or without rows. When the rows of a place are gone and the job is to go back
//! ([`OnServerLoss::Restore`]), the server that notices begins the next generation. The owners of places of earlier
//! generations end, because their rows are newer than those of the checkpoint. Started again, they begin their places
//! in the new generation.

use crate::config::{OnServerLoss, ReplicationMode};
use crate::limits::ORPHAN_LEASES;
use crate::membership::role::{LeaseHolder, Loading, Role, Vacancy};
use crate::membership::run_leases::RunLeases;
use crate::membership::{Membership, undone};
use crate::places::folder::{Claim, PlaceFolder};
use crate::places::own::Promotion;
use crate::restore::place::PlaceRows;
use gannet_transport::Net;
use gannet_wire::coordinator::{CoordinatorError, CoordinatorWrite};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{GenerationV2, PlaceV3};
use gannet_wire::place_keys::PlaceKeys;
use gannet_wire::random;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl<N: Net> Membership<N> {
    /// What the coordinator knows of the job's generation, and the version of that. The first server that asks founds
    /// the job.
    pub(crate) fn generation(&self) -> Result<(GenerationV2, u64), CoordinatorError> {
        let key = undone::generation_key(&self.config.job);
        loop {
            if let Some(known) = undone::known_generation(&*self.config.coordinator, &key)? {
                return Ok(known);
            }
            let lease = match self.keeps_rows() {
                true => 0,
                false => self.config.coordinator.grant(self.config.kept)?,
            };
            // What a folder has of an earlier job is refused later, by the name of the place.
            let birth = self.place_folder().map(PlaceFolder::birth).filter(|birth| *birth != 0);
            let Some(birth) = birth.or_else(random::draw_number) else {
                return Err(CoordinatorError("the system gives no random bytes".into()));
            };
            let (checkpoint, servers) = (self.newest()?, self.identity.servers());
            let first =
                GenerationV2 { number: 0, checkpoint, undone: 0, lease, birth: birth.max(1), servers };
            if let Some(version) = self.set_generation(0, &first)? {
                return Ok((first, version));
            }
        }
    }

    /// The data folder of the place that is this server's own.
    pub(crate) fn place_folder(&self) -> Option<&PlaceFolder> {
        self.loading.as_ref().and_then(|loading| loading.loader.folder())
    }

    /// Whether this server has a place of its own whose rows are in a data folder.
    pub(crate) fn keeps_rows(&self) -> bool {
        self.place_folder().is_some()
    }

    /// Writes the generation, if it still has this version.
    pub(crate) fn set_generation(
        &self,
        version: u64,
        next: &GenerationV2,
    ) -> Result<Option<u64>, CoordinatorError> {
        let (key, value) = (undone::generation_key(&self.config.job), control::seal_as(2, next));
        self.config.coordinator.compare_and_set(&key, version, &value, RunLeases::of(next.lease))
    }

    /// The write of what the coordinator is to know of a place.
    pub(crate) fn write_of(&self, keys: &PlaceKeys, version: u64, place: &PlaceV3) -> CoordinatorWrite {
        let lease = self.runs.now().filter(|_| !self.keeps_rows());
        CoordinatorWrite { lease, ..keys.write(version, place) }
    }

    /// The newest checkpoint of the job.
    fn newest(&self) -> Result<Option<u64>, CoordinatorError> {
        let Some(Loading { loader, .. }) = &self.loading else { return Ok(None) };
        loader.newest().map_err(|error| CoordinatorError(format!("looking for a checkpoint: {error}")))
    }

    fn give_up_saves(&self) -> Result<(), CoordinatorError> {
        let Some(Loading { loader, .. }) = &self.loading else { return Ok(()) };
        loader.give_up_saves().map_err(|error| CoordinatorError(format!("giving up checkpoints: {error}")))
    }

    /// Begins the next generation, unless another server has done so. Returns the present one.
    fn go_back(&self, from: GenerationV2, place: u32) -> Result<GenerationV2, CoordinatorError> {
        let key = undone::generation_key(&self.config.job);
        let known = undone::known_generation(&*self.config.coordinator, &key)?;
        let Some((known, version)) = known else { return Ok(self.generation()?.0) };
        if known.number != from.number {
            return Ok(known);
        }
        // A saver that is not dead yet publishes before this, and then its checkpoint is the newest one, or never.
        self.give_up_saves()?;
        let number = from.number + 1;
        let next = GenerationV2 { number, checkpoint: self.newest()?, undone: 0, ..known };
        if self.set_generation(version, &next)?.is_none() {
            return Ok(self.generation()?.0);
        }
        let checkpoint = next.checkpoint.unwrap_or(0);
        tracing::error!(
            place,
            generation = next.number,
            checkpoint,
            "the rows of this place are gone: all servers of the job go back to the checkpoint (0: to the beginning)"
        );
        Ok(next)
    }

    /// Whether this server may begin a place that another server has had, and whose rows it has not.
    pub(crate) fn may_begin(
        &self,
        keys: &PlaceKeys,
        place: &PlaceV3,
        vacancy: Vacancy,
        now: GenerationV2,
    ) -> bool {
        // The answer to an earlier write of this server was lost.
        if place.incarnation == self.incarnation {
            return true;
        }
        let is_home = self.is_home(keys);
        let leases = match self.config.on_server_loss {
            // A server has died while it began the place.
            _ if is_home && !was_used(place) => 0,
            OnServerLoss::Wait => {
                if is_home && vacancy.seen >= self.config.lease * ORPHAN_LEASES {
                    let text = "the rows of this place are gone, and nobody begins it again (--on-server-loss wait): put the \
                                data folder of its last owner back, or start the job again with stop or restore";
                    self.warn(keys.number, text.into());
                }
                return false;
            }
            OnServerLoss::Stop if !is_home => return false,
            OnServerLoss::Restore if is_home && place.generation < now.number => 0,
            OnServerLoss::Restore if !is_home => 2 * ORPHAN_LEASES,
            // The owner and all backups have been silent for so long that none of them comes back.
            _ => ORPHAN_LEASES,
        };
        vacancy.seen >= self.config.lease * leases
    }

    /// Whether a place is the one that this server has begun with.
    pub(crate) fn is_home(&self, keys: &PlaceKeys) -> bool {
        keys.number == self.config.place.0 && !self.config.is_backup
    }

    /// Takes a place that nobody has had, or of which nobody has the rows any more. `seen`: what the coordinator knew
    /// of it.
    pub(crate) fn found(
        &self,
        keys: &PlaceKeys,
        seen: Option<(PlaceV3, u64)>,
        now: GenerationV2,
    ) -> Result<Option<Role>, CoordinatorError> {
        let LeaseHolder::Here(lease, until) = self.acquire(keys)? else { return Ok(None) };
        // A server may have had the place until the key was made.
        if keys.get(&*self.config.coordinator)? != seen {
            return Ok(None);
        }
        let goes_back = self.config.on_server_loss == OnServerLoss::Restore
            && seen.as_ref().is_some_and(|(place, _)| {
                place.generation == now.number && place.incarnation != self.incarnation && was_used(place)
            });
        let generation = if goes_back { self.go_back(now, keys.number)? } else { now };
        // This server has rows of the generation before: it ends with its next step. The rows of a checkpoint do not
        // fit beside them.
        if goes_back && self.standing.owns_any() {
            return Ok(None);
        }
        let begins_with = self.begins_with(keys, seen.as_ref().map(|(place, _)| place), generation);
        let (place, version) = match seen {
            // The answer to an earlier write was lost.
            Some((place, version)) if place.incarnation == self.incarnation => (place, version),
            seen => {
                let (before, at) = seen.map_or((0, 0), |(place, version)| (place.epoch, version));
                if !self.claim(keys, before + 1, begins_with, generation) {
                    return Ok(None);
                }
                let place = PlaceV3 {
                    epoch: before + 1,
                    generation: generation.number,
                    owner: self.config.addr.clone(),
                    incarnation: self.incarnation,
                    ready: begins_with.is_none(),
                    backups: Vec::new(),
                    since: before + 1,
                    is_async: self.mode == ReplicationMode::Async,
                };
                let Some(version) = self.set(keys, at, &place)? else { return Ok(None) };
                if before > 0 {
                    let place = keys.number;
                    tracing::error!(
                        place,
                        "the rows of this place are gone: all servers that had them have died"
                    );
                }
                (place, version)
            }
        };
        self.standing.own((keys.number, place.epoch), until);
        if place.ready {
            self.standing.note_ready(keys.number);
        }
        if let Some(rows) = begins_with.filter(|_| !place.ready) {
            self.load(keys.number, Claim { epoch: place.epoch, incarnation: self.incarnation }, rows);
        }
        self.wake();
        Ok(Some(Role::Owner { lease, place, version, may_write: true }))
    }

    /// What a place begins with, and its threads are to take. `None`: there is nothing to take, so the place is ready
    /// at once.
    fn begins_with(
        &self,
        keys: &PlaceKeys,
        seen: Option<&PlaceV3>,
        generation: GenerationV2,
    ) -> Option<PlaceRows> {
        let has_checkpoints = self.loading.as_ref().is_some_and(|loading| loading.loader.has_checkpoints());
        let checkpoint = match (seen, self.config.on_server_loss) {
            // Without a restore, rows that are gone stay so.
            (Some(place), OnServerLoss::Stop | OnServerLoss::Wait) if was_used(place) => None,
            _ => generation.checkpoint.filter(|_| has_checkpoints),
        };
        let folder = self.folder_of(keys);
        match checkpoint {
            // Rows of a job without coordinator.
            _ if seen.is_none() && folder.is_some_and(PlaceFolder::has_rows) => Some(PlaceRows::Folder),
            Some(checkpoint) => Some(PlaceRows::Checkpoint(checkpoint)),
            None => folder.map(|_| PlaceRows::None),
        }
    }

    /// Writes down in the data folder, if there is one, that this server claims a place. Returns whether it may go on.
    fn claim(&self, keys: &PlaceKeys, epoch: u64, rows: Option<PlaceRows>, generation: GenerationV2) -> bool {
        let Some(folder) = self.folder_of(keys) else { return true };
        let claim = Claim { epoch, incarnation: self.incarnation };
        let claimed = match rows {
            Some(PlaceRows::Folder) => folder.claim_with_rows(claim, None, generation.number),
            _ => folder.claim_empty(claim, generation.number),
        };
        if let Err(error) = &claimed {
            self.warn(keys.number, format!("this server cannot begin its place, and tries again: {error}"));
        }
        claimed.is_ok()
    }

    /// Loads the rows of a place. When they are there, the threads take them after the next step of the membership.
    pub(crate) fn load(&self, server: u32, claim: Claim, rows: PlaceRows) {
        let Some(Loading { loader, on_thread }) = &self.loading else { return };
        let (loader, standing) = (loader.clone(), self.standing.clone());
        let servers = self.config.place.1;
        let load = move || {
            let loaded = catch_unwind(AssertUnwindSafe(|| loader.load(server, claim, rows)));
            match loaded {
                Ok(Ok(loaded)) => {
                    let place = server;
                    if rows != PlaceRows::None {
                        tracing::warn!(place, rows = loaded.rows, "this server goes on from {rows}");
                    }
                    let epoch = claim.epoch;
                    let promotion =
                        Promotion { server, servers, epoch, has_all_since: Some(epoch), is_held: false };
                    standing.promote(promotion, Some(loaded));
                }
                Ok(Err(error)) if rows == PlaceRows::Folder => {
                    let then = "in a job with a coordinator you can also move everything in this server's data folder away: \
                                it then is a backup of a server that has the rows, and if there is none, --on-server-loss \
                                says what happens";
                    standing.note_failure(server, format!("{rows}: {error}; {then}"));
                }
                Ok(Err(error)) => standing.note_failure(server, format!("{rows}: {error}")),
                Err(_) => standing.note_failure(server, format!("{rows}: the thread that loads it panicked")),
            }
        };
        if !on_thread || rows == PlaceRows::None {
            return load();
        }
        let thread = std::thread::Builder::new().name(format!("gannet-load-{server}")).spawn(load);
        if let Err(error) = thread {
            self.standing.note_failure(server, format!("the system gives no thread to load it: {error}"));
        }
    }
}

/// Whether a worker may have pushed to a place in its generation. A server may have died while it loaded the rows.
fn was_used(place: &PlaceV3) -> bool {
    place.ready || !place.backups.is_empty()
}
