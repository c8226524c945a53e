//! Cuts: the steps of a checkpoint, from its coordinator to each server thread.

frames! {
    /// A step of a cut.
    /// The server takes a step of a checkpoint (docs/checkpoint.md). Steps of more than 256 KiB, and long answers, come
    /// in parts. Refused with 1, 3, 9, 15.
    63 CutFrame "cut" ToServer "`CutRequestV1`" {}

    /// The answer to a step of a cut.
    64 CutIsFrame "cut is" ToWorker "`CutReplyV1`" {}
}

frame_rows!(CutFrame, CutIsFrame);
