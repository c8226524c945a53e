//! Which writes reach a medium, and in which order: the first page of an image, a whole file, a folder.
//!
//! A power loss leaves any mixture of old and new sectors since the last sync. An image that was open at a
//! power loss must be refused, and the order of these calls guarantees that. docs/image.md has the order, and
//! power_tests.rs tests it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What a sync writes to the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// The first page of an image.
    Head,
    /// A file, all of it.
    File,
    /// The note that a folder has new images.
    Note,
    /// The names in a folder.
    Folder(PathBuf),
}

/// Runs `sync`, which writes `what` to its medium and waits.
pub(crate) fn during(what: &Durable, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    #[cfg(test)]
    observed::tell(what, false)?;
    sync()?;
    #[cfg(test)]
    observed::tell(what, true)?;
    #[cfg(not(test))]
    let _ = what;
    Ok(())
}

/// Writes the names in a folder to its medium. A filesystem that cannot sync folders needs no sync of them.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    during(&Durable::Folder(path.into()), || match File::open(path)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    })
}

/// Makes a folder and the missing ones above it, and syncs their names to the medium. The folder's own name is
/// synced even if the folder exists, because the process that made it may have been killed before its sync.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().skip(1).take_while(|at| !at.as_os_str().is_empty() && !at.exists());
    let made: Vec<&Path> = std::iter::once(path).chain(missing).collect();
    std::fs::create_dir_all(path)?;
    for made in made {
        let above =
            made.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
        match above.map_or(Ok(()), folder) {
            // A folder that the user may enter but not list cannot be opened.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let path = made.display();
                tracing::warn!(%error, "{path}: the folder above it cannot be synced, a power loss may take its name");
            }
            synced => synced?,
        }
    }
    Ok(())
}

/// Lets a test watch the syncs of its thread, and make them fail.
#[cfg(test)]
pub(crate) mod observed {
    use super::Durable;
    use std::cell::RefCell;
    use std::io;

    type Observer = Box<dyn FnMut(&Durable, bool) -> io::Result<()>>;

    thread_local! {
        static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
    }

    /// Sets the observer of this thread's syncs. It is called before (`false`) and after (`true`) each sync, except for
    /// syncs that it causes itself.
    pub(crate) fn set(observer: Option<Observer>) {
        OBSERVER.set(observer);
    }

    pub(crate) fn tell(what: &Durable, done: bool) -> io::Result<()> {
        let Some(mut observer) = OBSERVER.take() else { return Ok(()) };
        let answer = observer(what, done);
        OBSERVER.with_borrow_mut(|own| {
            own.get_or_insert(observer);
        });
        answer
    }
}
