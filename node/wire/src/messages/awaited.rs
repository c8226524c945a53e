//! The question whether a worker is dead for which another one waits, and its answer. Frozen.

use rkyv::{Archive, Deserialize, Serialize};

/// A worker waits, at some thread, for another one.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct AwaitV1 {
    /// The table's name.
    pub table: String,
    pub rank: u32,
    /// Its pusher and incarnation where the request waits; 0 if it has not joined there.
    pub pusher: u64,
    pub incarnation: u64,
}

/// The deciding thread answers: the worker, if it is dead. Then it is fenced there, unless its group needs every
/// worker.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct AwaitedV1 {
    pub dead: Option<DeadMemberV1>,
}

/// A dead worker of a group. Who waits for it fences it at all threads.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
pub struct DeadMemberV1 {
    pub rank: u32,
    /// Its clock at the deciding thread.
    pub clock: u64,
    /// Its pusher and incarnation; 0 if it has never joined.
    pub pusher: u64,
    pub incarnation: u64,
    /// Milliseconds since its last sign, or since its last progress.
    pub silent_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::control::seal;

    #[test]
    fn golden_bytes() {
        let of = AwaitV1 { table: "t".into(), rank: 2, pusher: 4, incarnation: 5 };
        let mut want = vec![1, 0, 0, 0, 32, 0, 0, 0, b't', 255, 255, 255, 255, 255, 255, 255];
        [2u64, 4, 5].iter().for_each(|word| want.extend(word.to_le_bytes()));
        assert_eq!(seal(&of), want);
        let dead = DeadMemberV1 { rank: 2, clock: 3, pusher: 4, incarnation: 5, silent_ms: 6 };
        let mut want = vec![1, 0, 0, 0, 48, 0, 0, 0];
        [1u64, 2, 3, 4, 5, 6].iter().for_each(|word| want.extend(word.to_le_bytes()));
        assert_eq!(seal(&AwaitedV1 { dead: Some(dead) }), want);
    }
}
