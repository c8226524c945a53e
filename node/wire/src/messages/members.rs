//! What a server of a job writes about itself into the coordinator.

use rkyv::{Archive, Deserialize, Serialize};

/// A server of a job: a value in the coordinator that lasts as long as the server's lease.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct ServerV1 {
    /// A random number.
    pub incarnation: u64,
    /// How many places the job has, as the server was told.
    pub places: u32,
    /// The places that it has.
    pub owned: Vec<u32>,
    /// Its backup slots.
    pub slots: Vec<SlotV1>,
}

/// A backup slot of a server.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct SlotV1 {
    /// The server in it, and its incarnation. Empty and 0: none.
    pub addr: String,
    pub incarnation: u64,
    /// Workers wait for it.
    pub joined: bool,
    /// Shards of all tables whose rows it was told, of how many.
    pub filled: u64,
    pub shards: u64,
    /// What it has not acknowledged.
    pub commands: u64,
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::control::seal;

    #[test]
    fn golden_bytes_of_a_server() {
        let slot = SlotV1 {
            addr: "a:1".into(),
            incarnation: 7,
            joined: true,
            filled: 8,
            shards: 9,
            commands: 10,
            bytes: 11,
        };
        let server = ServerV1 { incarnation: 5, places: 3, owned: vec![2], slots: vec![slot] };
        let mut want = vec![1, 0, 0, 0, 96, 0, 0, 0];
        want.extend([2, 0, 0, 0, 0, 0, 0, 0, 97, 58, 49, 255, 255, 255, 255, 255]);
        want.extend([7u64, 1, 8, 9, 10, 11, 5].iter().flat_map(|number| number.to_le_bytes()));
        want.extend([3, 0, 0, 0, 180, 255, 255, 255, 1, 0, 0, 0, 180, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(seal(&server), want);
    }
}
