//! A stream that sends bytes which depend on their position, and checks the bytes that it receives.

use gannet_transport::Prng;
use gannet_transport::Stream;
use gannet_transport::limits::VERBS_RING_BYTES;
use gannet_transport::verbs::VerbsStream;
use std::io::{IoSlice, IoSliceMut};

fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9) >> 9) as u8
}

/// A stream that sends the expected bytes and checks what comes.
pub struct Counting {
    pub stream: VerbsStream,
    pub sent: u64,
    pub got: u64,
    pub scratch: Vec<u8>,
}

impl Counting {
    pub fn new(stream: VerbsStream) -> Counting {
        Counting { stream, sent: 0, got: 0, scratch: vec![0; 3 * VERBS_RING_BYTES] }
    }

    pub fn send(&mut self, prng: &mut Prng, bytes: usize) -> usize {
        let bytes = bytes.min(self.scratch.len());
        for (i, place) in self.scratch[..bytes].iter_mut().enumerate() {
            *place = byte(self.sent + i as u64);
        }
        let cut = prng.below(bytes as u64 + 1) as usize;
        let slices = [IoSlice::new(&self.scratch[..cut]), IoSlice::new(&self.scratch[cut..bytes])];
        let sent = self.stream.send(&slices).unwrap().unwrap_or(0);
        self.sent += sent as u64;
        sent
    }

    pub fn recv(&mut self, prng: &mut Prng, bytes: usize) -> usize {
        let bytes = bytes.min(self.scratch.len());
        let cut = prng.below(bytes as u64 + 1) as usize;
        let (first, second) = self.scratch[..bytes].split_at_mut(cut);
        let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let got = self.stream.recv(&mut slices).unwrap().unwrap_or(0);
        for (i, place) in self.scratch[..got].iter().enumerate() {
            assert_eq!(*place, byte(self.got + i as u64), "byte {}", self.got + i as u64);
        }
        self.got += got as u64;
        got
    }
}
