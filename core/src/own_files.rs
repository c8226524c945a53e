//! Which files of a folder Gannet has written, and the one place that removes and replaces files.
//!
//! Users keep files of their own beside those of Gannet, sometimes under the same names. A name is no proof. So most
//! functions here take the bytes with which Gannet begins such a file. They change a regular file that begins so, and
//! nothing else: no link, no pipe, no device, and no file with other bytes. The others are for files that a manifest
//! lists, or that this process has made. tests/tidy.rs checks that no other module removes or replaces files.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most bytes of a beginning.
const BEGINNING_BYTES_MAX: usize = 64;

/// What has the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// Nothing has the name.
    Nobody,
    /// A regular file that begins as Gannet begins it.
    Gannet,
    /// Anything else.
    User,
}

/// Opens a regular file for reading. Unlike [`File::open`] it never waits for the other end of a pipe.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// assert!(gannet_core::own_files::open_regular(folder.path()).is_err(), "a folder is no regular file");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    must_be_regular(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?)
}

/// Opens a regular file of this name for reading and writing, without a change of it. Makes an empty one if nothing
/// has the name.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open_or_make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    must_be_regular(options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?)
}

/// How often [`lock_exclusive`] tries, and how long it waits in between.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Locks a file or a folder until all copies of its descriptor are closed. Returns `false` if another holds the lock
/// for longer than 2 s.
///
/// A lock can outlive its holder for a moment. A process that forks in another thread has copies of all descriptors
/// until it starts its program, and whoever reads `/proc/PID` of a process that was killed keeps its memory, with the
/// files that are mapped there.
///
/// # Errors
/// The file system cannot lock it.
pub fn lock_exclusive(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(false)
}

fn must_be_regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file")),
    }
}

/// All bytes of a regular file; `None` if nothing has the name.
///
/// # Errors
/// It cannot be read, or is no regular file.
pub fn read_whole(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The first bytes of a regular file, at most `N`. `None`: it is no regular file, or cannot be read.
pub fn first_bytes<const N: usize>(path: &Path) -> Option<Vec<u8>> {
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::with_capacity(N);
    open_regular(path).ok()?.take(N as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Who has written the file of this name. Gannet's files begin with one of `beginnings`, of at most 64 bytes each.
///
/// ```
/// use gannet_core::own_files::{FileOwner, owner, replace};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("STATE");
/// assert_eq!(owner(&path, &[b"GNTTEST"]), FileOwner::Nobody);
/// replace(&path, b"GNTTEST", b"GNTTEST1 of ours")?;
/// assert_eq!(owner(&path, &[b"GNTTEST"]), FileOwner::Gannet);
/// std::fs::write(&path, "a note of the user")?;
/// assert_eq!(owner(&path, &[b"GNTTEST"]), FileOwner::User);
/// assert!(replace(&path, b"GNTTEST", b"GNTTEST1 of ours").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn owner(path: &Path, beginnings: &[&[u8]]) -> FileOwner {
    if fs::symlink_metadata(path).is_err() {
        return FileOwner::Nobody;
    }
    match first_bytes::<BEGINNING_BYTES_MAX>(path) {
        Some(bytes) if beginnings.iter().any(|beginning| bytes.starts_with(beginning)) => FileOwner::Gannet,
        // Another process may have removed it meanwhile.
        None if fs::symlink_metadata(path).is_err() => FileOwner::Nobody,
        _ => FileOwner::User,
    }
}

/// As [`owner`], for a file that is written before it gets its final name: a process that was killed may have left an
/// empty one, or a part of the beginning.
pub fn owner_of_part(path: &Path, beginnings: &[&[u8]]) -> FileOwner {
    match owner(path, beginnings) {
        FileOwner::User => match first_bytes::<BEGINNING_BYTES_MAX>(path) {
            Some(bytes) if beginnings.iter().any(|beginning| beginning.starts_with(&bytes)) => {
                FileOwner::Gannet
            }
            None if fs::symlink_metadata(path).is_err() => FileOwner::Nobody,
            _ => FileOwner::User,
        },
        known => known,
    }
}

/// The error for a name that Gannet needs and the user has.
pub fn in_the_way(path: &Path) -> io::Error {
    let text = format!("gannet did not write {}: move it away", path.display());
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

/// Removes a file of Gannet. Returns whether there was one.
///
/// # Errors
/// It cannot be removed, or is not Gannet's.
pub fn remove_own(path: &Path, beginnings: &[&[u8]]) -> io::Result<bool> {
    remove_if(path, owner(path, beginnings))
}

/// As [`remove_own`], for a file of which a part may be written.
///
/// # Errors
/// It cannot be removed, or is not Gannet's.
pub fn remove_part(path: &Path, beginnings: &[&[u8]]) -> io::Result<bool> {
    remove_if(path, owner_of_part(path, beginnings))
}

fn remove_if(path: &Path, owner: FileOwner) -> io::Result<bool> {
    match owner {
        FileOwner::Nobody => Ok(false),
        FileOwner::User => Err(in_the_way(path)),
        FileOwner::Gannet => match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        },
    }
}

/// Removes a file that a manifest of Gannet lists. Returns whether there was one.
///
/// # Errors
/// It cannot be removed, or is no regular file.
pub fn remove_listed(path: &Path) -> io::Result<bool> {
    let is_file = fs::symlink_metadata(path).map(|there| there.is_file());
    remove_if(
        path,
        is_file
            .map_or(FileOwner::Nobody, |is_file| if is_file { FileOwner::Gannet } else { FileOwner::User }),
    )
}

/// Removes a folder if it is empty. Returns whether it is gone. A folder in which something of the user is stays, and
/// so does a link to a folder.
///
/// # Errors
/// The system does not allow it.
pub fn remove_folder(path: &Path) -> io::Result<bool> {
    if fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) {
        return Ok(false);
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Removes a folder of files that this process has made for a moment, and all that is in it.
///
/// # Errors
/// It cannot be removed.
pub fn remove_own_folder(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)
}

/// Makes a file for reading and writing. Removes what a killed process has left under its name: an empty file, or one
/// that begins as `beginning`.
///
/// # Errors
/// It cannot be made, or something of the user has the name.
pub fn make_own(path: &Path, beginning: &[u8]) -> io::Result<File> {
    remove_part(path, &[beginning])?;
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// The name under which a file is written before it replaces the older one.
pub fn new_name(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Replaces a file of Gannet, or makes it. It survives the process and the machine: the new file is synced before it
/// gets its name, and its name is synced at the end. `bytes` begin with `beginning`, as all versions of the file do.
///
/// # Errors
/// The system reports an error, or something of the user has the name. The old file may be there, or the new one.
pub fn replace(path: &Path, beginning: &[u8], bytes: &[u8]) -> io::Result<()> {
    put_file(path, beginning, bytes, true)
}

/// As [`replace`], for a file that only needs to survive the process.
///
/// # Errors
/// As for `replace`.
pub fn replace_unsynced(path: &Path, beginning: &[u8], bytes: &[u8]) -> io::Result<()> {
    put_file(path, beginning, bytes, false)
}

fn put_file(path: &Path, beginning: &[u8], bytes: &[u8], synced: bool) -> io::Result<()> {
    debug_assert!(bytes.starts_with(beginning), "the next write would take it for a file of the user");
    if owner(path, &[beginning]) == FileOwner::User {
        return Err(in_the_way(path));
    }
    let new = new_name(path);
    let mut file = make_own(&new, beginning)?;
    file.write_all(bytes)?;
    if !synced {
        return fs::rename(&new, path);
    }
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Gives a file or folder that this process has made its final name. The caller has looked at what has that name.
///
/// # Errors
/// The system does not allow it.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// As [`rename`]; nothing may have the new name.
///
/// # Errors
/// Something has the name, or the system does not allow it.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(to).is_ok() {
        let why = format!("{} is in the way: move it away", to.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const BEGINNING: &[u8] = b"GNTTEST";

    /// Kinds of entries that a user can have under a name of ours.
    const KINDS: usize = 6;

    fn make_foreign(path: &Path, kind: usize) {
        match kind {
            0 => fs::write(path, "a letter").unwrap(),
            1 => fs::write(path, "GNTTES?").unwrap(),
            2 => fs::create_dir(path).unwrap(),
            3 => symlink("/dev/null", path).unwrap(),
            4 => symlink(path.with_extension("target"), path).unwrap(),
            _ => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
        }
    }

    fn clear(path: &Path) {
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    }

    #[test]
    fn nothing_of_the_user_is_removed_or_replaced_whatever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("STATE");
        fs::write(path.with_extension("target"), "GNTTEST1 behind a link").unwrap();
        for at in [path.clone(), new_name(&path)] {
            for n in 0..KINDS {
                make_foreign(&at, n);
                let kind = fs::symlink_metadata(&at).unwrap().file_type();
                let refused = replace(&path, BEGINNING, b"GNTTEST1 of ours").unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{n}: {refused}");
                assert!(
                    remove_own(&at, &[BEGINNING]).is_err() && remove_part(&at, &[BEGINNING]).is_err(),
                    "{n}"
                );
                assert!(make_own(&at, BEGINNING).is_err(), "{n}");
                assert_eq!(fs::symlink_metadata(&at).unwrap().file_type(), kind, "{n}");
                clear(&at);
            }
        }
        assert_eq!(fs::read(path.with_extension("target")).unwrap(), b"GNTTEST1 behind a link");
    }

    #[test]
    fn what_a_killed_process_has_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("STATE");
        for left in [&b""[..], b"GNT", b"GNTTEST", b"GNTTEST1 of a former version"] {
            fs::write(new_name(&path), left).unwrap();
            replace(&path, BEGINNING, b"GNTTEST2 of ours").unwrap();
            assert_eq!(read_whole(&path).unwrap().as_deref(), Some(&b"GNTTEST2 of ours"[..]));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file stays");
        // Under its final name the file is whole. So an empty one is the user's.
        fs::write(&path, "").unwrap();
        assert!(replace(&path, BEGINNING, b"GNTTEST2 of ours").is_err());
        assert!(remove_own(&path, &[BEGINNING]).is_err());
    }

    /// A server that was started at once after a kill -9 was refused: the lock was still there for a moment.
    #[test]
    fn a_lock_that_outlives_its_holder_for_a_moment_refused_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (File::open(folder.path()).unwrap(), File::open(folder.path()).unwrap());
        assert!(lock_exclusive(&first).unwrap());
        let copy = first.try_clone().unwrap();
        drop(first);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock_exclusive(&second).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            drop(copy);
            assert!(waiting.join().unwrap());
        });
        let third = File::open(folder.path()).unwrap();
        assert!(!lock_exclusive(&third).unwrap(), "its holder lives");
    }

    #[test]
    fn a_pipe_in_place_of_a_file_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("STATE");
        make_foreign(&path, 5);
        for error in [
            open_regular(&path).unwrap_err(),
            read_whole(&path).unwrap_err(),
            open_or_make(&path).unwrap_err(),
        ] {
            assert!(error.to_string().contains("no regular file"), "{error}");
        }
        assert_eq!(owner(&path, &[BEGINNING]), FileOwner::User);
    }

    #[test]
    fn a_folder_goes_only_if_it_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        assert!(remove_folder(&path).unwrap(), "it is not there");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("letter"), "text").unwrap();
        assert!(!remove_folder(&path).unwrap());
        fs::remove_file(path.join("letter")).unwrap();
        assert!(remove_folder(&path).unwrap() && !path.exists());
    }
}
