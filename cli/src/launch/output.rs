//! What the processes of a job print: lines of standard error with the name of the process, or a file for each.

use crate::failure::Failure;
use crate::launch::role::{ProcessRole, system};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// See the module.
pub struct Output {
    folder: Option<PathBuf>,
    /// Keeps lines of several processes apart.
    turn: Mutex<()>,
}

/// Longer lines are cut.
const LINE_BYTES_MAX: u64 = 64 << 10;

impl Output {
    /// Into files of this folder, or to standard error.
    pub fn new(folder: Option<&Path>) -> Result<Output, Failure> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).map_err(|error| {
                system(&format!("--logs: making the folder {}", folder.display()), &error)
            })?;
        }
        Ok(Output { folder: folder.map(Path::to_path_buf), turn: Mutex::new(()) })
    }

    /// The file of a process, if files are written. What an earlier start of it has printed stays there.
    fn file(&self, role: ProcessRole) -> Option<std::io::Result<File>> {
        let path = self.folder.as_ref()?.join(format!("{}.log", role.name().replace(' ', "-")));
        Some(OpenOptions::new().append(true).create(true).open(path))
    }

    /// Passes on all that a process prints, until it closes the pipe. A line that `takes` wants is not passed on.
    pub fn pass_on(&self, role: ProcessRole, from: impl Read, mut takes: impl FnMut(&str) -> bool) {
        let mut file = match self.file(role) {
            Some(Ok(file)) => Some(file),
            Some(Err(error)) => {
                notice!(
                    "gannet: the log of {} cannot be written ({error}): its lines follow here",
                    role.name()
                );
                None
            }
            None => None,
        };
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        loop {
            line.clear();
            match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => return,
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if takes(text) {
                continue;
            }
            let written = match &mut file {
                Some(file) => writeln!(file, "{text}"),
                None => {
                    let _turn = self.turn.lock();
                    writeln!(std::io::stderr(), "[{}] {text}", role.name())
                }
            };
            // The process must not stop because nobody reads what it prints.
            let _ = written;
        }
    }
}
