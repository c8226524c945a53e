//! Where the files of checkpoints live: a folder, or a bucket of an object store.

use std::fmt::Debug;
use std::io::{self, Read};

/// A file in a folder of a [`CheckpointStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its name in the folder.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was written, in seconds since the start of 1970, if the store knows.
    pub written: Option<u64>,
}

/// A file that was opened for reading.
pub struct OpenedFile {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its bytes, from the first one.
    pub input: Box<dyn Read + Send>,
}

/// Where the files of checkpoints live. Each checkpoint has a folder. A
/// [`CheckpointDir`](crate::CheckpointDir) gives the files their names and meanings.
///
/// Errors are those of the call and name no file: the caller adds the name. A call that fails may have been done all
/// the same, as when the answer of a server is lost. All methods may be called from several threads.
///
/// ```
/// use gannet_core::{CheckpointStore, LocalStore};
/// use std::io::Read;
///
/// # let folder = tempfile::tempdir()?;
/// let store: Box<dyn CheckpointStore> = Box::new(LocalStore::create(folder.path())?);
/// assert!(store.reserve("0000000001")?);
/// assert!(!store.reserve("0000000001")?, "somebody has it");
/// let mut writer = store.create("0000000001", "rows")?;
/// let mut buffer = writer.write(b"some ".to_vec())?;
/// buffer.extend_from_slice(b"rows");
/// writer.write(buffer)?;
/// writer.finish()?;
/// store.publish("0000000001", "MANIFEST", b"rows has 9 bytes")?;
///
/// let mut bytes = Vec::new();
/// store.open("0000000001", "rows")?.input.read_to_end(&mut bytes)?;
/// assert_eq!(bytes, b"some rows");
/// store.remove_files("0000000001", &["MANIFEST".to_owned(), "rows".to_owned()])?;
/// store.remove_folder("0000000001")?;
/// assert!(store.folders()?.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait CheckpointStore: Debug + Send + Sync {
    /// Makes a folder, durably. `false`: it exists. Of several callers, one gets `true`.
    ///
    /// # Errors
    /// The folder cannot be made.
    fn reserve(&self, folder: &str) -> io::Result<bool>;

    /// The names of all folders, in any order.
    ///
    /// # Errors
    /// The store cannot be listed.
    fn folders(&self) -> io::Result<Vec<String>>;

    /// The files in a folder, in any order. A file that is being written may be among them.
    ///
    /// # Errors
    /// The folder cannot be listed. [`io::ErrorKind::NotFound`]: there is no such folder.
    fn files(&self, folder: &str) -> io::Result<Vec<StoredFile>>;

    /// Begins a file in a folder that exists.
    ///
    /// # Errors
    /// The file cannot be made. [`io::ErrorKind::AlreadyExists`]: it exists. A store may say so at
    /// [`StoreWriter::finish`] instead.
    fn create(&self, folder: &str, name: &str) -> io::Result<Box<dyn StoreWriter>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file cannot be opened. [`io::ErrorKind::NotFound`]: there is no such file.
    fn open(&self, folder: &str, name: &str) -> io::Result<OpenedFile>;

    /// Writes a file, all or nothing. It is durable afterwards, with the names of all files in its folder. A file that
    /// has these bytes already is written.
    ///
    /// # Errors
    /// The file cannot be written. Readers then find nothing under its name, or all of it.
    /// [`io::ErrorKind::AlreadyExists`]: there is another file, which stays.
    fn publish(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Makes the names of the files in a folder durable. A store where [`StoreWriter::finish`] does so has nothing to
    /// do.
    ///
    /// # Errors
    /// The names may not be durable.
    fn sync(&self, folder: &str) -> io::Result<()>;

    /// Whether [`reserve`](Self::reserve) has made a folder, or a checkpoint is in it. A folder of the user may have
    /// the same name.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn is_reserved(&self, folder: &str) -> io::Result<bool>;

    /// Removes these files of a folder, durably. A file that is not there is removed already. The folder stays, so
    /// nobody else can [`reserve`](Self::reserve) it.
    ///
    /// # Errors
    /// A file cannot be removed.
    fn remove_files(&self, folder: &str, names: &[String]) -> io::Result<()>;

    /// Gives back a folder, durably: it goes if no file is in it. Otherwise it is one of the user from now on.
    ///
    /// # Errors
    /// The folder cannot be removed. A call after one that failed goes on where it has ended.
    fn remove_folder(&self, folder: &str) -> io::Result<()>;
}

/// Writes one file of a [`CheckpointStore`]. Dropped before [`finish`](Self::finish), it leaves nothing, or a part of
/// the file.
pub trait StoreWriter: Send {
    /// Takes the next bytes, and returns an empty buffer to go on with. The bytes may be written later.
    ///
    /// # Errors
    /// These bytes or earlier ones cannot be written. The file is then given up.
    fn write(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>>;

    /// Ends the file, which need not be durable yet: [`finish`](Self::finish) makes it so, and may be called when other
    /// files have ended, too. Making many files durable at once costs a filesystem less than one after the other. The
    /// buffers of the file are free afterwards.
    ///
    /// # Errors
    /// Some bytes cannot be written. The file is then given up.
    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Ends the file. All of its bytes are durable afterwards. It never replaces a file that is whole.
    ///
    /// # Errors
    /// Some bytes cannot be written, or are not durable. [`io::ErrorKind::AlreadyExists`]: there is such a file.
    fn finish(self: Box<Self>) -> io::Result<()>;
}
