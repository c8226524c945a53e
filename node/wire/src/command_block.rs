//! What a server tells a backup, in blocks.

/// A request to a thread of the backup.
pub enum Block {
    /// Begins copies. `keeps`: whole ones that the backup has stay until the new ones are whole.
    Copy { stream: u64, epoch: u64, keeps: bool, payload: Vec<u8> },
    /// The frame of this number with states of a stream. `more`: the state goes on in the next frame.
    State { stream: u64, number: u64, more: bool, epoch: u64, payload: Vec<u8> },
    /// The frame of this number with commands of a stream. `more`: the last one goes on in the next frame.
    Commands { stream: u64, number: u64, more: bool, words: Vec<u64> },
}

impl Block {
    pub fn bytes(&self) -> usize {
        match self {
            Block::Copy { payload, .. } | Block::State { payload, .. } => payload.len(),
            Block::Commands { words, .. } => words.len() * 8,
        }
    }
}
