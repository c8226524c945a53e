//! Keeping workers in step: clocks, waits and fences.

frames! {
    /// A worker joins those that keep step over a table.
    /// The server adds the worker to those that keep step over the table. Refused with 1, 2, 3, 5, 9, 11.
    27 JoinFrame "join" ToServer "`JoinV1`" {
        W0 "table": table: u32;
    }

    /// The answer to a join.
    28 JoinedFrame "joined" ToWorker "`JoinedV1`" {}

    /// All pushes of steps below this clock have been sent on this session.
    /// The server notes that all pushes of steps below the clock have been sent. Refused with 1, 2, 5.
    29 TickFrame "tick" ToServer "-" {
        W0 "table": table: u32;
        W1 "clock": clock: u64;
        W2 "skip": /** The worker pushed nothing for the steps that it passes over. */ skip: bool;
    }

    /// The answer to a tick.
    30 TickedFrame "ticked" ToWorker "-" {
        W0 "table": table: u32;
        W1 "clock": clock: u64;
        W2 "left": /** The workers that have left: one bit for each of the first 64. */ left: u64;
    }

    /// Not an answer: names the worker that the request with this id waits for.
    31 WaitsFrame "waits" ToWorker "`WaitsV2`" {}

    /// Ends an incarnation of a worker and all older ones.
    /// The server refuses an incarnation of a worker, and older ones, from now on. Refused with 2, 9, 11.
    33 FenceFrame "fence" ToServer "-" {
        W0 "table; index": table: u32, index: u32;
        W1 "pusher": pusher: u64;
        W2 "incarnation": /** Of the worker. 0: a worker that has never come. */ incarnation: u64;
    }

    /// The answer to a fence.
    34 FencedFrame "fenced" ToWorker "-" {
        W0 "table; index": table: u32, index: u32;
    }

    /// The worker is done.
    /// The server stops waiting for the worker. Refused with 2, 5.
    35 LeaveFrame "leave" ToServer "-" {
        W0 "table": table: u32;
    }

    /// The answer to a leave.
    36 LeftFrame "left" ToWorker "-" {
        W0 "table": table: u32;
    }

    /// A request of this worker waits, at any thread of any server, for another worker: asks whether that one is dead.
    /// The server answers whether a worker is dead, and fences a dead one. Refused with 1, 2, 9, 11.
    75 AwaitFrame "await" ToServer "`AwaitV1`" {}

    /// The answer to an await.
    76 AwaitedFrame "awaited" ToWorker "`AwaitedV1`" {}
}

frame_rows!(
    JoinFrame,
    JoinedFrame,
    TickFrame,
    TickedFrame,
    WaitsFrame,
    FenceFrame,
    FencedFrame,
    LeaveFrame,
    LeftFrame,
    AwaitFrame,
    AwaitedFrame,
);
