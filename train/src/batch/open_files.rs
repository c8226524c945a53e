//! What a reader of splits has open: the file of the last split, here or at a client, or in a folder that grows.

use crate::read::bytes::stream::ReadPosition;
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::growing::text_parts::TextParts;
use crate::read::reader::Reader;
use crate::read::splits::remote_data::{self, FileHeads};
use crate::read::splits::split::{FileFingerprint, GrownSplit, Split};
use crate::read::splits::split_file::SplitFiles;
use gannet_wire::GrownTask;

/// The file of the last split.
#[derive(Default)]
pub(crate) struct OpenFiles {
    pub here: SplitFiles,
    /// At a client that sends data.
    pub remote: FileHeads,
    /// The file of the last split of a growing folder.
    pub grown: Option<(String, FileFingerprint)>,
}

impl OpenFiles {
    /// Opens the lines of a task of a source that grows.
    pub fn grown(
        &mut self,
        data: &Data,
        batch: usize,
        split: &Split,
        position: &ReadPosition,
        grown: &GrownSplit,
    ) -> Result<Option<Reader>, ReadError> {
        let Some(path) = grown.source.path_of(&grown.task) else {
            let parts = TextParts::new(split.start..split.end, batch as u64, split.from);
            let text = grown.source.text(&grown.task, parts, &data.stop).map_err(ReadError::Splits)?;
            let data = Data { files: vec![grown.name()], ..data.clone() };
            return remote_data::parted(&data, position, text);
        };
        if self.grown.as_ref().is_none_or(|(of, _)| *of != path) {
            let file = FileFingerprint::of(&path)?;
            (self.here, self.grown) = (SplitFiles::default(), Some((path.clone(), file)));
        }
        let Some((_, file)) = &self.grown else { return Ok(None) };
        file.check(&path)?;
        if let GrownTask::Lines { file: found, .. } = &grown.task
            && (found.bytes, found.print) != (file.bytes, file.print)
        {
            return Err(ReadError::Changed { file: path, before: found.bytes, now: file.bytes });
        }
        let (packed, data) = (file.packed, Data { files: vec![path], ..data.clone() });
        Reader::of_split(&data, batch, split, packed, position, &mut self.here)
    }
}
