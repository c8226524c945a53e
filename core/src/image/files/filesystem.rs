//! How a folder's filesystem overwrites a page of an image. Images are mapped files. If overwriting a page
//! takes new space, a full disk causes a SIGBUS in the middle of a row instead of an error.

use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, open, statfs};
use std::io;
use std::path::Path;

/// The medium of an image's file. It decides only whether chunks become huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// memfd or tmpfs: chunks are collapsed into huge pages.
    Memory,
    /// A disk: 4 KiB pages.
    Disk,
}

/// What happens when a page that has file space is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwriting {
    /// The page is written in place.
    InPlace,
    /// The page is written elsewhere. This takes new space, and there may be none.
    Allocates,
    /// It depends on the layer below, or on another machine.
    Unknown,
}

/// The filesystem of a folder, by its magic number (statfs(2)).
///
/// ```
/// use gannet_core::{Filesystem, Overwriting};
///
/// let found = Filesystem::of(&std::env::temp_dir())?;
/// if let Some((what, remedy)) = found.trouble() {
///     println!("{}: {what}; {remedy}", found.name());
/// }
/// assert_eq!(Filesystem::of_magic(0xEF53).name(), "ext4");
/// assert_eq!(Filesystem::of_magic(0xEF53).overwriting(), Overwriting::InPlace);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filesystem {
    magic: u64,
    name: &'static str,
    overwriting: Overwriting,
}

const TMPFS: u64 = 0x0102_1994;
const BTRFS: u64 = 0x9123_683E;

/// From linux/magic.h, and from the sources of filesystems that are not in it.
const KNOWN: &[(u64, &str, Overwriting)] = &[
    (0xEF53, "ext4", Overwriting::InPlace),
    (0x5846_5342, "xfs", Overwriting::InPlace),
    (TMPFS, "tmpfs", Overwriting::InPlace),
    (0x8584_58F6, "ramfs", Overwriting::InPlace),
    (BTRFS, "btrfs", Overwriting::Allocates),
    (0x2FC1_2FC1, "zfs", Overwriting::Allocates),
    (0xCA45_1A4E, "bcachefs", Overwriting::Allocates),
    (0xF2F5_2010, "f2fs", Overwriting::Allocates),
    (0x3434, "nilfs2", Overwriting::Allocates),
    (0x794C_7630, "overlayfs", Overwriting::Unknown),
    (0x6969, "nfs", Overwriting::Unknown),
    (0xFF53_4D42, "cifs", Overwriting::Unknown),
    (0xFE53_4D42, "smb2", Overwriting::Unknown),
    (0x6573_5546, "fuse", Overwriting::Unknown),
    (0x00C3_6400, "ceph", Overwriting::Unknown),
    (0x0102_1997, "9p", Overwriting::Unknown),
    (0x0BD0_0BD0, "lustre", Overwriting::Unknown),
];

impl Filesystem {
    /// The filesystem of an existing folder.
    ///
    /// # Errors
    /// The system does not say.
    pub fn of(folder: &Path) -> io::Result<Filesystem> {
        let found = Filesystem::of_magic(statfs(folder)?.f_type as u64);
        if found.magic != BTRFS {
            return Ok(found);
        }
        // In a folder with chattr +C, new files are written in place.
        let opened = open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(found.with_flags(ioctl_getflags(opened).unwrap_or(IFlags::empty())))
    }

    /// The filesystem with this magic number.
    pub fn of_magic(magic: u64) -> Filesystem {
        // Some machines sign-extend the kernel's word.
        let magic = magic & 0xFFFF_FFFF;
        let known = KNOWN.iter().find(|known| known.0 == magic);
        let &(magic, name, overwriting) = known.unwrap_or(&(magic, "", Overwriting::Unknown));
        Filesystem { magic, name, overwriting }
    }

    fn with_flags(self, flags: IFlags) -> Filesystem {
        let in_place = self.magic == BTRFS && flags.contains(IFlags::NOCOW);
        let overwriting = if in_place { Overwriting::InPlace } else { self.overwriting };
        Filesystem { overwriting, ..self }
    }

    /// Its name, or its number if the name is not known.
    pub fn name(&self) -> String {
        if self.name.is_empty() {
            format!("a filesystem of type {:#x}", self.magic)
        } else {
            self.name.into()
        }
    }

    /// How it overwrites pages.
    pub fn overwriting(&self) -> Overwriting {
        self.overwriting
    }

    /// Whether its files are in memory. Such files survive a process but not the machine.
    pub fn is_memory(&self) -> bool {
        self.magic == TMPFS
    }

    /// Why images are not safe here, and what to do about it; `None` where they are safe.
    pub fn trouble(&self) -> Option<(&'static str, &'static str)> {
        let what = match self.overwriting {
            Overwriting::InPlace => return None,
            Overwriting::Allocates => {
                "overwriting a row takes new space there, so a full disk ends the server (SIGBUS) and refuses no push"
            }
            Overwriting::Unknown => {
                "it may take new space for overwriting a row, and a full disk then ends the server (SIGBUS)"
            }
        };
        let remedy = match self.magic {
            BTRFS => "use a folder on ext4, xfs or tmpfs, or an empty one after `chattr +C FOLDER`",
            _ => "use a folder on ext4, xfs or tmpfs",
        };
        Some((what, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_where_overwriting_allocates_are_named_with_a_remedy() {
        for (magic, name) in
            [(0x9123_683E, "btrfs"), (0x2FC1_2FC1, "zfs"), (0xCA45_1A4E, "bcachefs"), (0xF2F5_2010, "f2fs")]
        {
            let found = Filesystem::of_magic(magic);
            assert_eq!((found.name().as_str(), found.overwriting()), (name, Overwriting::Allocates));
            let (what, remedy) = found.trouble().unwrap();
            assert!(what.contains("SIGBUS") && remedy.contains("ext4"), "{what}; {remedy}");
            assert_eq!(remedy.contains("chattr +C"), name == "btrfs");
        }
        for (magic, name) in [(0xEF53, "ext4"), (0x5846_5342, "xfs"), (0x0102_1994, "tmpfs")] {
            let found = Filesystem::of_magic(magic);
            assert_eq!((found.name().as_str(), found.trouble()), (name, None));
            assert_eq!(found.is_memory(), name == "tmpfs");
        }
        for (magic, name) in
            [(0x6969, "nfs"), (0x794C_7630, "overlayfs"), (0x1234, "a filesystem of type 0x1234")]
        {
            let found = Filesystem::of_magic(magic);
            assert_eq!((found.name().as_str(), found.overwriting()), (name, Overwriting::Unknown));
            assert!(found.trouble().is_some());
        }
        // Sign-extended, as 32-bit kernels return it.
        assert_eq!(Filesystem::of_magic(0xFFFF_FFFF_9123_683E).name(), "btrfs");
    }

    #[test]
    fn a_btrfs_folder_that_overwrites_in_place_is_well() {
        let btrfs = Filesystem::of_magic(BTRFS);
        assert_eq!(btrfs.with_flags(IFlags::NOCOW).trouble(), None);
        assert!(btrfs.with_flags(IFlags::empty()).trouble().is_some());
        let zfs = Filesystem::of_magic(0x2FC1_2FC1);
        assert_eq!(zfs.with_flags(IFlags::NOCOW), zfs);
    }

    /// Compares with the kernel's magic number of a filesystem that every Linux machine has.
    #[test]
    fn proc_is_not_taken_for_another() {
        assert_eq!(Filesystem::of(Path::new("/proc")).unwrap().name(), "a filesystem of type 0x9fa0");
        Filesystem::of(Path::new("/nowhere")).unwrap_err();
    }
}
