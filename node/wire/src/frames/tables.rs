//! Opening, describing and dropping tables.

use gannet_core::{Capacity, Eviction};
use std::time::Duration;

frames! {
    /// A worker opens a table on a thread. The words say which of its rows may die; all 0: they do not say it.
    /// The server opens the table on this thread, or makes its shards. Refused with 1, 3, 5, 9, 10, 14, 16.
    3 OpenTableFrame "open table" ToServer "`OpenTableV2`" {
        W0 "norm as f32; in bytes": /** Rows with a smaller norm die; 0: none. */ below: u32, /** 1: the capacity is in bytes; 0: in rows. */ in_bytes: u32;
        W1 "age in ms": /** Rows die when they were not pushed for so long; 0: never. */ after_ms: u64;
        W2 "capacity": /** Rows or bytes; 0: any. */ capacity: u64;
        W3 "floor": /** Rows that age and norm leave. */ floor: u64;
    }

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

impl OpenTableFrame {
    /// A request that says which rows may die.
    pub fn evicting(eviction: Option<&Eviction>) -> OpenTableFrame {
        let Some(&Eviction { after, below, capacity, floor }) = eviction else {
            return OpenTableFrame::default();
        };
        let (capacity, in_bytes) = match capacity {
            None => (0, 0),
            Some(Capacity::Rows(rows)) => (rows, 0),
            Some(Capacity::Bytes(bytes)) => (bytes, 1),
        };
        let after_ms = after.map_or(0, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        OpenTableFrame { below: below.map_or(0, f32::to_bits), in_bytes, after_ms, capacity, floor }
    }

    /// What the request says of rows that may die. `None`: nothing.
    pub fn eviction(&self) -> Option<Eviction> {
        let OpenTableFrame { below, in_bytes, after_ms, capacity, floor } = *self;
        let eviction = Eviction {
            after: (after_ms > 0).then_some(Duration::from_millis(after_ms)),
            below: (below != 0).then_some(f32::from_bits(below)),
            capacity: match (capacity, in_bytes) {
                (0, _) => None,
                (rows, 0) => Some(Capacity::Rows(rows)),
                (bytes, _) => Some(Capacity::Bytes(bytes)),
            },
            floor,
        };
        (eviction != Eviction::default()).then_some(eviction)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::declare::FrameKind;

    #[test]
    fn what_may_die_comes_through_a_head() {
        let (after, below) = (Some(Duration::from_millis(1500)), Some(0.25));
        let rows = Eviction { after, below, capacity: Some(Capacity::Rows(7)), floor: 5 };
        let head = OpenTableFrame::evicting(Some(&rows)).encode(3);
        assert_eq!(head.words, [u64::from(0.25f32.to_bits()), 1500, 7, 5]);
        assert_eq!(OpenTableFrame::decode(&head).unwrap().eviction(), Some(rows));
        let bytes = Eviction { capacity: Some(Capacity::Bytes(1 << 40)), ..Eviction::default() };
        let head = OpenTableFrame::evicting(Some(&bytes)).encode(3);
        assert_eq!(head.words, [1 << 32, 0, 1 << 40, 0]);
        assert_eq!(OpenTableFrame::decode(&head).unwrap().eviction(), Some(bytes));
        assert_eq!(OpenTableFrame::evicting(None).encode(3).words, [0; 4]);
        assert_eq!(OpenTableFrame::default().eviction(), None);
    }
}
