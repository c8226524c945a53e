//! Opening, describing and dropping tables.

frames! {
    /// A worker opens a table on a thread.
    /// The server opens the table on this thread, or makes its shards. Refused with 1, 3, 5, 9, 10, 14, 16.
    3 OpenTableFrame "open table" ToServer "`OpenTableV2`" {}

    /// The answer: the table's number on this thread, and its shards.
    4 TableOpenedFrame "table opened" ToWorker "`TableOpenedV4`" {}

    /// Asks for a table's sizes and pushers.
    /// The server answers the sizes of this thread's part of a table, and its pushers. Refused with 2.
    11 StatusFrame "status" ToServer "-" {
        W0 "table": table: u32;
    }

    /// The answer to a status request.
    12 StatusIsFrame "status is" ToWorker "`StatusV2`" {}

    /// Nobody pushes under this name any more. Pusher 0 means the session's own worker.
    /// The server marks the pusher as finished; its entry may be used again. Refused with 2, 5, 11.
    13 ClosePusherFrame "close pusher" ToServer "-" {
        W0 "table": table: u32;
        W1 "pusher": pusher: u64;
        W2 "incarnation": incarnation: u64;
    }

    /// The answer to a close pusher request.
    14 PusherClosedFrame "pusher closed" ToWorker "-" {}

    /// Asks which table of a name a server has.
    /// The server answers what this server holds of a table. Refused with 1, 3, 10, 16.
    51 IdentifyFrame "identify" ToServer "`IdentifyV2`" {}

    /// The answer to an identify request.
    52 IdentityFrame "identity" ToWorker "`IdentityV1`" {}

    /// All servers of a table have created their shards.
    /// The server notes that all servers have made their shards of the table. Refused with 1, 14.
    53 ConfirmFrame "confirm" ToServer "`ConfirmV2`" {}

    /// The answer to a confirm request.
    54 ConfirmedFrame "confirmed" ToWorker "-" {}

    /// Deletes a table.
    /// The server removes the table's rows from this thread. Refused with 1, 6, 11.
    61 DropTableFrame "drop table" ToServer "`DropTableV1`" {}

    /// The answer to a drop table request.
    62 TableDroppedFrame "table dropped" ToWorker "-" {}

    /// Asks to forget clients without an index that have had no session for a minute.
    /// The server forgets some of them in each table of this thread. Refused with 1, 3, 11.
    77 ForgetClientsFrame "forget clients" ToServer "-" {}

    /// The answer to a forget clients request.
    78 ClientsForgottenFrame "clients forgotten" ToWorker "-" {
        W0 "clients; pushers": /** Forgotten in the table that had the most. */ clients: u32, /** That the fullest shard still remembers. */ pushers: u32;
    }
}

frame_rows!(
    OpenTableFrame,
    TableOpenedFrame,
    StatusFrame,
    StatusIsFrame,
    ClosePusherFrame,
    PusherClosedFrame,
    IdentifyFrame,
    IdentityFrame,
    ConfirmFrame,
    ConfirmedFrame,
    DropTableFrame,
    TableDroppedFrame,
    ForgetClientsFrame,
    ClientsForgottenFrame,
);
