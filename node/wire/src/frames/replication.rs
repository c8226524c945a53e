//! Replication: what a server tells the servers that keep copies of its shards.

frames! {
    /// Begins copies of shards, which are empty. Copies that have one of these shards end, or when the new ones are
    /// whole.
    /// The server begins empty copies of another server's shards; older ones end. With `keeps` 1, whole ones end only
    /// when the new ones are whole. Without shards: the table was dropped. Refused with 1, 4, 9, 10, 14.
    65 CopyFrame "copy" ToServer "`CopyV1`" {
        W0 "stream": /** A random number for what one connection fills. */ stream: u64;
        W1 "epoch": /** Of the owner's place: an earlier owner does not replace a later one. */ epoch: u64;
        W2 "keeps": /** Whole copies stay until the new ones are whole. */ keeps: bool;
    }

    /// The copies are there.
    66 CopiedFrame "copied" ToWorker "-" {}

    /// Commands for the copies of a stream.
    /// The server applies commands to copies. After a refusal these copies are gone. Refused with 2, 10.
    67 CommandsFrame "commands" ToServer "commands" {
        W0 "stream": /** A random number for what one connection fills. */ stream: u64;
        W1 "number": /** The frame's number in its stream, from 1. */ number: u64;
        W2 "more": /** The last command, or the state, goes on in the next frame. */ more: bool;
    }

    /// The copies have all commands that came whole.
    68 CommandsDoneFrame "commands done" ToWorker "-" {}

    /// Makes the copies of a server's shards their owner.
    /// The server makes the copies of a server's shards their owner. Refused with 10, 14.
    69 PromoteFrame "promote" ToServer "-" {
        W0 "server; servers": /** Whose place is taken. */ server: u32, /** Of how many. */ servers: u32;
        W1 "epoch": /** Of the shards' new history. */ epoch: u64;
    }

    /// They are.
    70 PromotedFrame "promoted" ToWorker "-" {
        W0 "tables": /** Tables of that server that this thread owns now. */ tables: u32;
    }
}

frames! {
    /// Tells a state of the scheduler's server that is not rows.
    /// The server keeps a state of the scheduler's server. After a refusal these states are gone. Refused with 2, 4,
    /// 10, 14.
    71 StateFrame "state" ToServer "a piece of `StateV1`" {
        W0 "stream": /** A random number for what one connection fills. */ stream: u64;
        W1 "number": /** The frame's number in its stream, from 1. */ number: u64;
        W2 "more": /** The last command, or the state, goes on in the next frame. */ more: bool;
        W3 "epoch": /** Of the owner's place: an earlier owner does not replace a later one. */ epoch: u64;
    }

    /// The backup has all states that came whole.
    72 StateDoneFrame "state done" ToWorker "-" {}
}

frame_rows!(
    CopyFrame,
    CopiedFrame,
    CommandsFrame,
    CommandsDoneFrame,
    PromoteFrame,
    PromotedFrame,
    StateFrame,
    StateDoneFrame,
);
