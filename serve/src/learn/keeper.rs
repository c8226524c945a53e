//! What a folder that learns has: which examples it has taken, which of them the training may read, and which are
//! learned. It is one state without threads and clocks: see `learner.rs` for these.
//!
//! One file is with the training at a time. The next one is shown when the job has trained all tasks that it has found,
//! and has found more than it had before the file was shown. So a count of tasks says which examples are learned.

use super::files::ExampleFiles;
use super::ids::IdWindow;
use super::journal::Journal;
use super::record::{Example, Record, Released};
use crate::error::ServeError;
use crate::limits::PART_BYTES;
use std::collections::HashMap;
use std::path::Path;

/// What a job says of its training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobStand {
    /// Tasks that it has found so far.
    pub found: u64,
    /// Tasks that it has trained.
    pub trained: u64,
    /// It has ended: it finds no more.
    pub is_over: bool,
}

/// Settings of a folder that learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperLimits {
    /// Ids that are known.
    pub ids: usize,
    /// Bytes of the lines that are taken and not learned.
    pub waiting_bytes: usize,
}

/// An example that a client sends: its id and its line. Without a line it is a label of a prediction that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The id.
    pub id: String,
    /// The line that is trained.
    pub line: Option<String>,
}

/// What became of an offered example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOutcome {
    /// It is taken, under this number.
    New(u64),
    /// An example with its id was taken before, under this number.
    Known(u64),
    /// It has no line, and its id is not known.
    Unknown,
}

/// Why examples are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Too many wait.
    Full,
    /// They cannot be written: in words.
    Unwritten(String),
}

/// See the module.
#[derive(Debug)]
pub struct Keeper {
    limits: KeeperLimits,
    journal: Journal,
    files: ExampleFiles,
    ids: IdWindow,
    released: Released,
    /// The number of the first example that is not learned.
    learned: u64,
    /// The lines that are in no file, each with its line break.
    lines: Vec<u8>,
    /// Bytes of the file that is with the training.
    released_bytes: usize,
    /// The last file is written, and the training does not see it yet.
    is_hidden: bool,
}

impl Keeper {
    /// Opens a folder. `format` is the name of the format of its lines, and `ending` that of its files.
    ///
    /// # Errors
    /// The folder is damaged, of another format, or cannot be read and written.
    pub fn open(
        folder: &Path,
        (format, ending): (&str, &'static str),
        limits: KeeperLimits,
    ) -> Result<Keeper, ServeError> {
        let journal_folder = folder.join("journal");
        std::fs::create_dir_all(&journal_folder).map_err(|error| super::journal::failed(folder, &error))?;
        let files = ExampleFiles::open(&folder.join("examples"), ending)?;
        let (journal, recovered) = Journal::open(&journal_folder, format, PART_BYTES)?;
        if recovered.torn > 0 {
            tracing::warn!(
                bytes = recovered.torn,
                "the end of a record of the journal was cut away: nobody was told that its examples are taken"
            );
        }
        let released = recovered.released;
        let mut ids = IdWindow::new(limits.ids, recovered.first);
        let (mut lines, mut last) = (Vec::new(), Vec::new());
        for (number, Example { id, line }) in (recovered.first..).zip(&recovered.examples) {
            ids.push(id);
            if number >= recovered.released_from {
                let of = if number < released.upto { &mut last } else { &mut lines };
                put_line(of, line);
            }
        }
        let mut keeper = Keeper {
            limits,
            journal,
            files,
            ids,
            released,
            learned: recovered.released_from,
            lines,
            released_bytes: last.len(),
            is_hidden: false,
        };
        if released.file > 0 && !keeper.files.has(released.file) {
            keeper
                .files
                .prepare(released.file, &last)
                .map_err(|what| ServeError::Settings(format!("--learn: {what}")))?;
            keeper.is_hidden = true;
        }
        Ok(keeper)
    }

    /// The number of the first example that is not learned: all before it are.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// Examples that are taken and not learned.
    pub fn waiting(&self) -> u64 {
        self.ids.next() - self.learned
    }

    /// Tasks of the job before the file that is with it. `None`: no file is.
    pub fn base(&self) -> Option<u64> {
        (self.learned < self.released.upto).then_some(self.released.base)
    }

    /// Takes the examples of several requests, each as a whole or not at all. When this returns, they are on the disk.
    pub fn take(&mut self, requests: &[Vec<Offered>]) -> Vec<Result<Vec<IdOutcome>, Refused>> {
        let (mut ids, mut taken) = (HashMap::new(), Vec::new());
        let (first, mut bytes) = (self.ids.next(), self.lines.len() + self.released_bytes);
        let mut place_of = |offered: &Offered| {
            if let Some(number) = self.ids.number(&offered.id).or_else(|| ids.get(&offered.id).copied()) {
                return IdOutcome::Known(number);
            }
            let Some(line) = &offered.line else { return IdOutcome::Unknown };
            let number = first + taken.len() as u64;
            ids.insert(offered.id.clone(), number);
            taken.push(Example { id: offered.id.clone(), line: line.clone() });
            IdOutcome::New(number)
        };
        let mut answers = Vec::new();
        for request in requests {
            let more: usize = request.iter().map(|of| self.new_bytes(of)).sum();
            if more > 0 && bytes > 0 && bytes + more > self.limits.waiting_bytes {
                answers.push(Err(Refused::Full));
                continue;
            }
            bytes += more;
            answers.push(Ok(request.iter().map(&mut place_of).collect::<Vec<_>>()));
        }
        if taken.is_empty() {
            return answers;
        }
        let record = Record::Examples { first, examples: taken };
        let written = self.journal.add(&record);
        let Record::Examples { examples, .. } = record else { return answers };
        match written {
            Ok(()) => {
                for Example { id, line } in &examples {
                    self.ids.push(id);
                    put_line(&mut self.lines, line);
                }
            }
            Err(why) => {
                let is_lost = |place: &IdOutcome| matches!(place, IdOutcome::New(n) | IdOutcome::Known(n) if *n >= first);
                for answer in &mut answers {
                    if answer.as_ref().is_ok_and(|places| places.iter().any(is_lost)) {
                        *answer = Err(Refused::Unwritten(why.clone()));
                    }
                }
            }
        }
        answers
    }

    /// The bytes of an example that has not come before.
    fn new_bytes(&self, Offered { id, line }: &Offered) -> usize {
        line.as_ref().filter(|_| self.ids.number(id).is_none()).map_or(0, |line| line.len() + 1)
    }

    /// Takes what the job says, and gives it the next file when it has trained the one before.
    ///
    /// # Errors
    /// A file cannot be written, in words. It is tried again at the next call.
    pub fn goes_on(&mut self, job: JobStand) -> Result<(), String> {
        if self.is_hidden {
            self.show()?;
            return Ok(());
        }
        if job.found != job.trained {
            return Ok(());
        }
        if let Some(base) = self.base() {
            if job.found <= base {
                return Ok(());
            }
            (self.learned, self.released_bytes) = (self.released.upto, 0);
            self.ids.forget(self.learned);
            self.files.forget(self.released.file)?;
            self.journal.tidy(self.ids.next(), self.released, self.ids.first())?;
        }
        if self.lines.is_empty() || job.is_over {
            return Ok(());
        }
        let released = Released { file: self.released.file + 1, upto: self.ids.next(), base: job.found };
        self.files.prepare(released.file, &self.lines)?;
        self.journal.add(&Record::Released(released))?;
        self.released = released;
        self.released_bytes = std::mem::take(&mut self.lines).len();
        self.is_hidden = true;
        self.show()
    }

    /// Lets the training see the last file.
    fn show(&mut self) -> Result<(), String> {
        self.files.show(self.released.file, self.released_bytes as u64)?;
        self.is_hidden = false;
        Ok(())
    }
}

fn put_line(lines: &mut Vec<u8>, line: &str) {
    lines.extend_from_slice(line.as_bytes());
    lines.push(b'\n');
}
