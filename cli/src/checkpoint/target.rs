//! The place of exported bytes: a file that is replaced when the new one is whole, a pipe or device that takes bytes as
//! they come, or standard output.

use crate::failure::{Failure, SYSTEM};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The name that means standard output.
const STDOUT: &str = "-";

/// Where an export goes.
pub enum Target {
    /// Standard output.
    Stdout,
    /// A pipe, a device, or whatever else is no regular file.
    Special(File),
    /// A file without its final name, and that name.
    File(NamedTempFile, PathBuf),
}

impl Target {
    /// Opens the target of this name. A link stands for the file to which it leads.
    pub fn open(path: &Path) -> Result<Target, Failure> {
        if path == Path::new(STDOUT) {
            return Ok(Target::Stdout);
        }
        let failed = |error: io::Error| Failure::new(SYSTEM, format!("making {}: {error}", path.display()));
        // A pipe that /dev/stdout leads to has no name.
        let is_special = fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir());
        let is_link = !is_special && fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink());
        let path = match is_link {
            true => fs::canonicalize(path).map_err(failed)?,
            false => path.to_path_buf(),
        };
        let mode = match fs::metadata(&path) {
            Ok(there) if there.is_dir() => {
                return Err(Failure::input(format!("{} is a folder: name a file", path.display())));
            }
            Ok(there) if !there.is_file() => {
                let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
                return Ok(Target::Special(file));
            }
            Ok(there) => there.permissions().mode() & 0o777,
            Err(_) => 0o666, // less what the process's umask takes
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut new = tempfile::Builder::new();
        let new = new.prefix(".gannet-export-").permissions(Permissions::from_mode(mode));
        Ok(Target::File(new.tempfile_in(folder).map_err(failed)?, path))
    }

    /// A file without a name, for bytes that wait until they are copied to the target.
    pub fn spool(&self) -> io::Result<File> {
        match self {
            Target::File(_, path) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                tempfile::tempfile_in(folder.unwrap_or(Path::new(".")))
            }
            Target::Stdout | Target::Special(..) => tempfile::tempfile(),
        }
    }

    /// Whether the rows go to standard output, so that messages must not.
    pub fn is_stdout(&self) -> bool {
        matches!(self, Target::Stdout)
    }

    /// Whether what this name stands for is a file that gets its name when it is whole, or will be one.
    pub fn is_file(path: &Path) -> bool {
        path != Path::new(STDOUT) && fs::metadata(path).map_or(true, |there| there.is_file())
    }

    /// For bytes in order.
    pub fn writer(&mut self) -> Box<dyn Write + '_> {
        match self {
            Target::Stdout => Box::new(io::stdout().lock()),
            Target::Special(file) => Box::new(file),
            Target::File(file, _) => Box::new(file.as_file_mut()),
        }
    }

    /// The file for bytes that are written in any order. `None`: the target takes bytes in order only.
    pub fn file(&self) -> Option<&File> {
        match self {
            Target::File(file, _) => Some(file.as_file()),
            Target::Stdout | Target::Special(..) => None,
        }
    }

    /// Ends the export: the bytes are on the disk, and the file has its name.
    pub fn end(self) -> io::Result<()> {
        let Target::File(file, path) = self else { return Ok(()) };
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    }
}
