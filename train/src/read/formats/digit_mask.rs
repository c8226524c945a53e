//! Finds which bytes of a text are digits, 64 bytes at a time.

use wide::u8x16;

/// Bytes that one mask describes.
pub(crate) const WINDOW: usize = 64;

/// The bytes that are not ASCII digits: bit i stands for byte i.
#[inline(always)]
pub(crate) fn not_digits(text: &[u8; WINDOW]) -> u64 {
    let (parts, _) = text.as_chunks::<16>();
    let digits = parts.iter().rev().fold(0, |mask, &part| {
        // A digit is at most 9 above '0'.
        let above = u8x16::new(part) - u8x16::splat(b'0');
        mask << 16 | u64::from(above.min(u8x16::splat(9)).simd_eq(above).to_bitmask() as u16)
    });
    !digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_each_byte_says(bytes in prop::collection::vec(prop_oneof![any::<u8>(), b'-'..b'>'], WINDOW)) {
            let text: [u8; WINDOW] = bytes.try_into().unwrap();
            let want = (0..WINDOW).fold(0u64, |mask, i| mask | u64::from(!text[i].is_ascii_digit()) << i);
            prop_assert_eq!(not_digits(&text), want);
        }
    }
}
