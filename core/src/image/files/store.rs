//! The place of images: in memory (memfd), where they end with the process, or in files of a data folder. Files
//! survive the process, and on a disk also an orderly shutdown of the machine.

use crate::error::OpenError;
use crate::image::files::durability;
use crate::image::files::filesystem::{Filesystem, Medium};
use crate::image::files::new_images::NewImages;
use crate::image::files::open_shards::OpenShards;
use crate::image::files::table_names::{self, TableNames};
use crate::image::memory::grower::{Grower, Now};
use crate::own_files;
use crate::schema::table_schema::Schema;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place for images. It is cheap to clone. The lock on a data folder is held until the last clone is dropped and the
/// last image of it is closed.
///
/// ```
/// use gannet_core::{Schema, Shards, Store};
/// use gannet_optim::{Add, Rule};
///
/// let folder = tempfile::tempdir()?;
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let store = Store::open_dir(folder.path())?;
/// let mut shards = Shards::open(&store, &schema, 0..1)?;
/// shards.mark_clean()?;
/// assert_eq!(store.tables(), ["clicks"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) folder: Option<Folder>,
    pub(crate) boot: [u8; 16],
    /// Holds the folder's lock while an image of the folder is open.
    pub(crate) grower: Arc<Grower>,
    pub(crate) opened: Arc<OpenShards>,
}

pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) medium: Medium,
    tables: TableNames,
    pub(crate) new_images: NewImages,
}

/// How a store's images may grow.
///
/// ```
/// # use gannet_core::{GrowthConfig, Schema, Shards, Store};
/// # use gannet_optim::{Add, Rule};
/// let growing = GrowthConfig { memory_limit: 1 << 30, ..GrowthConfig::default() };
/// let store = Store::memory_with(growing);
/// let _shards = Shards::open(&store, &Schema::scalar("clicks", Rule::Add(Add)), 0..64)?;
/// assert!(store.memory_used() < store.memory_limit());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GrowthConfig {
    /// The most bytes that all images may take together: headers, indexes and rows. A push that needs more
    /// bytes is refused.
    pub memory_limit: u64,
    /// The clock that times growth ([`crate::Growth`]); `None` measures no times.
    pub clock: Option<Now>,
}

impl Default for GrowthConfig {
    /// No limit, no clock.
    fn default() -> GrowthConfig {
        GrowthConfig { memory_limit: u64::MAX, clock: None }
    }
}

impl Store {
    /// A store of images in memory, without a limit.
    pub fn memory() -> Store {
        Store::memory_with(GrowthConfig::default())
    }

    /// A store of images in memory that grow as `growing` says. [`GrowthConfig`] has an example.
    pub fn memory_with(growing: GrowthConfig) -> Store {
        let grower = Arc::new(Grower::new(growing.memory_limit, growing.clock, Vec::new()));
        Store(Arc::new(Inner { folder: None, boot: [0; 16], grower, opened: Arc::default() }))
    }

    /// A store of images in memory that takes its bytes from the limit of this one. It knows nothing of the shards that
    /// are open here.
    ///
    /// ```
    /// # use gannet_core::{Schema, Shards, Store};
    /// # use gannet_optim::{Add, Rule};
    /// let store = Store::memory();
    /// let schema = Schema { shards: 2, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let _here = Shards::open(&store, &schema, 0..2)?;
    /// assert!(Shards::open(&store, &schema, 0..2).is_err());
    /// let _beside = Shards::open(&store.beside(), &schema, 0..2)?;
    /// # Ok::<(), gannet_core::OpenError>(())
    /// ```
    pub fn beside(&self) -> Store {
        let (boot, grower) = (self.0.boot, self.0.grower.clone());
        Store(Arc::new(Inner { folder: None, boot, grower, opened: Arc::default() }))
    }

    /// A store of images in the folder `path`, which is made if it does not exist. If images are not safe on the
    /// folder's [`Filesystem`], the log gets one warning that names it.
    ///
    /// # Errors
    /// The folder cannot be made or written, or another process owns it.
    pub fn open_dir(path: &Path) -> Result<Store, OpenError> {
        Store::open_dir_with(path, GrowthConfig::default())
    }

    /// As [`open_dir`](Self::open_dir); images grow as `growing` says.
    ///
    /// # Errors
    /// As for `open_dir`.
    pub fn open_dir_with(path: &Path, growing: GrowthConfig) -> Result<Store, OpenError> {
        let from = Path::new("/proc/sys/kernel/random/boot_id");
        let io = |source| OpenError::Io { what: "reading", path: from.into(), source };
        let text = std::fs::read_to_string(from).map_err(io)?;
        let mut boot = [0u8; 16];
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        for (byte, pair) in boot.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).unwrap_or("0");
            *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
        }
        if digits.len() != 32 || boot == [0; 16] {
            return Err(io(io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is not a boot id"))));
        }
        Store::open_dir_as(path, boot, growing)
    }

    /// As [`open_dir_with`](Self::open_dir_with), with the id of the machine's current boot (the kernel's boot_id). All
    /// zeros are not a boot id: they mark an image that was never completed.
    ///
    /// # Errors
    /// As for `open_dir`.
    pub fn open_dir_as(path: &Path, boot: [u8; 16], growing: GrowthConfig) -> Result<Store, OpenError> {
        let io = |what| move |source| OpenError::Io { what, path: path.into(), source };
        durability::make_folder(path).map_err(io("making the data folder"))?;
        let locks = lock_data_folder(path)?;
        let filesystem = Filesystem::of(path).map_err(io("looking at the filesystem of"))?;
        if let Some((what, remedy)) = filesystem.trouble() {
            tracing::warn!(folder = %path.display(), remedy, "the data folder is on {}: {what}", filesystem.name());
        }
        let medium = if filesystem.is_memory() { Medium::Memory } else { Medium::Disk };
        let grower = Arc::new(Grower::new(growing.memory_limit, growing.clock, locks));
        let tables = TableNames::open(path)?;
        let new_images = NewImages::open(path, boot).map_err(io("reading UNSYNCED in"))?;
        let (folder, opened) = (Folder { path: path.into(), medium, tables, new_images }, Arc::default());
        let folder = Some(folder);
        Ok(Store(Arc::new(Inner { folder, boot, grower, opened })))
    }

    /// Whether images outlive the process.
    pub fn durable(&self) -> bool {
        self.0.folder.is_some()
    }

    /// The data folder, if images are in one. Other files that must survive with the images go there too.
    pub fn folder(&self) -> Option<&Path> {
        self.0.folder.as_ref().map(|folder| &*folder.path)
    }

    /// "memfd", "tmpfs" or "disk".
    pub fn kind(&self) -> &'static str {
        match &self.0.folder {
            None => "memfd",
            Some(f) if f.medium == Medium::Memory => "tmpfs",
            Some(_) => "disk",
        }
    }

    /// Bytes that all images of the store take (headers, indexes and rows), plus the bytes of [`Store::set_aside`].
    pub fn memory_used(&self) -> u64 {
        self.0.grower.budget.used()
    }

    /// Reserves bytes of the limit for another use than images, until the store is dropped. Returns `false`
    /// when fewer bytes are left.
    pub fn set_aside(&self, bytes: u64) -> bool {
        self.0.grower.budget.take(bytes).is_ok()
    }

    /// The memory limit in bytes; `u64::MAX` for no limit.
    pub fn memory_limit(&self) -> u64 {
        self.0.grower.budget.limit()
    }

    /// Names of the tables that have images here, sorted. [`Store`] has an example.
    pub fn tables(&self) -> Vec<String> {
        self.0.folder.as_ref().map_or_else(Vec::new, |folder| folder.tables.names())
    }

    /// Moves all tables and their list to another folder of the filesystem, durably. Other files stay. No shard may be
    /// open.
    ///
    /// # Errors
    /// The system does not allow it, or a file there has the name of an image.
    pub fn move_tables(&self, to: &Path) -> io::Result<()> {
        self.0.folder.as_ref().map_or(Ok(()), |folder| folder.tables.move_all(to))
    }

    /// As [`move_tables`](Self::move_tables), for a folder that no store has open.
    ///
    /// # Errors
    /// As for `move_tables`.
    pub fn move_tables_of(folder: &Path, to: &Path) -> io::Result<()> {
        table_names::move_all(folder, to)
    }

    /// Removes the tables in a folder that no store has open: their images and step files, their list, and each folder
    /// that becomes empty. Other files stay.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn remove_tables(folder: &Path) -> io::Result<()> {
        table_names::remove_all(folder)
    }

    /// Removes a table: its images and step files, and its folder if that leaves it empty. Returns `false` and removes
    /// nothing if any of its shards is open. Images in memory disappear when they are closed.
    ///
    /// ```
    /// # use gannet_core::{Schema, Shards, Store};
    /// # use gannet_optim::{Add, Rule};
    /// # let folder = tempfile::tempdir()?;
    /// let store = Store::open_dir(folder.path())?;
    /// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let shards = Shards::open(&store, &schema, 0..1)?;
    /// assert!(!store.drop_table("clicks")?, "its shard is open");
    /// drop(shards);
    /// assert!(store.drop_table("clicks")?);
    /// assert!(store.tables().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system does not allow their removal.
    pub fn drop_table(&self, table: &str) -> io::Result<bool> {
        if self.0.opened.has(table) {
            return Ok(false);
        }
        let Some(folder) = &self.0.folder else { return Ok(true) };
        folder.tables.remove(table)?;
        folder.new_images.forget(table);
        Ok(true)
    }

    /// Writes the names of a table's images to the medium, unless a note says that they are new. Every opening of an
    /// image that was not closed in order does this: the process that made it may have been killed before it synced the
    /// name.
    pub(crate) fn sync_names(&self, schema: &Schema) -> Result<(), OpenError> {
        let Some(folder) = self.0.folder.as_ref().filter(|folder| !folder.new_images.has(&schema.name))
        else {
            return Ok(());
        };
        for path in [folder.path.join(&schema.name), folder.path.clone()] {
            durability::folder(&path).map_err(|source| OpenError::Io {
                what: "syncing the folder",
                path,
                source,
            })?;
        }
        Ok(())
    }

    /// Whether the list of tables has this one.
    pub(crate) fn lists(&self, table: &str) -> bool {
        self.0.folder.as_ref().is_some_and(|folder| folder.tables.has(table))
    }

    /// Checks that a table that was listed, and of which no image is there, was dropped meanwhile.
    ///
    /// # Errors
    /// The list still has it, so its images are lost.
    pub(crate) fn must_be_dropped(&self, table: &str) -> Result<(), OpenError> {
        match self.0.folder.as_ref().filter(|folder| folder.tables.has(table)) {
            None => Ok(()),
            Some(Folder { path, .. }) => Err(OpenError::TableGone {
                table: table.to_owned(),
                folder: path.join(table),
                list: path.join(table_names::NAME),
            }),
        }
    }

    /// Notes in the list of tables that the images of this one are there. While a note says that they are new, the list
    /// need not be on the medium.
    pub(crate) fn list_table(&self, table: &str) -> Result<(), OpenError> {
        let Some(folder) = &self.0.folder else { return Ok(()) };
        let listed = folder.tables.add(table, !folder.new_images.has(table));
        listed.map_err(|source| OpenError::Io {
            what: "writing the list of tables in",
            path: folder.path.clone(),
            source,
        })
    }
}

/// Locks a data folder: the folder itself, which nobody can exchange while it has this path, and its file LOCK, by
/// which [`crate::is_data_folder`] knows a folder that is in use.
fn lock_data_folder(path: &Path) -> Result<Vec<File>, OpenError> {
    let io = |what| move |source| OpenError::Io { what, path: path.into(), source };
    let folder = File::open(path).map_err(io("opening"))?;
    let file = own_files::open_or_make(&path.join("LOCK")).map_err(io("opening LOCK in"))?;
    for lock in [&folder, &file] {
        if !own_files::lock_exclusive(lock).map_err(io("locking"))? {
            return Err(OpenError::Locked(path.into()));
        }
    }
    Ok(vec![folder, file])
}
