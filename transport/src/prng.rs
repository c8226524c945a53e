//! splitmix64: random numbers from a seed.

/// A sequence of numbers that a seed determines.
#[derive(Debug, Clone)]
pub struct Prng(u64);

impl Prng {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Prng {
        Prng(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::Prng;

    #[test]
    fn the_reference_stream() {
        // The first numbers of splitmix64 with seed 1234567, as published with the algorithm.
        let mut prng = Prng::new(1_234_567);
        let got: Vec<u64> = (0..3).map(|_| prng.next_u64()).collect();
        assert_eq!(got, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
