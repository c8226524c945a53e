//! The counter from which a server hands out incarnations. In a data folder it is a file. The server syncs the file
//! before it answers with a number, so a number may be skipped but is never given twice.

use crate::limits::{INCARNATION_GAP, INCARNATION_NAMED_MAX};
use gannet_core::{OpenError, Store};
use gannet_wire::StateFileError;
use gannet_wire::state_file::StateFile;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const NAME: &str = "INCARNATIONS";

/// The counter's file: the highest number that was handed out.
const COUNTER_FILE: StateFile<u64> = StateFile::new(
    b"GNTINCA1",
    "the counter of incarnations",
    "remove it: the next number is then far above all that the tables here remember",
);

/// Why the counter cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The counter's file cannot be read or written.
    #[error(transparent)]
    File(#[from] StateFileError),
    /// The tables' images cannot be read.
    #[error(transparent)]
    Images(#[from] OpenError),
    /// There are no more numbers.
    #[error("no incarnation is left above {0}: begin with an empty data folder, and new workers")]
    Exhausted(u64),
}

/// The highest incarnation that a session of this server has named in its hello. All threads note it.
#[derive(Debug, Clone, Default)]
pub(crate) struct HighestIncarnation(Arc<AtomicU64>);

impl HighestIncarnation {
    pub(crate) fn note(&self, incarnation: u64) {
        if incarnation < INCARNATION_NAMED_MAX {
            self.0.fetch_max(incarnation, Relaxed);
        }
    }
}

/// The counter. Thread 0 has it.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    /// The highest number that was handed out, or that an image had when the server started.
    highest: u64,
    named: HighestIncarnation,
    /// The counter's file, if it has one.
    file: Option<PathBuf>,
    /// The server has no tables: it hands out no numbers.
    pub(crate) looks_only: bool,
    /// The counter has changed since somebody asked.
    pub(crate) changed: bool,
}

impl Incarnations {
    /// The counter of a store. In a scheduler without tables it only answers the highest number that it has heard of.
    pub(crate) fn open(
        store: &Store,
        named: HighestIncarnation,
        looks_only: bool,
    ) -> Result<Incarnations, CounterError> {
        let Some(folder) = store.folder().filter(|_| !looks_only) else {
            return Ok(Incarnations { named, looks_only, ..Incarnations::default() });
        };
        let file = folder.join(NAME);
        let remembered = store.highest_incarnation(INCARNATION_NAMED_MAX)?;
        let highest = match (COUNTER_FILE.load(&file)?, remembered) {
            (Some(stored), remembered) => stored.max(remembered.unwrap_or(0)),
            (None, None) => 0,
            // A number that was handed out and has not pushed yet is in no image. The gap is larger than the count of
            // those.
            (None, Some(remembered)) => {
                let next = remembered + INCARNATION_GAP + 1;
                let file = file.display();
                tracing::warn!(%file, next, "the file of the incarnation counter is missing: the counter starts again");
                remembered + INCARNATION_GAP
            }
        };
        Ok(Incarnations { highest, named, file: Some(file), looks_only, changed: false })
    }

    /// The highest number that this server knows of.
    pub(crate) fn highest(&self) -> u64 {
        self.highest.max(self.named.0.load(Relaxed))
    }

    /// The counter as a checkpoint has it (its state `incarnations`): the bytes of its file, with the highest number
    /// that this server knows of.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        COUNTER_FILE.encode(&self.highest())
    }

    /// Takes over the counter of a checkpoint. Numbers that were handed out after the checkpoint are below those that
    /// are handed out from now on, and so is `named`, the highest one that the checkpoint names anywhere else.
    ///
    /// # Errors
    /// The bytes are no counter, or the number cannot be saved: in words.
    pub(crate) fn restore(&mut self, bytes: Option<&[u8]>, named: u64) -> Result<(), String> {
        let stored = bytes.map_or(Ok(0), |bytes| COUNTER_FILE.decode(bytes))?;
        if self.looks_only {
            return Ok(());
        }
        self.go_on_behind(stored.max(named).saturating_add(INCARNATION_GAP))
    }

    /// Goes on behind the counter before, whose server has died.
    ///
    /// # Errors
    /// The bytes are no counter, or the number cannot be saved: in words.
    pub(crate) fn take_over(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.go_on_behind(COUNTER_FILE.decode(bytes)?)
    }

    fn go_on_behind(&mut self, number: u64) -> Result<(), String> {
        let highest = number.max(self.highest);
        if let Some(file) = &self.file {
            COUNTER_FILE.save(file, &highest).map_err(|error| error.to_string())?;
        }
        (self.highest, self.changed) = (highest, true);
        Ok(())
    }

    /// A number above `floor` and above all that this server knows of.
    pub(crate) fn allocate(&mut self, floor: u64) -> Result<u64, CounterError> {
        let before = self.highest().max(floor);
        let next = before.checked_add(1).ok_or(CounterError::Exhausted(before))?;
        if let Some(file) = &self.file {
            COUNTER_FILE.save(file, &next)?;
        }
        (self.highest, self.changed) = (next, true);
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_core::{PushName, Schema, Shards, Write};
    use gannet_optim::{Add, Rule};
    use std::fs;

    fn open(store: &Store) -> Result<Incarnations, CounterError> {
        Incarnations::open(store, HighestIncarnation::default(), false)
    }

    /// Pushes under an incarnation that a program has chosen by itself.
    fn push(store: &Store, incarnation: u64) {
        let schema = Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) };
        let mut shards = Shards::open(store, &schema, 0..1).unwrap();
        let name = PushName { pusher: 1, incarnation, seq: 1, row: 0 };
        shards.push(&name, Write::Gradient, &[5], None, &[1.0]).unwrap();
    }

    #[test]
    fn a_counter_file_is_these_bytes() {
        let message = [1, 0, 0, 0, 8, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        let sum = crc32c::crc32c(&message).to_le_bytes();
        let want = [&b"GNTINCA1"[..], &sum, &[0; 4], &message].concat();
        assert_eq!(COUNTER_FILE.encode(&0x0102_0304_0506_0708), want);
    }

    #[test]
    fn numbers_go_on_where_they_stood_and_above_what_images_remember() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let mut counter = open(&store).unwrap();
        assert_eq!((counter.allocate(0).unwrap(), counter.allocate(0).unwrap()), (1, 2));
        assert_eq!((counter.allocate(10).unwrap(), counter.allocate(3).unwrap()), (11, 12));
        let mut counter = open(&store).unwrap();
        assert_eq!(counter.allocate(0).unwrap(), 13);
        push(&store, 40);
        assert_eq!(open(&store).unwrap().allocate(0).unwrap(), 41);
        let named = HighestIncarnation::default();
        let mut counter = Incarnations::open(&store, named.clone(), false).unwrap();
        named.note(50);
        named.note(u64::MAX);
        assert_eq!(counter.allocate(0).unwrap(), 51);
        // In memory the counter begins anew with each process.
        let mut counter = open(&Store::memory()).unwrap();
        assert_eq!((counter.allocate(0).unwrap(), counter.allocate(0).unwrap()), (1, 2));
        counter.highest = u64::MAX;
        let none = counter.allocate(0).unwrap_err();
        assert!(
            none.to_string().starts_with("no incarnation is left above 18446744073709551615: "),
            "{none}"
        );
    }

    #[test]
    fn a_counter_that_is_gone_begins_far_above_what_was_handed_out() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let mut counter = open(&store).unwrap();
        push(&store, counter.allocate(0).unwrap());
        // These have not pushed yet.
        let handed_out = (0..100).map(|_| counter.allocate(0).unwrap()).max().unwrap();
        fs::remove_file(folder.path().join(NAME)).unwrap();
        let next = open(&store).unwrap().allocate(0).unwrap();
        assert!(next > handed_out && next == 1 + INCARNATION_GAP + 1, "{next} after {handed_out}");
        assert_eq!(open(&store).unwrap().allocate(0).unwrap(), next + 1);
    }

    #[test]
    fn a_torn_counter_and_one_of_another_version_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        open(&store).unwrap().allocate(77).unwrap();
        let file = folder.path().join(NAME);
        let whole = fs::read(&file).unwrap();
        for at in [0, 12, 16, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&file, &bytes).unwrap();
            let torn = open(&store).unwrap_err();
            assert!(matches!(torn, CounterError::File(StateFileError::Torn { .. })), "byte {at}: {torn}");
            assert!(
                torn.to_string().contains("INCARNATIONS") && torn.to_string().contains("remove it"),
                "{torn}"
            );
        }
        for end in [0, 7, whole.len() - 1] {
            fs::write(&file, &whole[..end]).unwrap();
            let torn = open(&store).unwrap_err();
            assert!(matches!(torn, CounterError::File(StateFileError::Torn { .. })), "{end} bytes: {torn}");
        }
        for version in *b"29" {
            let mut bytes = whole.clone();
            bytes[7] = version;
            fs::write(&file, [&bytes[..], &[0; 40]].concat()).unwrap();
            let other = open(&store).unwrap_err();
            assert!(matches!(other, CounterError::File(StateFileError::Version { .. })), "{other}");
            assert!(other.to_string().contains("run the gannet that wrote it"), "{other}");
        }
        // A number that cannot be written is not handed out.
        fs::write(&file, &whole).unwrap();
        let mut counter = open(&store).unwrap();
        fs::create_dir(folder.path().join("INCARNATIONS.new")).unwrap();
        assert!(matches!(counter.allocate(0).unwrap_err(), CounterError::File(StateFileError::Io { .. })));
        fs::remove_dir(folder.path().join("INCARNATIONS.new")).unwrap();
        assert_eq!(counter.allocate(0).unwrap(), 79);
    }
}
