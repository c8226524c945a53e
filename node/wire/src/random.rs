//! Random bytes from the system. In a simulation they come from its seed, so that a seed always runs in the same way.

use ring::rand::{SecureRandom, SystemRandom};

#[cfg(any(test, feature = "test-support"))]
pub use seeded::{SeededRandomness, seed_randomness};

/// So many bytes are drawn at once.
pub const DRAWN_BYTES: usize = 32;

/// 32 unpredictable bytes. `None`: the system has none.
pub fn draw() -> Option<[u8; DRAWN_BYTES]> {
    #[cfg(any(test, feature = "test-support"))]
    if let Some(bytes) = seeded::draw() {
        return Some(bytes);
    }
    let mut bytes = [0; DRAWN_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

/// An unpredictable number above 0. `None`: the system has no random bytes.
pub fn draw_number() -> Option<u64> {
    let bytes = draw()?;
    let (first, _) = bytes.split_first_chunk::<8>()?;
    Some(u64::from_le_bytes(*first).max(1))
}

#[cfg(any(test, feature = "test-support"))]
mod seeded {
    use super::DRAWN_BYTES;
    use gannet_transport::Prng;
    use std::cell::RefCell;

    thread_local! {
        static PRNG: RefCell<Option<Prng>> = const { RefCell::new(None) };
    }

    pub fn draw() -> Option<[u8; DRAWN_BYTES]> {
        PRNG.with_borrow_mut(|prng| {
            let prng = prng.as_mut()?;
            let mut bytes = [0; DRAWN_BYTES];
            bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&prng.next_u64().to_le_bytes()));
            Some(bytes)
        })
    }

    /// What this thread draws comes from `seed` until the returned guard is dropped. For simulations, in which all
    /// processes of a job are on one thread.
    pub fn seed_randomness(seed: u64) -> SeededRandomness {
        PRNG.set(Some(Prng::new(seed ^ 0x5EED)));
        SeededRandomness
    }

    /// Until it is dropped, its thread draws from a seed.
    #[must_use = "numbers come from the seed until it is dropped"]
    #[derive(Debug)]
    pub struct SeededRandomness;

    impl Drop for SeededRandomness {
        fn drop(&mut self) {
            PRNG.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_differs_unless_it_comes_from_one_seed() {
        assert_ne!(draw(), draw());
        let of_seed = |seed| {
            let _seeded = seed_randomness(seed);
            (draw(), draw_number())
        };
        assert_eq!(of_seed(7), of_seed(7));
        assert_ne!(of_seed(7), of_seed(8));
        assert_ne!(draw(), of_seed(7).0);
    }
}
