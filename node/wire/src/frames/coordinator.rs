//! Requests to the coordinator that a scheduler keeps.

frames! {
    /// A request to the coordinator.
    /// The server reads or writes a key of the coordinator, or keeps a lease. Refused with 1, 2, 6, 9.
    73 CoordinateFrame "coordinate" ToServer "`CoordinatorRequestV1`" {}

    /// The answer of the coordinator.
    74 CoordinatedFrame "coordinated" ToWorker "`CoordinatorReplyV1`" {}
}

frame_rows!(CoordinateFrame, CoordinatedFrame);
