//! A link to the client of a job, and the data that it offers (`--feed`).

use crate::job::connection::WorkerConnection;
use gannet::Transports;
use gannet::job::{DataLink, JobPlan};
use gannet::train::{FileFingerprint, RemoteTexts};

/// A link to the client, and the client's offer.
pub struct DataClient {
    pub link: DataLink<Transports>,
    pub plan: JobPlan,
    pub line: WorkerConnection,
}

impl DataClient {
    /// The client's plan of the job.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    /// The names of the client's files.
    pub fn files(&self) -> Vec<String> {
        self.plan.files.iter().map(|file| file.name.clone()).collect()
    }

    /// The fingerprints of these files, as the client reported them.
    pub fn fingerprints(&self) -> Vec<FileFingerprint> {
        self.plan
            .files
            .iter()
            .map(|file| FileFingerprint::remote(file.bytes, file.print, file.whole))
            .collect()
    }

    /// The connection of this worker. The client knows its incarnation already.
    pub fn line(&self) -> WorkerConnection {
        self.line.clone()
    }

    /// The source of the worker's data.
    pub fn into_texts(self) -> RemoteTexts<Transports> {
        RemoteTexts::new(self.link, self.plan.files)
    }
}
