//! Reads every byte of a checkpoint, to find damage that lengths do not show.

use crate::checkpoint::directory::CheckpointDir;
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::JobManifest;
use crate::checkpoint::row_files::row_file_reader::RowBlock;
use crate::schema::admission::Admission;
use std::collections::BTreeMap;

/// What [`CheckpointDir::verify`] has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Checkpoints: the one that was asked for, and those that it needs.
    pub checkpoints: u64,
    /// Row files and state files.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Rows in them.
    pub rows: u64,
}

impl CheckpointDir {
    /// Reads every byte of a checkpoint and of those that it needs, and checks all of them.
    ///
    /// # Errors
    /// [`CheckpointDirError::Refused`]: a file is missing or damaged, which the error names, or the checkpoint was
    /// pruned while it was read ([`CheckpointDirError::is_pruned`]). The error also offers the newest good checkpoint.
    /// For a damaged one others are read whole to find it.
    pub fn verify(&self, number: u64) -> Result<Verified, CheckpointDirError> {
        // Of each checkpoint that was read: whether its own files are good.
        let mut good = BTreeMap::new();
        let verified = self.verify_chain(number, &mut good);
        let reason = match verified.map_err(|error| self.or_pruned(number, error)) {
            Ok(verified) => return Ok(verified),
            Err(reason) if reason.is_system() => return Err(reason),
            Err(reason) if reason.is_gone() => return Err(self.refused(number, reason)),
            Err(reason) => reason,
        };
        let others = self.numbers()?.into_iter().rev().filter(|other| *other != number);
        let mut newest = None;
        for other in others {
            if self.verify_chain(other, &mut good).is_ok() {
                newest = Some(other);
                break;
            }
        }
        let directory = self.path().to_path_buf();
        Err(CheckpointDirError::Refused { number, reason: reason.into(), directory, newest })
    }

    /// As [`verify`](Self::verify), for all checkpoints that are finished, in the order of their numbers. Each file is
    /// read once.
    ///
    /// ```
    /// use gannet_core::{CheckpointDir, JobManifest};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let directory = CheckpointDir::create(folder.path())?;
    /// let draft = directory.begin()?;
    /// let tasks = draft.state("tasks", b"some")?;
    /// draft.publish(&JobManifest { states: vec![tasks], ..JobManifest::new(1, "monday") })?;
    /// std::fs::write(directory.folder(1).join("tasks.state"), b"sume")?;
    /// let all = directory.verify_all()?;
    /// assert!(matches!(&all[..], [(1, Err(error))] if error.to_string().contains("tasks.state")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The directory cannot be listed.
    #[allow(clippy::type_complexity)]
    pub fn verify_all(&self) -> Result<Vec<(u64, Result<Verified, CheckpointDirError>)>, CheckpointDirError> {
        let (mut good, mut all) = (BTreeMap::new(), Vec::new());
        for number in self.numbers()? {
            match self.verify_chain(number, &mut good) {
                Err(error) if error.is_gone() => {}
                verified => all.push((number, verified)),
            }
        }
        Ok(all)
    }

    fn verify_chain(
        &self,
        number: u64,
        good: &mut BTreeMap<u64, bool>,
    ) -> Result<Verified, CheckpointDirError> {
        let mut sum = Verified::default();
        for manifest in self.chain_of(number)? {
            match good.get(&manifest.number) {
                Some(true) => {}
                Some(false) => {
                    let why = "it needs a checkpoint that is damaged";
                    return Err(CheckpointDirError::damaged(&self.folder(number), why));
                }
                None => {
                    let read = self.verify_files(&manifest);
                    good.insert(manifest.number, read.is_ok());
                    read?;
                }
            }
            sum.checkpoints += 1;
            sum.files += (manifest.files().count() + manifest.states.len()) as u64;
            sum.bytes += manifest.bytes();
            sum.rows += manifest.rows();
        }
        Ok(sum)
    }

    /// Reads the files of one checkpoint.
    fn verify_files(&self, manifest: &JobManifest) -> Result<(), CheckpointDirError> {
        for state in &manifest.states {
            self.read_state(manifest, &state.name)?;
        }
        for (number, table) in (0..).zip(&manifest.tables) {
            let sketch = match table.schema.admission {
                Admission::Count { sketch_bytes, .. } => sketch_bytes as usize,
                _ => 0,
            };
            for cut in &table.shards {
                let Some((entry, head)) = cut.file.as_ref().zip(manifest.row_file_head(number, cut.shard))
                else {
                    continue;
                };
                let file = self.row_file(head, entry);
                let mut reader = file.open()?;
                while let Some(block) = reader.next()? {
                    if let RowBlock::Sketch(bytes) = block
                        && bytes.len() != sketch
                    {
                        let found = bytes.len();
                        let why = format!("its sketch has {found} bytes, but the table's has {sketch}");
                        return Err(CheckpointDirError::damaged(&file.path, why));
                    }
                }
            }
        }
        Ok(())
    }
}
