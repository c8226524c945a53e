//! Cuts: the steps of a checkpoint, from its coordinator to each server thread.

frames! {
    /// A step of a cut.
    /// The server takes a step of a checkpoint (docs/checkpoint.md). Steps of more than 256 KiB, and long answers, come
    /// in parts. Refused with 1, 3, 9, 15.
    63 CutFrame "cut" ToServer "`CutRequestV1`" {}

    /// The answer to a step of a cut.
    64 CutIsFrame "cut is" ToWorker "`CutReplyV1`" {}

    /// Asks for the next rows of a follower's cut.
    /// The server reads a block of the cut that this session has marked. Refused with 1, 15.
    79 ReadCutFrame "read cut" ToServer "-" {
        W0 "cut": cut: u64;
    }

    /// A block of a follower's cut: rows of a shard, or keys whose rows were deleted.
    80 CutRowsFrame "cut rows" ToWorker "keys u64, then floats f32" {
        W0 "rows; floats": rows: u32, floats: u32;
        W1 "table; shard": /** The table's place in the mark. */ table: u32, shard: u32;
        W2 "deleted 1, last 2": flags: u64;
    }
}

impl CutRowsFrame {
    /// The keys have no rows any more; there are no floats.
    pub const DELETED: u64 = 1;
    /// This thread has no further block of the cut.
    pub const LAST: u64 = 2;
}

frame_rows!(CutFrame, CutIsFrame, ReadCutFrame, CutRowsFrame);
