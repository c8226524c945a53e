//! Opens one shard: finds its file in the store, or makes one.

use crate::error::OpenError;
use crate::image::filesystem::Medium;
use crate::image::held_table::image_name;
use crate::image::store::Store;
use crate::schema::identity::TableIdentity;
use crate::schema::table_schema::Schema;
use crate::table::shard::{Shard, ShardFile};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

impl Store {
    /// Opens or makes one shard. Its name reaches the medium only with [`sync_names`](Self::sync_names).
    pub(crate) fn shard(
        &self,
        schema: &Schema,
        number: u32,
        origin: (TableIdentity, u64),
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
        let open =
            |p: &Path, new: bool| OpenOptions::new().read(true).write(true).create(new).truncate(new).open(p);
        match open(&path, false) {
            Ok(file) => {
                folder.new_images.note_use();
                Shard::reopen(file, &place, schema, number, claim)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // A new image gets its final name once it is whole. A kill before that leaves only a .new file,
                // which the next opening overwrites. What a power loss leaves of it is not trusted.
                folder.new_images.note(&schema.name)?;
                std::fs::create_dir_all(&table).map_err(io("making", &table))?;
                let new = path.with_extension("new");
                let file = open(&new, true).map_err(io("making", &new))?;
                let shard = Shard::create(file, &place, schema, number, claim)?;
                std::fs::rename(&new, &path).map_err(io("naming", &path))?;
                Ok(shard)
            }
            Err(e) => Err(io("opening", &path)(e)),
        }
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
