//! How fields share a word of a head: one field alone, or two halves of 32 bits.

use gannet_core::Segments;

/// Two u32 in a word, the first in the low half.
#[inline]
pub fn pair_of_words(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The two u32 of a word.
#[inline]
pub fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A field that takes a whole word.
pub trait Whole: Copy {
    fn to_word(self) -> u64;
    /// `None` if the word has bits that the field does not define.
    fn of_word(word: u64) -> Option<Self>;
}

/// A field that takes half a word.
pub trait Half: Copy {
    fn to_half(self) -> u32;
    /// `None` if the half has bits that the field does not define.
    fn of_half(half: u32) -> Option<Self>;
}

/// The fields of one word.
pub trait HeadWord: Copy {
    fn put(self) -> u64;
    fn get(word: u64) -> Option<Self>;
}

impl<A: Whole> HeadWord for (A,) {
    #[inline]
    fn put(self) -> u64 {
        self.0.to_word()
    }

    #[inline]
    fn get(word: u64) -> Option<Self> {
        A::of_word(word).map(|field| (field,))
    }
}

impl<A: Half, B: Half> HeadWord for (A, B) {
    #[inline]
    fn put(self) -> u64 {
        pair_of_words(self.0.to_half(), self.1.to_half())
    }

    #[inline]
    fn get(word: u64) -> Option<Self> {
        let (low, high) = unpair(word);
        Some((A::of_half(low)?, B::of_half(high)?))
    }
}

impl Whole for u64 {
    #[inline]
    fn to_word(self) -> u64 {
        self
    }

    #[inline]
    fn of_word(word: u64) -> Option<u64> {
        Some(word)
    }
}

impl Whole for u32 {
    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self)
    }

    #[inline]
    fn of_word(word: u64) -> Option<u32> {
        u32::try_from(word).ok()
    }
}

impl Whole for u16 {
    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self)
    }

    #[inline]
    fn of_word(word: u64) -> Option<u16> {
        u16::try_from(word).ok()
    }
}

impl Whole for bool {
    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self)
    }

    #[inline]
    fn of_word(word: u64) -> Option<bool> {
        (word <= 1).then_some(word == 1)
    }
}

/// A clock as a word that may say none: the clock + 1, or 0.
#[inline]
pub fn clock_word(clock: Option<u64>) -> u64 {
    clock.map_or(0, |clock| clock.saturating_add(1))
}

/// A clock, or none.
impl Whole for Option<u64> {
    #[inline]
    fn to_word(self) -> u64 {
        clock_word(self)
    }

    #[inline]
    fn of_word(word: u64) -> Option<Option<u64>> {
        Some(word.checked_sub(1))
    }
}

/// One bit a segment; 0 means all of them.
impl Whole for Segments {
    #[inline]
    fn to_word(self) -> u64 {
        if self == Segments::ALL { 0 } else { u64::from(self.bits()) }
    }

    #[inline]
    fn of_word(word: u64) -> Option<Segments> {
        match u8::try_from(word).ok()? {
            0 => Some(Segments::ALL),
            bits => Some(Segments::of_bits(bits)),
        }
    }
}

impl Half for u32 {
    #[inline]
    fn to_half(self) -> u32 {
        self
    }

    #[inline]
    fn of_half(half: u32) -> Option<u32> {
        Some(half)
    }
}

impl Half for bool {
    #[inline]
    fn to_half(self) -> u32 {
        u32::from(self)
    }

    #[inline]
    fn of_half(half: u32) -> Option<bool> {
        (half <= 1).then_some(half == 1)
    }
}
