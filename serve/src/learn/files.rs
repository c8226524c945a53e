//! The files of examples that the training reads: a folder that grows, one file at a time.

use super::journal::{failed, in_words, sync_folder};
use crate::error::ServeError;
use crate::limits::{KEPT_FILE_BYTES, KEPT_FILES};
use gannet::storage::own_files;
use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// So many bytes tell a file of this command from another.
const BEGINNING_BYTES: usize = 64;

/// The files that a training of the folder has, or gets.
#[derive(Debug)]
pub struct ExampleFiles {
    folder: PathBuf,
    ending: &'static str,
    /// The numbers and lengths of the files that are there, in order.
    kept: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl ExampleFiles {
    /// The files in a folder, which is made if it is not there. Their names end in `ending`.
    ///
    /// # Errors
    /// The folder cannot be read, or has files of others.
    pub fn open(folder: &Path, ending: &'static str) -> Result<ExampleFiles, ServeError> {
        let mut files = ExampleFiles { folder: folder.to_owned(), ending, kept: VecDeque::new(), bytes: 0 };
        let listed = files.listed().map_err(|error| failed(folder, &error))?;
        for (name, bytes) in listed {
            if name.starts_with('.') {
                continue;
            }
            let number = name.strip_suffix(ending).and_then(|name| name.parse().ok());
            let Some(number) = number.filter(|number| files.name(*number) == name) else {
                let place = folder.join(&name);
                return Err(ServeError::Settings(format!(
                    "--learn: {}: is no file of this command; move it elsewhere: the job counts the files in this folder",
                    place.display()
                )));
            };
            files.kept.push_back((number, bytes));
            files.bytes += bytes;
        }
        files.kept.make_contiguous().sort_unstable();
        Ok(files)
    }

    fn listed(&self) -> std::io::Result<Vec<(String, u64)>> {
        fs::create_dir_all(&self.folder)?;
        fs::read_dir(&self.folder)?
            .map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()))
            })
            .collect()
    }

    /// The name of a file. Names are in the order of numbers.
    fn name(&self, number: u64) -> String {
        format!("{number:020}{}", self.ending)
    }

    /// Whether the training may read a file, or has read it.
    pub fn has(&self, number: u64) -> bool {
        self.kept.iter().any(|(of, _)| *of == number)
    }

    /// Writes a file that the training does not see yet.
    ///
    /// # Errors
    /// In words.
    pub fn prepare(&self, number: u64, lines: &[u8]) -> Result<(), String> {
        let path = self.hidden(number);
        // What a killed process has left begins with the same lines.
        let beginning = &lines[..lines.len().min(BEGINNING_BYTES)];
        let write = || {
            let mut file = own_files::make_own(&path, beginning)?;
            file.write_all(lines)?;
            file.sync_all()
        };
        write().map_err(|error| {
            let _ = own_files::remove_part(&path, &[beginning]);
            in_words(&path, &error)
        })
    }

    fn hidden(&self, number: u64) -> PathBuf {
        self.folder.join(format!(".{}", self.name(number)))
    }

    /// Shows a prepared file of so many bytes to the training.
    ///
    /// # Errors
    /// In words.
    pub fn show(&mut self, number: u64, bytes: u64) -> Result<(), String> {
        let path = self.folder.join(self.name(number));
        let shown =
            own_files::rename_new(&self.hidden(number), &path).and_then(|()| sync_folder(&self.folder));
        shown.map_err(|error| in_words(&path, &error))?;
        self.kept.push_back((number, bytes));
        self.bytes += bytes;
        Ok(())
    }

    /// Deletes files that are learned, when there are many. `learned`: the number of the last one.
    ///
    /// # Errors
    /// In words.
    pub fn forget(&mut self, learned: u64) -> Result<(), String> {
        while let Some(&(number, bytes)) = self.kept.front() {
            let are_many = self.kept.len() > KEPT_FILES || self.bytes > KEPT_FILE_BYTES;
            // A worker that starts again looks at the first file that is there.
            if !are_many || number >= learned {
                break;
            }
            let path = self.folder.join(self.name(number));
            own_files::remove_listed(&path).map_err(|error| in_words(&path, &error))?;
            self.kept.pop_front();
            self.bytes -= bytes;
        }
        Ok(())
    }
}
