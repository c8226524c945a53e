//! A checkpoint of a job, with the checkpoints that it needs.

use gannet_core::{CheckpointDir, CheckpointDirError, JobManifest, Schema, mix};
use std::path::{Path, PathBuf};

/// A checkpoint of a job.
pub struct JobCheckpoint {
    directory: CheckpointDir,
    /// The oldest first. There is one at least.
    chain: Vec<JobManifest>,
}

impl JobCheckpoint {
    /// The checkpoint with this number, or the newest one that can be used. `None`: there is none.
    ///
    /// # Errors
    /// The directory cannot be read, or the checkpoint with the number is damaged or incomplete.
    pub fn open(
        directory: CheckpointDir,
        number: Option<u64>,
    ) -> Result<Option<JobCheckpoint>, CheckpointDirError> {
        let chain = match number {
            Some(number) => directory.chain(number).map(Some),
            None => directory.newest_chain(),
        };
        let chain = chain?.filter(|chain| !chain.is_empty());
        Ok(chain.map(|chain| JobCheckpoint { directory, chain }))
    }

    /// What the job says about the checkpoint.
    pub fn manifest(&self) -> &JobManifest {
        self.chain.last().expect("a chain has the checkpoint itself")
    }

    /// Tells the checkpoint apart from any other. A copy has the digest of the original.
    pub fn digest(&self) -> u64 {
        let bytes = self.chain.iter().flat_map(JobManifest::encode);
        bytes.fold(0, |digest, byte| mix(digest ^ u64::from(byte)))
    }

    /// Its folder, for messages.
    pub fn folder(&self) -> PathBuf {
        self.directory.folder(self.manifest().number)
    }

    /// The schema of the job's table that a training calls `table`. Its name there has that of the run in front.
    ///
    /// # Errors
    /// The checkpoint has no such table, or several: in words.
    pub fn table(&self, table: &str) -> Result<&Schema, String> {
        let schemas: Vec<&Schema> = self.manifest().tables.iter().map(|of| &of.schema).collect();
        own_table(&schemas, table, &self.folder()).map(|at| schemas[at])
    }

    /// Passes on all rows of the table with this schema: keys, and [`Schema::floats`] floats for each.
    ///
    /// # Errors
    /// A file is missing or damaged. Rows were passed on before it was found, perhaps.
    pub fn rows(
        &self,
        schema: &Schema,
        mut rows: impl FnMut(&[u64], &[f32]),
    ) -> Result<(), CheckpointDirError> {
        (0..schema.shards)
            .try_for_each(|shard| self.directory.shard_rows(&self.chain, &schema.name, shard, &mut rows))
    }
}

/// The place of the table among a job's that a training calls `table`. Its name there has that of the run in front.
///
/// # Errors
/// There is no such table, or several: in words.
pub(super) fn own_table(schemas: &[&Schema], table: &str, place: &Path) -> Result<usize, String> {
    let is_own = |name: &str| name == table || name.strip_suffix(table).is_some_and(|run| run.ends_with('.'));
    let found: Vec<usize> = (0..schemas.len()).filter(|&at| is_own(&schemas[at].name)).collect();
    if let [one] = found[..] {
        return Ok(one);
    }
    let how = if found.is_empty() { "no table" } else { "several tables" };
    let names = schemas.iter().map(|schema| schema.name.as_str()).filter(|name| !name.is_empty());
    let all = names.collect::<Vec<_>>().join(", ");
    Err(format!(
        "{} has {how} {table:?} of this model; it has {all}; name one run of the same --model",
        place.display()
    ))
}
