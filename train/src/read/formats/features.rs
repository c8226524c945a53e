//! Parses runs of features `id:value` of libsvm text, a window of 64 bytes at a time. One mask says which bytes are not
//! digits. So the ends of all ids and values are known before any of them is parsed, and no feature waits for the one
//! before it. This is the fast path of [`example`](crate::read::formats::libsvm::example), which parses what stops it.

use crate::read::block::Block;
use crate::read::formats::digit_mask::{WINDOW, not_digits};
use crate::read::formats::number::{TENTH, digits_value};

/// Readable bytes that a window needs: eight-byte loads begin in it.
const READABLE: usize = WINDOW + 16;
/// Features of a window that are parsed. Nearly every window has so many, so the number is easy to predict.
const FEATURES: usize = 4;
/// By how many features a block grows at a time while a line is parsed.
const SPACE: usize = 64;

/// Whether the ids of an example ascend so far. Ascending ids, as in most files, cannot repeat.
#[derive(Clone, Copy)]
pub(crate) struct IdOrder {
    least: u64,
    pub ascending: bool,
}

impl IdOrder {
    /// No ids yet.
    pub fn new() -> IdOrder {
        IdOrder { least: 0, ascending: true }
    }

    /// Adds the next id. It must be less than [`u64::MAX`].
    #[inline(always)]
    pub fn add(&mut self, id: u64) {
        self.ascending &= id >= self.least;
        self.least = id + 1;
    }
}

/// Appends features of the common form from `p`: an id of at most 8 digits, and a value of at most 7 digits, if any,
/// that may have a sign `-` and a point. A space or a newline ends each. Returns the position after the last feature
/// and its space, but before its newline.
#[inline(always)]
pub(crate) fn features(buf: &[u8], mut p: usize, order: &mut IdOrder, block: &mut Block) -> usize {
    let (keys, values) = (&mut block.keys, &mut block.values);
    let mut end = keys.len();
    loop {
        if keys.len() < end + FEATURES {
            keys.resize(end + SPACE, 0);
            values.resize(end + SPACE, 0.0);
        }
        let Some((found, length)) = window(buf, p, order, &mut keys[end..], &mut values[end..]) else {
            break;
        };
        (p, end) = (p + length, end + found);
        if found < FEATURES && buf.get(p) == Some(&b'\n') {
            break;
        }
    }
    keys.truncate(end);
    values.truncate(end);
    p
}

/// Parses up to four features of the window at `p`. Returns their number and the length of their text.
/// `None`: there is none.
#[inline(always)]
fn window(
    buf: &[u8],
    p: usize,
    order: &mut IdOrder,
    keys: &mut [u64],
    values: &mut [f32],
) -> Option<(usize, usize)> {
    let text: &[u8; READABLE] = buf.get(p..)?.first_chunk()?;
    let keys: &mut [u64; FEATURES] = keys.first_chunk_mut()?;
    let values: &mut [f32; FEATURES] = values.first_chunk_mut()?;
    let mut others = not_digits(text.first_chunk()?);
    let mut at = 0;
    for found in 0..FEATURES {
        let Some((value, end, rest)) = value(text, others) else { return (found > 0).then_some((found, at)) };
        let digits = others.trailing_zeros().wrapping_sub(at as u32);
        if digits.wrapping_sub(1) >= 8 {
            return (found > 0).then_some((found, at));
        }
        let id = digits_value(word(text, at), digits);
        order.add(id);
        (keys[found], values[found]) = (id, value);
        if text[end % WINDOW] == b'\n' {
            return Some((found + 1, end));
        }
        (at, others) = (end + 1, rest);
    }
    Some((FEATURES, at))
}

/// The eight bytes at a place of the window.
#[inline(always)]
fn word(text: &[u8; READABLE], at: usize) -> u64 {
    text[at % WINDOW..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The lowest bit of a mask, and the mask without it. `None` when it is empty.
#[inline(always)]
fn take(mask: u64) -> Option<(usize, u64)> {
    (mask != 0).then(|| (mask.trailing_zeros() as usize, mask & mask.wrapping_sub(1)))
}

/// The value of the feature whose id ends at the first byte in `others`, the end of the value, and the bytes after it
/// that are not digits. `None` when the value has another form or does not end in the window.
#[inline(always)]
fn value(text: &[u8; READABLE], others: u64) -> Option<(f32, usize, u64)> {
    const ONE: u64 = u64::from_le_bytes(*b":1 \0\0\0\0\0");
    let (colon, rest) = take(others)?;
    let after = word(text, colon);
    if after & 0xff_ffff == ONE {
        let (end, rest) = take(rest)?;
        return Some((1.0, end, rest));
    }
    match after as u8 {
        b':' => {}
        b' ' | b'\n' => return Some((1.0, colon, rest)),
        _ => return None,
    }
    let from = colon + 1;
    let (stop, rest) = take(rest)?;
    if text[stop % WINDOW] == b'-' && stop == from {
        let (stop, rest) = take(rest)?;
        let (value, end, rest) = unsigned_value(text, from + 1, stop, rest)?;
        return Some((-value, end, rest));
    }
    unsigned_value(text, from, stop, rest)
}

/// The value at `from`, whose first byte that is not a digit is at `stop`. See [`value`].
#[inline(always)]
fn unsigned_value(text: &[u8; READABLE], from: usize, stop: usize, rest: u64) -> Option<(f32, usize, u64)> {
    let digits = word(text, from);
    let whole = stop - from;
    if text[stop % WINDOW] == b'.' {
        let (end, rest) = take(rest)?;
        let all = end - from - 1;
        if all.wrapping_sub(1) >= 7 || !matches!(text[end % WINDOW], b' ' | b'\n') {
            return None;
        }
        // Without the point: the digits of both sides in one word.
        let low = (1u64 << (8 * (whole % 8))) - 1;
        let joined = (digits & low) | ((digits >> 8) & !low);
        let value = digits_value(joined, all as u32) as f64 * TENTH[(end - stop - 1) % 8];
        return Some((value as f32, end, rest));
    }
    let sound = whole.wrapping_sub(1) < 7 && matches!(text[stop % WINDOW], b' ' | b'\n');
    sound.then(|| (digits_value(digits, whole as u32) as f32, stop, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses the features of a text with std, one by one.
    fn by_std(text: &str) -> Vec<(u64, u32)> {
        let one = |token: &str| {
            let (id, value) = token.split_once(':').unwrap_or((token, "1"));
            (id.parse().unwrap(), value.parse::<f32>().unwrap().to_bits())
        };
        text.split(' ').filter(|token| !token.is_empty()).map(one).collect()
    }

    /// What [`features`] appends, whether the ids ascend, and the position where it stops.
    fn read(line: &str) -> (Vec<(u64, u32)>, bool, usize) {
        let buf = [line.as_bytes(), &[b'7'; READABLE]].concat();
        let (mut order, mut block) = (IdOrder::new(), Block::default());
        let end = features(&buf, 0, &mut order, &mut block);
        let found = block.keys.iter().zip(&block.values).map(|(&key, value)| (key, value.to_bits()));
        (found.collect(), order.ascending, end)
    }

    proptest! {
        /// A line of features of the common form is read to its newline.
        #[test]
        fn common_features(tokens in prop::collection::vec(prop_oneof![
            "[0-9]{1,8}:1", "[0-9]{1,8}", "[0-9]{1,8}:-?[0-9]{1,7}", "[0-9]{1,8}:-?[0-9]{0,3}\\.[0-9]{1,4}",
            "[0-9]{1,8}:-?[0-9]{1,7}\\."], 1..40)) {
            let line = tokens.join(" ");
            let (found, ascending, end) = read(&format!("{line}\n1 5:1 "));
            prop_assert_eq!(end, line.len());
            prop_assert_eq!(ascending, found.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert_eq!(found, by_std(&line));
        }

        /// All text before the end is features, whatever stops the reading.
        #[test]
        fn other_text(tokens in prop::collection::vec(prop_oneof![
            2 => "[0-9]{1,8}:-?[0-9]{0,3}\\.[0-9]{1,4}", 1 => "[-+0-9:.e#x\t\r]{0,12}", 1 => "[0-9]{1,20}:-?[0-9.]{1,12}"],
            1..12)) {
            let line = tokens.join(" ");
            let (found, _, end) = read(&format!("{line}\n"));
            prop_assert_eq!(found, by_std(&line[..end.min(line.len())]));
        }
    }
}
