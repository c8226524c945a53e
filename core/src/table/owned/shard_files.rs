//! Opens one shard: finds its file in the store, or makes one.

use crate::error::OpenError;
use crate::image::files::filesystem::Medium;
use crate::image::files::held_table::image_name;
use crate::image::files::store::Store;
use crate::image::files::table_folder::IMAGE_BEGINNING;
use crate::own_files;
use crate::schema::identity::ImageOrigin;
use crate::schema::table_schema::Schema;
use crate::table::owned::shard::{Shard, ShardFile};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

impl Store {
    /// Opens or makes one shard. Its name reaches the medium only with [`sync_names`](Self::sync_names).
    pub(crate) fn shard(
        &self,
        schema: &Schema,
        number: u32,
        origin: ImageOrigin,
    ) -> Result<Shard, OpenError> {
        let (boot, grower) = (self.0.boot, &self.0.grower);
        // Two images in memory of one shard would have different rows, so they are claimed too.
        let Some(claim) = self.0.opened.claim(&schema.name, number) else {
            return Err(OpenError::Open { table: schema.name.clone(), shard: number });
        };
        let Some(folder) = &self.0.folder else {
            let path = PathBuf::from(format!("memfd:{}/{number:04}", schema.name));
            let file = memory_file(&format!("gannet-{}-{number}", schema.name))
                .map_err(|source| OpenError::of_image("memfd_create for", &path, source))?;
            let place =
                ShardFile { path: &path, medium: Medium::Memory, durable: false, boot, grower, origin };
            return Shard::create(file, &place, schema, number, claim);
        };
        let table = folder.path.join(&schema.name);
        let path = table.join(image_name(number));
        let io = |what, path: &Path| {
            let path = path.to_path_buf();
            move |source| OpenError::of_image(what, &path, source)
        };
        let place = ShardFile { path: &path, medium: folder.medium, durable: true, boot, grower, origin };
        match std::fs::symlink_metadata(&path) {
            Ok(_) => {
                let file = own_files::open_or_make(&path).map_err(io("opening", &path))?;
                lock_image(&file, &path)?;
                folder.new_images.note_use();
                Shard::reopen(file, &place, schema, number, claim)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // A new image gets its final name once it is whole. A kill before that leaves only a .new file,
                // which the next opening overwrites. What a power loss leaves of it is not trusted.
                folder.new_images.note(&schema.name)?;
                std::fs::create_dir_all(&table).map_err(io("making", &table))?;
                let new = own_files::new_name(&path);
                let file = own_files::make_own(&new, IMAGE_BEGINNING).map_err(io("making", &new))?;
                file.write_all_at(IMAGE_BEGINNING, 0).map_err(io("writing", &new))?;
                lock_image(&file, &path)?;
                let shard = Shard::create(file, &place, schema, number, claim)?;
                own_files::rename(&new, &path).map_err(io("naming", &path))?;
                Ok(shard)
            }
            Err(e) => Err(io("opening", &path)(e)),
        }
    }
}

/// Locks an image until it is closed. The lock of the folder is not enough: the folder of a table may be moved into
/// another data folder while a server uses it.
fn lock_image(image: &File, path: &Path) -> Result<(), OpenError> {
    match own_files::lock_exclusive(image) {
        Ok(true) => Ok(()),
        Ok(false) => Err(OpenError::Locked(path.into())),
        Err(source) => Err(OpenError::Io { what: "locking", path: path.into(), source }),
    }
}

/// A memfd that never shrinks, so that reading a mapping of it cannot fault. No other user can open it again
/// for writing (through /proc).
fn memory_file(name: &str) -> io::Result<File> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    fchmod(&file, Mode::RUSR)?;
    Ok(file.into())
}
