//! The membership of a server: it asks the coordinator who owns the shards of each *place*, and keeps or takes places.
//!
//! A place is the part of one server in all tables: server `i` of `n`. A server begins with the place that is its own,
//! if nobody has it, or as a backup with none. It takes the place of each server that dies, if it has all of its rows.
//! A place has two keys in the coordinator:
//! - `JOB/owner/i` exists as long as the lease of the owner. Only who made it may write the other key.
//! - `JOB/place/i` has the owner's address, the epoch, and the backups that have everything that was acknowledged
//!   ([`PlaceV3`]). It changes by compare-and-set.
//!
//! Each server also has a key `JOB/server/ADDR` with a lease of its own: the registry, from which owners choose their
//! backups.
//!
//! An owner says nothing to anybody when its lease may have ended. It keeps its own lease shorter than the coordinator
//! does. Whether a push is lost does not depend on clocks: an owner acknowledges only what all backups of the key have,
//! and only these may take its place.

pub(crate) mod admission;
pub(crate) mod agreement;
pub(crate) mod coordinator_answers;
pub(crate) mod forgetting;
pub(crate) mod founding;
pub(crate) mod keeping;
pub(crate) mod kept;
pub(crate) mod registry;
pub(crate) mod retaking;
pub(crate) mod role;
pub(crate) mod rounds;
pub(crate) mod run_leases;
pub(crate) mod slot;
pub(crate) mod slots;
pub(crate) mod standing;
pub(crate) mod status;
pub(crate) mod undone;

use crate::config::{MembershipConfig, ReplicationMode, ServerConfig};
use crate::limits::serving_time;
use crate::membership::admission::JobIdentity;
use crate::membership::coordinator_answers::CoordinatorAnswers;
use crate::membership::kept::Kept;
use crate::membership::role::{Deposed, LeaseHolder, Loading, Owners, Role, StepOutcome, Vacancy};
use crate::membership::run_leases::RunLeases;
use crate::membership::slot::Slot;
use crate::membership::standing::Standing;
use crate::places::own::Promotion;
use crate::replication::queue::ThreadQueues;
use crate::replication::slot::BackupLink;
use gannet_transport::{Net, Waker};
use gannet_wire::coordinator::CoordinatorError;
use gannet_wire::limits::WARNINGS_TIME;
use gannet_wire::messages::control::{GenerationV2, PlaceV3};
use gannet_wire::place_keys::PlaceKeys;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A server's membership. [`Server`](crate::server::Server) runs it on a thread of its own. With a
/// [`LocalServer`](crate::local::LocalServer) the program runs it.
pub struct Membership<N: Net> {
    net: N,
    config: MembershipConfig,
    /// Of this server: a random number.
    incarnation: u64,
    standing: Arc<Standing>,
    /// Wakes each thread.
    threads: Vec<N::Waker>,
    /// The backup slots, as they are at first.
    slots: Vec<Slot>,
    /// How the rows of a place are loaded from a checkpoint. `None`: there are no checkpoints.
    loading: Option<Loading>,
    mode: ReplicationMode,
    /// The places whose owners replicate as this server does.
    agreed: RefCell<BTreeSet<u32>>,
    /// The backups of the owner before that may stay, of each place that was taken and is held.
    kept: RefCell<BTreeMap<u32, Kept>>,
    identity: JobIdentity,
    /// The leases of the keys of the job.
    runs: RunLeases,
    /// Since when the coordinator answers.
    answers: Cell<CoordinatorAnswers>,
    /// The last warning about each place, and when it was logged.
    warned: RefCell<BTreeMap<u32, (String, Duration)>>,
}

/// What a membership shares with the rest of its server.
pub(crate) struct MembershipParts<'a, N: Net> {
    pub(crate) incarnation: u64,
    pub(crate) standing: Option<Arc<Standing>>,
    /// Those that wake the threads.
    pub(crate) threads: Vec<N::Waker>,
    pub(crate) links: &'a [BackupLink],
    /// The queues of each thread, one for each backup slot.
    pub(crate) queues: &'a [ThreadQueues],
    pub(crate) loading: Option<Loading>,
}

impl<N: Net> Membership<N> {
    /// The membership of a server, if it has one.
    pub(crate) fn new(
        net: &N,
        config: &ServerConfig,
        parts: MembershipParts<'_, N>,
    ) -> Option<Membership<N>> {
        let MembershipParts { incarnation, standing, threads, links, queues, loading } = parts;
        let slot = |(at, link): (usize, &BackupLink)| Slot {
            first: config.backups.get(at).cloned(),
            shared: link.slot.clone(),
            queues: queues.iter().map(|of_thread| of_thread[at].clone()).collect(),
            away: Duration::ZERO,
            is_leaving: false,
        };
        let slots = links.iter().enumerate().map(slot).collect();
        let (mode, agreed, warned) = (config.replication, RefCell::default(), RefCell::default());
        let kept = RefCell::default();
        let (runs, answers) = (RunLeases::default(), Cell::default());
        let (net, config) = (net.clone(), config.membership.clone()?);
        let (standing, identity) = (standing?, JobIdentity::new(&config.servers));
        Some(Membership {
            net,
            config,
            incarnation,
            standing,
            threads,
            slots,
            loading,
            mode,
            agreed,
            kept,
            identity,
            runs,
            answers,
            warned,
        })
    }

    fn end(&self, place: u32, why: &str) {
        tracing::error!(place, why, "this server may not own its shards: it ends");
        self.standing.depose(&format!("place {place}: {why}"));
        self.wake();
    }

    /// Warns about a place. What was said a moment ago is not said again, although it is tried again.
    fn warn(&self, place: u32, text: String) {
        let (mut warned, now) = (self.warned.borrow_mut(), self.net.now());
        let is_new = warned.get(&place).is_none_or(|(last, at)| *last != text || now - *at >= WARNINGS_TIME);
        if is_new {
            tracing::warn!(place, "{text}");
            warned.insert(place, (text, now));
        }
    }

    fn wake(&self) {
        self.threads.iter().for_each(Waker::wake);
    }

    /// One step. Returns what the server is then, also when the coordinator gave no answer.
    fn step(
        &self,
        keys: &PlaceKeys,
        role: Role,
        now: GenerationV2,
        owners: &Owners,
    ) -> (Role, StepOutcome<()>) {
        match role {
            Role::Backup { mut vacancy } => match self.watch(keys, &mut vacancy, now, owners) {
                Ok(Ok(taken)) => (taken.unwrap_or(Role::Backup { vacancy }), Ok(Ok(()))),
                Ok(Err(deposed)) => (Role::BACKUP, Ok(Err(deposed))),
                Err(error) => {
                    let vacancy = vacancy.map(|vacancy| Vacancy { at: None, ..vacancy });
                    (Role::Backup { vacancy }, Err(error))
                }
            },
            Role::Owner { place, .. } if place.generation < now.number => {
                let checkpoint = match now.checkpoint {
                    Some(number) => format!("checkpoint {number}"),
                    None => "the beginning, because it has no checkpoint".into(),
                };
                self.report_undone(now);
                let why = format!(
                    "the rows of another place are gone, and the job goes back to {checkpoint}: start it again"
                );
                (Role::BACKUP, Ok(Err(Deposed(why))))
            }
            Role::Owner { mut lease, mut place, mut version, .. } => {
                let kept = self.keep(keys, &mut lease, &mut place, &mut version);
                let may_write = matches!(kept, Ok(Ok(true)));
                (Role::Owner { lease, place, version, may_write }, kept.map(|kept| kept.map(|_| ())))
            }
        }
    }

    /// Looks at a place that this server does not own, and takes it if it may. `owners`: those that have a lease.
    fn watch(
        &self,
        keys: &PlaceKeys,
        vacancy: &mut Option<Vacancy>,
        generation: GenerationV2,
        owners: &Owners,
    ) -> StepOutcome<Option<Role>> {
        let coordinator = &*self.config.coordinator;
        match owners.get(&keys.owner) {
            // An earlier step of this server has made the key, and then had no answer.
            Some(owner) if *owner == self.incarnation.to_le_bytes() => return Ok(Ok(None)),
            Some(holder) => {
                *vacancy = None;
                if self.has_folder_rows(keys) {
                    let known = keys.get(coordinator)?;
                    if let Err(deposed) = self.look_into_folder(keys, known.as_ref(), generation) {
                        return Ok(Err(deposed));
                    }
                }
                return self.must_agree(keys, holder).map(|agrees| agrees.map(|()| None));
            }
            None => {}
        }
        self.agreed.borrow_mut().remove(&keys.number);
        let (now, known) = (self.net.now(), keys.get(coordinator)?);
        let has_rows = match self.look_into_folder(keys, known.as_ref(), generation) {
            Ok(Ok(has_rows)) => has_rows,
            // It tries again.
            Ok(Err(())) => return Ok(Ok(None)),
            Err(deposed) => return Ok(Err(deposed)),
        };
        let version = known.as_ref().map_or(0, |(_, version)| *version);
        let begun = vacancy.filter(|vacancy| vacancy.version == version);
        let begun = begun.unwrap_or(Vacancy { seen: Duration::ZERO, at: None, version });
        let begun = *vacancy.insert(begun.goes_on(now, self.config.lease));
        let taken = match known {
            Some((place, _)) if self.has_all(&place) && place.generation == generation.number => {
                // The next round asks again.
                if self.owner_had_time(begun) { self.take_over(keys)? } else { None }
            }
            Some((seen, version)) if has_rows => self.take_again(keys, seen, version, generation)?,
            Some((place, version)) if self.may_begin(keys, &place, begun, generation) => {
                self.found(keys, Some((place, version)), generation)?
            }
            None if self.is_home(keys) => self.found(keys, None, generation)?,
            _ => None,
        };
        Ok(Ok(taken))
    }

    /// Whether this server is a backup that has all that the owner of a place has acknowledged.
    fn has_all(&self, place: &PlaceV3) -> bool {
        place.backups.iter().any(|(_, incarnation)| *incarnation == self.incarnation)
    }

    /// Makes the key that says who has the lease, if nobody has it.
    fn acquire(&self, keys: &PlaceKeys) -> Result<LeaseHolder, CoordinatorError> {
        let (coordinator, from) = (&self.config.coordinator, self.net.now());
        let lease = coordinator.grant(self.config.lease)?;
        let own = self.incarnation.to_le_bytes();
        if coordinator.compare_and_set(&keys.owner, 0, &own, Some(lease))?.is_some() {
            return Ok(LeaseHolder::Here(lease, self.until(from)));
        }
        let holder = coordinator.get(&keys.owner)?;
        let is_own = holder.is_none_or(|holder| holder.value == own);
        Ok(if is_own { LeaseHolder::Lost } else { LeaseHolder::Other })
    }

    /// When a lease ends for its owner that was granted or kept alive after `from`.
    fn until(&self, from: Duration) -> Duration {
        from + serving_time(self.config.lease)
    }

    fn set(&self, keys: &PlaceKeys, version: u64, place: &PlaceV3) -> Result<Option<u64>, CoordinatorError> {
        self.config.coordinator.compare_and_set_all(&[self.write_of(keys, version, place)])
    }

    /// Why this server has a place no more, by what the coordinator knows of it.
    fn deposed(&self, keys: &PlaceKeys) -> Result<Deposed, CoordinatorError> {
        Ok(Deposed(match keys.get(&*self.config.coordinator)? {
            Some((PlaceV3 { owner, epoch, .. }, _)) => {
                format!("{owner} has taken the place, in epoch {epoch}: start this server again, it then begins as a backup")
            }
            None => "the coordinator does not know the place any more: it was started again without what it knew (give \
                     it --data-dir)"
                .into(),
        }))
    }

    /// What the coordinator knows of the place, if this server has it.
    fn own_place(&self, keys: &PlaceKeys) -> Result<Option<(PlaceV3, u64)>, CoordinatorError> {
        let of = |(place, _): &(PlaceV3, u64)| place.incarnation == self.incarnation;
        Ok(keys.get(&*self.config.coordinator)?.filter(of))
    }

    /// Takes a place that has no owner. This backup has all that was acknowledged.
    fn take_over(&self, keys: &PlaceKeys) -> Result<Option<Role>, CoordinatorError> {
        let LeaseHolder::Here(lease, until) = self.acquire(keys)? else { return Ok(None) };
        // The owner before may have changed its backups until the key was made.
        let place = keys.get(&*self.config.coordinator)?;
        let Some((before, version)) = place.filter(|(place, _)| self.has_all(place)) else { return Ok(None) };
        let (owner, epoch, incarnation) = (self.config.addr.clone(), before.epoch + 1, self.incarnation);
        // The other backups may take the place until this one is ready, and so may the owner before, if it comes back
        // with the rows in its folder.
        let mut backups = before.backups.clone();
        if before.ready {
            backups.push((before.owner.clone(), before.incarnation));
        }
        let place = PlaceV3 { epoch, owner, incarnation, ready: false, backups, ..before.clone() };
        let Some(version) = self.set(keys, version, &place)? else { return Ok(None) };
        let (server, servers) = (keys.number, self.config.place.1);
        let is_held = self.keep_backups(keys, &before.backups);
        let has_all_since = Some(place.since);
        self.standing.promote(Promotion { server, servers, epoch, has_all_since, is_held }, None);
        self.standing.own((keys.number, place.epoch), until);
        self.wake();
        Ok(Some(Role::Owner { lease, place, version, may_write: true }))
    }

    /// Tells the others that this server serves, once all its threads have taken the place.
    fn become_ready(&self, keys: &PlaceKeys, place: &mut PlaceV3, version: &mut u64) -> StepOutcome<()> {
        match self.standing.outcome(keys.number, self.threads.len()) {
            None => return Ok(Ok(())),
            Some(Err(why)) => return Ok(Err(Deposed(why))),
            Some(Ok(_)) => {}
        }
        let backups = self.kept_backups(keys)?;
        let epoch = self.standing.epoch(keys.number);
        let since = if backups.is_empty() { epoch } else { place.since };
        let ready = PlaceV3 { ready: true, backups, since, ..place.clone() };
        match self.set(keys, *version, &ready)? {
            Some(at) => (*place, *version) = (ready, at),
            // The answer to an earlier write was lost, or another backup has taken the place.
            None => match self.own_place(keys)? {
                Some(now) => (*place, *version) = now,
                None => {
                    let why = "another backup has taken the place: start this server again".to_owned();
                    return Ok(Err(Deposed(why)));
                }
            },
        }
        if place.ready {
            self.standing.note_ready(keys.number);
            if place.since == epoch {
                self.end_hold(keys);
            }
            self.wake();
            let (PlaceV3 { epoch, .. }, place, rows) = (&*place, keys.number, self.whereabouts(keys));
            match *epoch {
                1 => tracing::info!(place, epoch, rows, "this server owns the shards"),
                _ => tracing::warn!(place, epoch, rows, "this server owns the shards now"),
            }
        }
        Ok(Ok(()))
    }
}
