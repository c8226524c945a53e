//! Runs the entry points of the fuzz targets on random bytes, where cargo-fuzz is not available. `FUZZ_SEED`
//! sets the seed and `FUZZ_SECONDS` the time (1 by default). `scripts/fuzz.sh` runs the fuzz targets
//! themselves.

use gannet_server::hostile;
use gannet_transport::Prng;
use std::time::{Duration, Instant};

/// Calls `entry` with random bytes of random lengths. Many words are small numbers or all ones, which protocols
/// treat specially.
fn feed(longest: u64, entry: impl Fn(&[u8])) -> u64 {
    let number = |name, default| {
        std::env::var(name)
            .map_or(default, |text| text.parse().expect("FUZZ_SECONDS and FUZZ_SEED are numbers"))
    };
    let (seconds, seed) = (number("FUZZ_SECONDS", 1), number("FUZZ_SEED", 0));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut prng, mut calls) = (Prng::new(0x6675_7A7A ^ seed), 0);
    while Instant::now() < end {
        for _ in 0..100 {
            let mut bytes = Vec::new();
            for _ in 0..prng.below(longest / 4 + 1) {
                let word = match prng.below(4) {
                    0 => prng.next_u64() as u32,
                    1 => u32::MAX - prng.below(100) as u32,
                    _ => prng.below(100) as u32,
                };
                bytes.extend(word.to_le_bytes());
            }
            bytes.truncate(bytes.len() - prng.below(4.min(bytes.len() as u64 + 1)) as usize);
            entry(&bytes);
            calls += 1;
        }
    }
    calls
}

#[test]
fn heads_and_messages_of_any_bytes() {
    assert!(feed(200, hostile::decode) > 100);
}

#[test]
fn greetings_of_any_bytes() {
    assert!(feed(600, hostile::greeting) > 100);
}

#[test]
fn rings_that_their_peer_rewrites() {
    assert!(feed(2000, hostile::rings) >= 100);
}

#[test]
fn sessions_over_any_bytes() {
    assert!(feed(4000, hostile::session) >= 100);
}
