//! The scheduler, and the data that it serves.

use crate::frames::word::Whole;
use crate::limits::FEED_BYTES_MAX;

/// Bytes of one answer with data, at most [`FEED_BYTES_MAX`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DataBytes(pub usize);

impl Whole for DataBytes {
    fn to_word(self) -> u64 {
        self.0 as u64
    }

    fn of_word(word: u64) -> Option<DataBytes> {
        usize::try_from(word).ok().filter(|&bytes| bytes <= FEED_BYTES_MAX).map(DataBytes)
    }
}

frames! {
    /// A request to the scheduler.
    /// The server answers for the scheduler. Refused with 1, 2, 3, 5, 6, 9, 11, 16.
    41 BookFrame "book" ToServer "`SchedulerRequestV3`" {}

    /// The scheduler's answer.
    42 BookedFrame "booked" ToWorker "`SchedulerReplyV1`" {}

    /// A request for training data.
    /// The server answers bytes of the training data. Refused with 1, 2, 3, 5, 9.
    49 FeedFrame "feed" ToServer "feed request" {}

    /// Training data. All fields are 0 in the answer that brings an offer.
    50 FedFrame "fed" ToWorker "bytes of the data, or `OfferV1`" {
        W0 "start": /** The byte of its file at which the text begins. */ start: u64;
        W1 "whole": /** Bytes of the whole text, or of the file. */ whole: u64;
        W2 "bytes": /** Bytes of this answer: fewer than requested only at the end. */ bytes: DataBytes;
        W3 "crc": /** The checksum of these bytes, computed where the file is read. */ crc: u32;
    }

    /// Tells the scheduler which rows a job's table has.
    /// The server compares the table with the one that the job began with. Refused with 1, 2, 3, 5, 6, 9, 16.
    57 JobTableFrame "job table" ToServer "`JobTableV3`" {}

    /// The answer to a job table request.
    58 JobTableNotedFrame "job table noted" ToWorker "-" {}
}

frame_rows!(BookFrame, BookedFrame, FeedFrame, FedFrame, JobTableFrame, JobTableNotedFrame);
