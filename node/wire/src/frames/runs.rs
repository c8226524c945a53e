//! Incarnations of workers, and runs.

frames! {
    /// Asks for an incarnation above all that are known.
    /// The server hands out an incarnation. Refused with 1, 2, 3, 6, 9, 16.
    55 AllocateFrame "allocate" ToServer "-" {
        W0 "floor": /** The incarnation must be above this number, which is below 2^63. */ floor: u64;
        W1 "look": /** Hand out no number: only answer the highest one that is known. */ look: bool;
    }

    /// The answer to an allocate request.
    56 AllocatedFrame "allocated" ToWorker "-" {
        W0 "incarnation": /** The new one, or the highest that the server knows. */ incarnation: u64;
        W1 "hands out": /** This server hands out incarnations. */ hands_out: bool;
    }

    /// A request about a run.
    /// The server answers for the registry of runs. Refused with 1, 2, 3, 5, 6, 9, 11, 16.
    59 RunFrame "run" ToServer "`RunRequestV1`" {}

    /// The answer to a request about a run.
    60 RunIsFrame "run is" ToWorker "`RunReplyV1`" {}
}

frame_rows!(AllocateFrame, AllocatedFrame, RunFrame, RunIsFrame);
