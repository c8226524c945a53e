//! Cuts: the steps of a checkpoint, from its coordinator to each server thread.

frames! {
    /// A step of a cut.
    63 CutFrame "cut" ToServer "`CutRequestV1`" {}

    /// The answer to a step of a cut.
    64 CutIsFrame "cut is" ToWorker "`CutReplyV1`" {}
}

frame_rows!(CutFrame, CutIsFrame);
