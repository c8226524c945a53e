//! The membership of a server: it asks the coordinator who owns the shards of each *place*, and keeps or takes places.
//!
//! A place is the part of one server in all tables: server `i` of `n`. A server begins with the place that is its own,
//! if nobody has it, or as a backup with none. It takes the place of each server that dies, if it has all of its rows.
//! A place has two keys in the coordinator:
//! - `JOB/owner/i` exists as long as the lease of the owner. Only who made it may write the other key.
//! - `JOB/place/i` has the owner's address, the epoch, and the backups that have everything that was acknowledged
//!   ([`PlaceV2`]). It changes by compare-and-set.
//!
//! An owner says nothing to anybody when its lease may have ended. It keeps its own lease shorter than the coordinator
//! does. Whether a push is lost does not depend on clocks: an owner acknowledges only what all backups of the key have,
//! and only these may take its place.

mod agreement;
mod founding;
mod lost_backups;
mod standing;

pub(super) use founding::Loading;
pub use founding::OnServerLoss;
pub(super) use standing::{OwnPlace, OwnPlaces, Promotion, Standing};

use super::ServerConfig;
use super::replication::{CommandQueue, ReplicationMode, ThreadQueues};
use crate::coordinator::{Coordinator, CoordinatorError};
use crate::frames::control::{self, GenerationV1, PlaceV2};
use crate::limits::serving_time;
use agreement::mode_of;
use founding::Vacancy;
use gannet_transport::{Net, Poll, Waker};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Which place a server begins with, and where the job's places are known.
#[derive(Clone)]
pub struct MembershipConfig {
    /// Says who owns what.
    pub coordinator: Arc<dyn Coordinator>,
    /// The name of the job: the first part of its keys.
    pub job: String,
    /// Which of the job's servers, and of how many.
    pub place: (u32, u32),
    /// The address at which workers reach this server.
    pub addr: String,
    /// This server has no place of its own: it only takes the place of a server that dies.
    pub is_backup: bool,
    /// How long the coordinator waits for a sign of the owner before a backup takes its place.
    pub lease: Duration,
    /// What becomes of a place whose rows are gone. All servers of the job have the same.
    pub on_server_loss: OnServerLoss,
}

/// The keys of a place.
#[derive(Debug, Clone)]
pub(crate) struct PlaceKeys {
    number: u32,
    owner: String,
    place: String,
}

impl PlaceKeys {
    pub(crate) fn new(job: &str, place: u32) -> PlaceKeys {
        PlaceKeys {
            number: place,
            owner: format!("{job}/owner/{place}"),
            place: format!("{job}/place/{place}"),
        }
    }

    /// What the coordinator knows of the place, and the version of that.
    pub(crate) fn get(
        &self,
        coordinator: &dyn Coordinator,
    ) -> Result<Option<(PlaceV2, u64)>, CoordinatorError> {
        let Some(entry) = coordinator.get(&self.place)? else { return Ok(None) };
        match control::open_as::<PlaceV2>(2, &entry.value) {
            Ok(place) => Ok(Some((place, entry.version))),
            Err(error) => Err(CoordinatorError(format!("key {:?} cannot be read: {error}", self.place))),
        }
    }
}

/// What a coordinator knows of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceStatus {
    /// The address of the server that has it, or had it last.
    pub owner: String,
    /// Raised with each owner.
    pub epoch: u64,
    /// How often the job had gone back to a checkpoint when its rows were begun.
    pub generation: u64,
    /// The owner has all rows. A backup that takes the place has not, at first.
    pub ready: bool,
    /// The owner has a lease: it was heard of within the time of that.
    pub has_lease: bool,
    /// The addresses of the backups that have everything that was acknowledged.
    pub backups: Vec<String>,
    /// For what the answers of the owner wait.
    pub replication: ReplicationMode,
}

/// What a coordinator knows of place `place` of a job. `None`: no server has had the place.
///
/// # Errors
/// The coordinator gave no answer.
pub fn place(
    coordinator: &dyn Coordinator,
    job: &str,
    place: u32,
) -> Result<Option<PlaceStatus>, CoordinatorError> {
    let keys = PlaceKeys::new(job, place);
    let has_lease = coordinator.get(&keys.owner)?.is_some();
    let status = |(place, _): (PlaceV2, u64)| {
        let PlaceV2 { owner, epoch, generation, ready, backups, is_async, .. } = place;
        let backups = backups.into_iter().map(|(addr, _)| addr).collect();
        let replication = mode_of(is_async);
        PlaceStatus { owner, epoch, generation, ready, has_lease, backups, replication }
    };
    Ok(keys.get(coordinator)?.map(status))
}

/// What a server is to a place.
enum Role {
    /// It takes the place if nobody has it and this server has all of its rows, or nobody has them.
    Backup {
        vacancy: Option<Vacancy>,
    },
    Owner {
        lease: u64,
        place: PlaceV2,
        version: u64,
    },
}

impl Role {
    const BACKUP: Role = Role::Backup { vacancy: None };

    fn is_owner(&self) -> bool {
        matches!(self, Role::Owner { .. })
    }
}

/// Who has the lease of a place.
enum LeaseHolder {
    /// This server. The lease, and when it ends.
    Here(u64, Duration),
    /// This server, by an earlier call whose answer was lost. The lease will end.
    Lost,
    /// Another server.
    Other,
}

/// Why a membership is over.
struct Deposed(String);

/// The outcome of a step: the coordinator may give no answer, and another server may own the place.
type StepOutcome<T> = Result<Result<T, Deposed>, CoordinatorError>;

/// A server's membership. [`Server`](crate::Server) runs it on a thread of its own. With a
/// [`LocalServer`](crate::LocalServer) the program runs it.
pub struct Membership<N: Net> {
    net: N,
    config: MembershipConfig,
    /// Of this server: a random number.
    incarnation: u64,
    standing: Arc<Standing>,
    /// Wakes each thread.
    threads: Vec<N::Waker>,
    /// The backups, each with its address and the queue of each thread.
    backups: Vec<(String, Vec<Arc<CommandQueue>>)>,
    /// How the rows of a place are loaded from a checkpoint. `None`: there are no checkpoints.
    loading: Option<Loading>,
    /// Of each backup that was lost: the places that it has left.
    left: RefCell<Vec<BTreeSet<u32>>>,
    mode: ReplicationMode,
    /// The places whose owners replicate as this server does.
    agreed: RefCell<BTreeSet<u32>>,
}

impl<N: Net> Membership<N> {
    /// The membership of a server, if it has one. `queues` are the queues of each thread, one for each backup.
    pub(super) fn new(
        net: &N,
        config: &ServerConfig,
        (incarnation, standing): (u64, Option<Arc<Standing>>),
        (threads, queues): (Vec<N::Waker>, &[ThreadQueues]),
        loading: Option<Loading>,
    ) -> Option<Membership<N>> {
        let of = |(at, addr): (usize, &String)| {
            (addr.clone(), queues.iter().map(|of_thread| of_thread[at].clone()).collect())
        };
        let backups: Vec<_> = config.backups.iter().enumerate().map(of).collect();
        let left = RefCell::new(vec![BTreeSet::new(); backups.len()]);
        let (mode, agreed) = (config.replication, RefCell::default());
        let (net, config) = (net.clone(), config.membership.clone()?);
        let standing = standing?;
        Some(Membership { net, config, incarnation, standing, threads, backups, loading, left, mode, agreed })
    }

    /// Runs until `is_over`, or until another server owns a place of this one.
    pub fn run(&self, is_over: impl Fn() -> bool) {
        let (home, servers) = self.config.place;
        let place = |place| (PlaceKeys::new(&self.config.job, place), Role::BACKUP);
        let mut places: Vec<(PlaceKeys, Role)> = (0..servers).map(place).collect();
        let Ok(mut poll) = self.net.poll() else { return self.end(home, "there is no poll to wait with") };
        let (mut events, mut generation) = (Vec::new(), GenerationV1 { number: 0, checkpoint: None });
        while !is_over() {
            if let Err((place, Deposed(why))) = self.round(&mut places, &mut generation) {
                return self.end(place, &why);
            }
            self.leave_lost(&places);
            // It fails like a pause that was too short.
            let _ = poll.wait(self.config.lease / 8, &mut events);
        }
    }

    /// One step for each place. Those that the server has come first, and again if the others take long: on a busy
    /// machine an answer of the coordinator can take as long as a part of the lease.
    ///
    /// # Errors
    /// The server does not own this place any more.
    fn round(
        &self,
        places: &mut [(PlaceKeys, Role)],
        generation: &mut GenerationV1,
    ) -> Result<(), (u32, Deposed)> {
        let mut kept_at = self.net.now();
        self.steps(places, *generation, Role::is_owner)?;
        match self.generation() {
            Ok(known) => *generation = known,
            Err(error) => {
                tracing::warn!(%error, "this server asks again");
                return Ok(());
            }
        }
        for at in 0..places.len() {
            if !places[at].1.is_owner() {
                self.steps(&mut places[at..=at], *generation, |_| true)?;
            }
            if self.net.now().saturating_sub(kept_at) >= self.config.lease / 8 {
                kept_at = self.net.now();
                self.steps(places, *generation, Role::is_owner)?;
            }
        }
        Ok(())
    }

    /// A step for each of these places that has such a role.
    fn steps(
        &self,
        places: &mut [(PlaceKeys, Role)],
        generation: GenerationV1,
        has_role: impl Fn(&Role) -> bool,
    ) -> Result<(), (u32, Deposed)> {
        for (keys, role) in places.iter_mut().filter(|(_, role)| has_role(role)) {
            let (next, outcome) = self.step(keys, std::mem::replace(role, Role::BACKUP), generation);
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(deposed)) => return Err((keys.number, deposed)),
                Err(error) => tracing::warn!(%error, place = keys.number, "this server asks again"),
            }
            *role = next;
        }
        Ok(())
    }

    fn end(&self, place: u32, why: &str) {
        tracing::error!(place, why, "this server may not own its shards: it ends");
        self.standing.depose();
        self.wake();
    }

    fn wake(&self) {
        self.threads.iter().for_each(Waker::wake);
    }

    /// One step. Returns what the server is then, also when the coordinator gave no answer.
    fn step(&self, keys: &PlaceKeys, role: Role, now: GenerationV1) -> (Role, StepOutcome<()>) {
        match role {
            Role::Backup { mut vacancy } => match self.watch(keys, &mut vacancy, now) {
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
                let why =
                    format!("the rows of another place are gone, and the job goes back to {checkpoint}");
                (Role::BACKUP, Ok(Err(Deposed(why))))
            }
            Role::Owner { mut lease, mut place, mut version } => {
                let kept = self.keep(keys, &mut lease, &mut place, &mut version);
                (Role::Owner { lease, place, version }, kept)
            }
        }
    }

    /// Looks at a place that this server does not own, and takes it if it may.
    fn watch(
        &self,
        keys: &PlaceKeys,
        vacancy: &mut Option<Vacancy>,
        generation: GenerationV1,
    ) -> StepOutcome<Option<Role>> {
        let coordinator = &*self.config.coordinator;
        match coordinator.get(&keys.owner)? {
            // An earlier step of this server has made the key, and then had no answer.
            Some(owner) if owner.value == self.incarnation.to_le_bytes() => return Ok(Ok(None)),
            Some(holder) => {
                *vacancy = None;
                return self.must_agree(keys, &holder.value).map(|agrees| agrees.map(|()| None));
            }
            None => {}
        }
        self.agreed.borrow_mut().remove(&keys.number);
        let (now, known) = (self.net.now(), keys.get(coordinator)?);
        let version = known.as_ref().map_or(0, |(_, version)| *version);
        let begun = vacancy.filter(|vacancy| vacancy.version == version);
        let begun = begun.unwrap_or(Vacancy { seen: Duration::ZERO, at: None, version });
        let begun = *vacancy.insert(begun.goes_on(now, self.config.lease));
        let taken = match known {
            Some((place, _)) if self.has_all(&place) && place.generation == generation.number => {
                self.take_over(keys)?
            }
            Some((place, version)) if self.may_begin(keys, &place, begun, generation) => {
                self.found(keys, Some((place, version)), generation)?
            }
            None if self.is_home(keys) => self.found(keys, None, generation)?,
            _ => None,
        };
        Ok(Ok(taken))
    }

    /// Whether this server is a backup that has all that the owner of a place has acknowledged.
    fn has_all(&self, place: &PlaceV2) -> bool {
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

    fn set(
        &self,
        keys: &PlaceKeys,
        version: u64,
        place: &PlaceV2,
        lease: Option<u64>,
    ) -> Result<Option<u64>, CoordinatorError> {
        self.config.coordinator.compare_and_set(&keys.place, version, &control::seal_as(2, place), lease)
    }

    /// An owner's step: keeps its lease, and the set of its backups.
    fn keep(
        &self,
        keys: &PlaceKeys,
        lease: &mut u64,
        place: &mut PlaceV2,
        version: &mut u64,
    ) -> StepOutcome<()> {
        let from = self.net.now();
        if self.config.coordinator.keep_alive(*lease)? {
            self.standing.own((keys.number, place.epoch), self.until(from));
        } else {
            // No backup has taken the place if this server makes the owner's key again: a backup makes it first.
            let until = match self.acquire(keys)? {
                LeaseHolder::Here(again, until) => {
                    *lease = again;
                    until
                }
                LeaseHolder::Lost => return Ok(Ok(())),
                // A backup takes the place, or has died before it had it. This server waits in silence.
                LeaseHolder::Other => match self.own_place(keys, place.epoch)? {
                    Some(_) => return Ok(Ok(())),
                    None => return Ok(Err(self.deposed(keys)?)),
                },
            };
            match self.own_place(keys, place.epoch)? {
                Some(now) => (*place, *version) = now,
                None => return Ok(Err(self.deposed(keys)?)),
            }
            self.standing.own((keys.number, place.epoch), until);
        }
        self.wake();
        if !place.ready {
            return self.become_ready(keys, place, version);
        }
        for (at, (addr, queues)) in self.backups.iter().enumerate() {
            let mut wanted = place.backups.clone();
            let is_lost = queues.iter().any(|queue| queue.is_lost());
            if is_lost {
                wanted.retain(|(backup, _)| backup != addr);
            } else if !wanted.iter().any(|(backup, _)| backup == addr)
                && let Some(incarnation) = joined(queues)
            {
                wanted.push((addr.clone(), incarnation));
            }
            // A backup that was lost leaves with a write, also if it is not in the set. An earlier write whose answer
            // was lost could still put it there. No such write succeeds behind this one.
            if wanted == place.backups && !is_lost {
                continue;
            }
            let next = PlaceV2 { backups: wanted, ..place.clone() };
            match self.set(keys, *version, &next, None)? {
                Some(at) => (*place, *version) = (next, at),
                // An earlier write had no answer, or another server has the place.
                None => match self.own_place(keys, place.epoch)? {
                    Some(now) => {
                        (*place, *version) = now;
                        continue;
                    }
                    None => return Ok(Err(self.deposed(keys)?)),
                },
            }
            if is_lost && !place.backups.iter().any(|(backup, _)| backup == addr) {
                self.left.borrow_mut()[at].insert(keys.number);
            }
        }
        self.wake();
        Ok(Ok(()))
    }

    /// Why this server has a place no more, by what the coordinator knows of it.
    fn deposed(&self, keys: &PlaceKeys) -> Result<Deposed, CoordinatorError> {
        Ok(Deposed(match keys.get(&*self.config.coordinator)? {
            Some((PlaceV2 { owner, epoch, .. }, _)) => {
                format!("{owner} has taken the place, in epoch {epoch}")
            }
            None => "the coordinator does not know the place any more: it was started again without what it knew (give \
                     it --data-dir)"
                .into(),
        }))
    }

    /// What the coordinator knows of the place, if this server has it in this epoch.
    fn own_place(&self, keys: &PlaceKeys, epoch: u64) -> Result<Option<(PlaceV2, u64)>, CoordinatorError> {
        let of = |(place, _): &(PlaceV2, u64)| place.incarnation == self.incarnation && place.epoch == epoch;
        Ok(keys.get(&*self.config.coordinator)?.filter(of))
    }

    /// Takes a place that has no owner. This backup has all that was acknowledged.
    fn take_over(&self, keys: &PlaceKeys) -> Result<Option<Role>, CoordinatorError> {
        let LeaseHolder::Here(lease, until) = self.acquire(keys)? else { return Ok(None) };
        // The owner before may have changed its backups until the key was made.
        let place = keys.get(&*self.config.coordinator)?;
        let Some((before, version)) = place.filter(|(place, _)| self.has_all(place)) else { return Ok(None) };
        let (owner, epoch, incarnation) = (self.config.addr.clone(), before.epoch + 1, self.incarnation);
        // The other backups may take the place until this one is ready.
        let place = PlaceV2 { epoch, owner, incarnation, ready: false, ..before };
        let Some(version) = self.set(keys, version, &place, None)? else { return Ok(None) };
        let (server, servers) = (keys.number, self.config.place.1);
        self.standing.promote(Promotion { server, servers, epoch, has_all_acknowledged: true }, None);
        self.standing.own((keys.number, place.epoch), until);
        self.wake();
        Ok(Some(Role::Owner { lease, place, version }))
    }

    /// Tells the others that this server serves, once all its threads have taken the place.
    fn become_ready(&self, keys: &PlaceKeys, place: &mut PlaceV2, version: &mut u64) -> StepOutcome<()> {
        match self.standing.outcome(keys.number, self.threads.len()) {
            None => return Ok(Ok(())),
            Some(Err(why)) => return Ok(Err(Deposed(why))),
            Some(Ok(_)) => {}
        }
        let ready = PlaceV2 { ready: true, backups: Vec::new(), ..place.clone() };
        match self.set(keys, *version, &ready, None)? {
            Some(at) => (*place, *version) = (ready, at),
            // The answer to an earlier write was lost, or another backup has taken the place.
            None => match self.own_place(keys, place.epoch)? {
                Some(now) => (*place, *version) = now,
                None => return Ok(Err(Deposed("another backup has taken the place".into()))),
            },
        }
        if place.ready {
            self.standing.note_ready(keys.number);
            self.wake();
            let (PlaceV2 { epoch, .. }, number) = (&*place, keys.number);
            tracing::warn!(place = number, epoch, "this backup owns the shards now");
        }
        Ok(Ok(()))
    }
}

/// From now on workers wait for a backup, if it has all rows of all threads. Returns its incarnation once it has
/// everything that a worker knows of.
fn joined(queues: &[Arc<CommandQueue>]) -> Option<u64> {
    if queues.iter().all(|queue| queue.is_ready()) {
        queues.iter().for_each(|queue| queue.join());
    }
    let mut incarnations = queues.iter().map(|queue| queue.joined());
    let first = incarnations.next()??;
    incarnations.all(|of| of == Some(first)).then_some(first)
}
