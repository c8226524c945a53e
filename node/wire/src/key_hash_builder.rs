//! The hash function of maps by key: that of shards, so that a key has one hash.

use gannet_core::hash;
use std::hash::{BuildHasherDefault, Hasher};

/// The hash builder of maps by key.
pub type KeyHashBuilder = BuildHasherDefault<KeyHasher>;

/// Hashes keys as shards do.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = hash(self.0 ^ u64::from(byte)));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = hash(key);
    }
}
