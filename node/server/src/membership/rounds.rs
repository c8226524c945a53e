//! The rounds of a membership: it looks at all places and at its backup slots, and pauses until something has changed.

use crate::membership::Membership;
use crate::membership::registry::{Registration, members_of};
use crate::membership::role::{Deposed, Owners, Role, StepOutcome, goes_on};
use crate::membership::slot::Slot;
use gannet_transport::{Net, Poll};
use gannet_wire::coordinator::{CoordinatorError, list_all};
use gannet_wire::messages::control::GenerationV2;
use gannet_wire::messages::members::ServerV1;
use gannet_wire::place_keys::PlaceKeys;
use std::time::Duration;

/// What a membership knows between its rounds.
struct Known {
    places: Vec<(PlaceKeys, Role)>,
    slots: Vec<Slot>,
    registration: Registration,
    /// The version of the coordinator at which the owners of all places were read. 0: they could not be read.
    owners: u64,
    generation: GenerationV2,
    /// When the registry was read last.
    members_at: Duration,
}

impl<N: Net> Membership<N> {
    /// Runs until `is_over`, or until another server owns a place of this one.
    pub fn run(&self, is_over: impl Fn() -> bool) {
        let (home, servers) = self.config.place;
        let place = |place| (PlaceKeys::new(&self.config.job, place), Role::BACKUP);
        let mut known = Known {
            places: (0..servers).map(place).collect(),
            slots: self.slots.clone(),
            registration: Registration::new(&self.config.job, &self.config.addr),
            owners: 0,
            generation: GenerationV2 {
                number: 0,
                checkpoint: None,
                undone: 0,
                lease: 0,
                birth: 0,
                servers: 0,
            },
            members_at: self.net.now(),
        };
        let Ok(mut poll) = self.net.poll() else { return self.end(home, "there is no poll to wait with") };
        while !is_over() {
            if let Err((place, Deposed(why))) = self.round(&mut known) {
                return self.end(place, &why);
            }
            self.pause(&mut poll, known.owners);
        }
    }

    /// A round: all places, all backup slots, and the registry. The places that the server has come first, and again if
    /// the others take long: on a busy machine an answer of the coordinator can take as long as a part of the lease.
    ///
    /// # Errors
    /// The server does not own this place any more.
    fn round(&self, known: &mut Known) -> Result<(), (u32, Deposed)> {
        let (mut kept_at, home) = (self.net.now(), self.config.place.0);
        self.steps(&mut known.places, known.generation, &Owners::new(), Role::is_owner)?;
        if keeps_all(&known.places) {
            self.become_ready_with(&mut known.places)?;
            for slot in &known.slots {
                goes_on(self.settle(slot, &mut known.places), home)?;
            }
            self.settle_all_kept(&known.slots, &mut known.places)?;
        }
        self.wake();
        known.owners = 0;
        let owners = match self.now_known() {
            Ok(Ok(Some((generation, (owners, version))))) => {
                (known.generation, known.owners) = (generation, version);
                owners
            }
            // The name is that of another job, as far as is known.
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(deposed)) => return Err((home, deposed)),
            Err(error) => {
                tracing::warn!(%error, "this server asks again");
                return Ok(());
            }
        };
        for at in 0..known.places.len() {
            if !known.places[at].1.is_owner() && keeps_all(&known.places) {
                self.steps(&mut known.places[at..=at], known.generation, &owners, |_| true)?;
            }
            if self.net.now().saturating_sub(kept_at) >= self.config.lease / 8 {
                kept_at = self.net.now();
                self.steps(&mut known.places, known.generation, &owners, Role::is_owner)?;
            }
        }
        goes_on(self.register(known).map(Ok), home)
    }

    /// The job as the coordinator knows it, and the owners of places. `None`: this server is no member of the job.
    fn now_known(&self) -> StepOutcome<Option<(GenerationV2, (Owners, u64))>> {
        let (known, version) = self.generation()?;
        self.note_answer();
        let generation = match self.admit(known, version)? {
            Ok(Some(generation)) => generation,
            Ok(None) => return Ok(Ok(None)),
            Err(deposed) => return Ok(Err(deposed)),
        };
        self.runs.keep(&*self.config.coordinator, self.net.now(), self.config.kept, generation.lease)?;
        Ok(Ok(Some((generation, self.owners()?))))
    }

    /// A step for each of these places that has such a role.
    fn steps(
        &self,
        places: &mut [(PlaceKeys, Role)],
        generation: GenerationV2,
        owners: &Owners,
        has_role: impl Fn(&Role) -> bool,
    ) -> Result<(), (u32, Deposed)> {
        for (keys, role) in places.iter_mut().filter(|(_, role)| has_role(role)) {
            let taken = std::mem::replace(role, Role::BACKUP);
            let (next, outcome) = self.step(keys, taken, generation, owners);
            *role = next;
            goes_on(outcome, keys.number)?;
        }
        Ok(())
    }

    /// Tells the others that this server serves the places that all its threads have taken.
    fn become_ready_with(&self, places: &mut [(PlaceKeys, Role)]) -> Result<(), (u32, Deposed)> {
        for (keys, role) in places {
            if let Role::Owner { place, version, .. } = role
                && !place.ready
            {
                goes_on(self.become_ready(keys, place, version), keys.number)?;
            }
        }
        Ok(())
    }

    /// Keeps the registration of this server, and gives its backup slots to others that have registered.
    fn register(&self, known: &mut Known) -> Result<(), CoordinatorError> {
        let coordinator = &*self.config.coordinator;
        let owned =
            |(keys, role): &(PlaceKeys, Role)| matches!(role, Role::Owner { .. }).then_some(keys.number);
        let server = ServerV1 {
            incarnation: self.incarnation,
            places: self.config.place.1,
            owned: known.places.iter().filter_map(owned).collect(),
            slots: known.slots.iter().map(Slot::told).collect(),
        };
        let owns = !server.owned.is_empty();
        known.registration.keep(coordinator, self.net.now(), self.config.lease, server)?;
        let now = self.net.now();
        let elapsed = now.saturating_sub(known.members_at);
        if elapsed >= self.config.lease / 8 {
            let members = members_of(coordinator, &self.config.job)?;
            known.members_at = now;
            // A time in which the coordinator gave no answer does not count: nobody could register in it.
            self.choose(&mut known.slots, &members, elapsed.min(self.config.lease / 4), owns);
        }
        Ok(())
    }

    /// All owners that have a lease, and the version of that.
    fn owners(&self) -> Result<(Owners, u64), CoordinatorError> {
        let (keys, version) = list_all(&*self.config.coordinator, &format!("{}/owner/", self.config.job))?;
        self.note_answer();
        Ok((keys.into_iter().map(|(key, entry)| (key, entry.value)).collect(), version))
    }

    /// Waits until the owner of a place has changed, or the lease of one has ended, and at most until the next round is
    /// due. `since`: the version at which the owners were known.
    fn pause(&self, poll: &mut N::Poll, since: u64) {
        let prefix = format!("{}/owner/", self.config.job);
        // Workers wait while a place is held.
        let until = self.net.now() + self.config.lease / if self.holds() { 128 } else { 8 };
        let mut may_ask = since > 0;
        loop {
            let left = until.saturating_sub(self.net.now());
            let news = match may_ask {
                true => self.config.coordinator.watch(&prefix, since, left),
                false => Ok(None),
            };
            may_ask &= news.is_ok();
            if may_ask {
                self.note_answer();
            }
            let left = until.saturating_sub(self.net.now());
            if matches!(news, Ok(Some(_))) || left.is_zero() {
                return;
            }
            // A coordinator may answer at once. The wait fails like one that was too short.
            let time = if may_ask { left.min(self.config.lease / 32) } else { left };
            let _ = poll.wait(time, &mut Vec::new());
        }
    }
}

/// Whether this server has kept the leases of all its places. Otherwise another server may have one of them, and this
/// one ends when it learns that. Its backups must then be able to take its other places. So it takes no backup out of
/// a set, and takes no place.
fn keeps_all(places: &[(PlaceKeys, Role)]) -> bool {
    places.iter().all(|(_, role)| !matches!(role, Role::Owner { may_write: false, .. }))
}
