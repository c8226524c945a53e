//! Programs on tables of vectors.

frames! {
    /// Runs a program on the rows of one shard.
    /// The server runs a program on the columns of one shard (docs/lbfgs.md). Refused with 1, 2, 4, 5, 8, 9, 11.
    37 VectorFrame "vector" ToServer "`VectorV1`" {
        W0 "table": table: u32;
    }

    /// The answer: the program's sums.
    38 VectorDoneFrame "vector done" ToWorker "`VectorDoneV1`" {}
}

frame_rows!(VectorFrame, VectorDoneFrame);
