//! A server takes its place again with the rows in its data folder, because nobody has had the place since.
//!
//! 1. The folder has the server's claim to the place (PLACE).
//! 2. The server makes the owner's key, and writes the place with that claim. It is not ready: backups that have
//!    everything may still take the place.
//! 3. Its threads open the images, and the folder says that the rows are of the claim.
//! 4. The place is ready.
//!
//! A server that is killed in between leaves a claim that its folder knows, so the next one goes on.

use crate::config::ReplicationMode;
use crate::membership::Membership;
use crate::membership::role::{Deposed, LeaseHolder, Loading, Role};
use crate::places::folder::{Claim, FolderRows, PlaceFolder};
use crate::restore::place::PlaceRows;
use gannet_transport::Net;
use gannet_wire::coordinator::CoordinatorError;
use gannet_wire::messages::control::{GenerationV2, PlaceV3};
use gannet_wire::place_keys::PlaceKeys;

impl<N: Net> Membership<N> {
    /// The data folder, if it is that of this place.
    pub(crate) fn folder_of(&self, keys: &PlaceKeys) -> Option<&PlaceFolder> {
        let Loading { loader, .. } = self.loading.as_ref().filter(|_| self.is_home(keys))?;
        loader.folder()
    }

    /// Whether the folder of a place may have rows.
    pub(crate) fn has_folder_rows(&self, keys: &PlaceKeys) -> bool {
        self.folder_of(keys).is_some_and(PlaceFolder::has_rows)
    }

    /// Where the rows of a place of this server are.
    pub(crate) fn whereabouts(&self, keys: &PlaceKeys) -> &'static str {
        match self.has_folder_rows(keys) {
            true => "in the data folder",
            false => "in memory until this server ends",
        }
    }

    /// Whether the folder of a place has its newest rows. Moves former rows away. The inner error: that was not
    /// possible.
    ///
    /// # Errors
    /// Nobody knows what the rows are.
    pub(crate) fn look_into_folder(
        &self,
        keys: &PlaceKeys,
        known: Option<&(PlaceV3, u64)>,
        generation: GenerationV2,
    ) -> Result<Result<bool, ()>, Deposed> {
        let Some(folder) = self.folder_of(keys) else { return Ok(Ok(false)) };
        let place = keys.number;
        match folder.rows(known.map(|(place, _)| place), generation.number) {
            FolderRows::None => Ok(Ok(false)),
            FolderRows::Newest => Ok(Ok(true)),
            FolderRows::Unknown(why) => Err(Deposed(why)),
            FolderRows::Former(why) => {
                let former = folder.former();
                let former = former.display();
                if let Err(error) = folder.set_aside() {
                    self.warn(
                        place,
                        format!(
                            "former rows ({why}) cannot be moved away, and this server tries again: {error}"
                        ),
                    );
                    return Ok(Err(()));
                }
                tracing::warn!(
                    place,
                    %former,
                    why,
                    "the rows in the data folder are former ones: they were moved away, and this server begins as a backup"
                );
                Ok(Ok(false))
            }
        }
    }

    /// Takes a place that has no owner, with the rows in the data folder: nobody has had the place since. `seen`: what
    /// the coordinator knew of it.
    pub(crate) fn take_again(
        &self,
        keys: &PlaceKeys,
        seen: PlaceV3,
        version: u64,
        generation: GenerationV2,
    ) -> Result<Option<Role>, CoordinatorError> {
        let Some((folder, rows)) = self.folder_of(keys).and_then(|folder| Some((folder, folder.claim()?)))
        else {
            return Ok(None);
        };
        let claim = Claim { epoch: seen.epoch + 1, incarnation: self.incarnation };
        if let Err(error) = folder.claim_with_rows(claim, Some(&seen), generation.number) {
            self.warn(
                keys.number,
                format!("this server cannot take its place again, and tries again: {error}"),
            );
            return Ok(None);
        }
        let LeaseHolder::Here(lease, until) = self.acquire(keys)? else { return Ok(None) };
        // Another server may have had the place until the key was made.
        if keys.get(&*self.config.coordinator)?.as_ref() != Some(&(seen.clone(), version)) {
            return Ok(None);
        }
        let own = self.config.addr.clone();
        // The backups may take the place until this server is ready. So may this folder, if the server ends before.
        let mut backups = seen.backups.clone();
        backups.retain(|(addr, _)| *addr != own);
        backups.push((own.clone(), rows.incarnation));
        let place = PlaceV3 {
            epoch: claim.epoch,
            owner: own,
            incarnation: self.incarnation,
            ready: false,
            backups,
            is_async: self.mode == ReplicationMode::Async,
            ..seen
        };
        let Some(version) = self.set(keys, version, &place)? else { return Ok(None) };
        self.standing.own((keys.number, place.epoch), until);
        self.load(keys.number, claim, PlaceRows::Folder);
        self.wake();
        Ok(Some(Role::Owner { lease, place, version, may_write: true }))
    }
}
