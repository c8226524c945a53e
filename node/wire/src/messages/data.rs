//! Requests for a job's data.

use crate::messages::job_plan::JobPlan;
use rkyv::{Archive, Deserialize, Serialize};

/// What a data server offers to workers without data.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct OfferV1 {
    pub plan: JobPlan,
    pub reading: String,
}

/// A request for bytes: its payload is four words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataRequest {
    /// `bytes` bytes of a task's text, from its byte `from` on.
    Text { index: u64, from: u64, bytes: usize },
    /// The first bytes of a file.
    Head { file: u32, bytes: usize },
    /// The plan.
    Offer,
}

/// The first word: what is requested.
pub const TEXT: u64 = 0;
pub const HEAD: u64 = 1;
pub const OFFER: u64 = 2;

impl DataRequest {
    pub fn payload(self) -> Vec<u8> {
        let words = match self {
            DataRequest::Text { index, from, bytes } => [TEXT, index, from, bytes as u64],
            DataRequest::Head { file, bytes } => [HEAD, u64::from(file), 0, bytes as u64],
            DataRequest::Offer => [OFFER, 0, 0, 0],
        };
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub fn of(payload: &[u8]) -> Option<DataRequest> {
        let (words, rest) = payload.as_chunks::<8>();
        let words: [u64; 4] = <[[u8; 8]; 4]>::try_from(words).ok()?.map(u64::from_le_bytes);
        let bytes = usize::try_from(words[3]).ok()?;
        match words {
            _ if !rest.is_empty() => None,
            [TEXT, index, from, _] => Some(DataRequest::Text { index, from, bytes }),
            [HEAD, file, 0, _] => Some(DataRequest::Head { file: u32::try_from(file).ok()?, bytes }),
            [OFFER, 0, 0, 0] => Some(DataRequest::Offer),
            _ => None,
        }
    }

    /// Bytes of an answer, at most.
    pub fn bytes(self) -> usize {
        match self {
            DataRequest::Text { bytes, .. } | DataRequest::Head { bytes, .. } => bytes,
            DataRequest::Offer => 0,
        }
    }
}
