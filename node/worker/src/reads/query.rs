//! A read path that is being requested, and the answers so far: images, or registrations for READs.

use crate::reads::rdma_reads::RdmaTable;
use gannet_core::ShardSet;
use gannet_transport::{Head, Stream};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::read_paths::{ImagesFrame, RegionsAreFrame, RegionsFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::limits::{IMAGES_PER_REQUEST, REGIONS_PER_REQUEST};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{ImagesV1, RegionsV1};
use std::fs::File;

/// A table whose read path is being requested.
pub(crate) struct ReadPathQuery {
    pub(crate) table: usize,
    pub(crate) shards: ShardSet,
    pub(crate) replies: ReadPathReplies,
}

/// The answers so far.
pub(crate) enum ReadPathReplies {
    Images(Vec<(File, u64)>),
    Regions(Box<RdmaTable>),
}

impl ReadPathReplies {
    /// Number of shards in the answers so far.
    pub(crate) fn shards(&self) -> usize {
        match self {
            ReadPathReplies::Images(files) => files.len(),
            ReadPathReplies::Regions(rdma) => rdma.known(),
        }
    }

    /// The request for at most `left` more shards of the thread, from the `first`-th on. `software`: also if a
    /// processor does the READs.
    pub(crate) fn request(&self, first: u32, left: u32, software: bool) -> UnsentFrame {
        match self {
            ReadPathReplies::Images(_) => {
                UnsentFrame::new(&ImagesFrame { table: 0, first, shards: left.min(IMAGES_PER_REQUEST) })
            }
            ReadPathReplies::Regions(_) => {
                let shards = left.min(REGIONS_PER_REQUEST);
                UnsentFrame::new(&RegionsFrame { table: 0, first, shards, software })
            }
        }
    }

    /// Adds an answer. The error says what is wrong with it.
    pub(crate) fn add(&mut self, head: &Head, answer: &[u8], stream: &mut impl Stream) -> Result<(), String> {
        match self {
            ReadPathReplies::Images(files) => {
                let ImagesV1 { incarnations } = control::open(answer).map_err(|error| error.to_string())?;
                for incarnation in incarnations {
                    let fd = stream.take_given();
                    let fd = fd.map_err(|error| format!("an image cannot be received: {error}"))?;
                    let file = fd.ok_or("an image was announced, but its file did not come")?;
                    files.push((File::from(file), incarnation));
                }
            }
            ReadPathReplies::Regions(rdma) => {
                let regions = control::open::<RegionsV1>(answer).map_err(|error| error.to_string())?;
                let answer = RegionsAreFrame::decode(head).map_err(|error| error.to_string())?;
                rdma.add(&regions, answer.whole_lines);
            }
        }
        Ok(())
    }
}
