//! Parses numbers at eight bytes a step (SWAR). For every function the buffer must have 16 readable bytes after the
//! number.

/// The eight bytes at `p`, the first in the low bits.
#[inline(always)]
pub(crate) fn load(buf: &[u8], p: usize) -> u64 {
    match buf.get(p..).and_then(|b| b.first_chunk::<8>()) {
        Some(b) => u64::from_le_bytes(*b),
        None => 0,
    }
}

/// How many of the eight bytes, from the first, are ASCII digits.
#[inline(always)]
pub(crate) fn digits(c: u64) -> u32 {
    let t = c ^ 0x3030_3030_3030_3030;
    ((t.wrapping_add(0x7676_7676_7676_7676) | t) & 0x8080_8080_8080_8080).trailing_zeros() >> 3
}

/// The value of the first `n` (1 to 8) digits, by three multiplications: pairs, fours, eight.
#[inline(always)]
pub(crate) fn digits_value(c: u64, n: u32) -> u64 {
    let c = c << (64 - 8 * n); // leading zero bytes count as digits 0
    let c = (c & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(2561) >> 8;
    let c = (c & 0x00ff_00ff_00ff_00ff).wrapping_mul(6_553_601) >> 16;
    (c & 0x0000_ffff_0000_ffff).wrapping_mul(42_949_672_960_001) >> 32
}

/// Why a text is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotANumber {
    /// No digit.
    Missing,
    /// Too large for u64, or NaN or infinite.
    Range,
}

/// Parses the decimal u64 at `p`. Returns it and its end.
#[inline(always)]
pub(crate) fn unsigned(buf: &[u8], p: usize) -> Result<(u64, usize), NotANumber> {
    let c = load(buf, p);
    let n = digits(c);
    if n == 0 {
        return Err(NotANumber::Missing);
    }
    let v = digits_value(c, n);
    if n < 8 { Ok((v, p + n as usize)) } else { long(buf, p + 8, v) }
}

/// Parses the rest of a number of eight digits or more.
#[inline(never)]
fn long(buf: &[u8], p: usize, high: u64) -> Result<(u64, usize), NotANumber> {
    let c = load(buf, p);
    let n = digits(c);
    if n == 0 {
        return Ok((high, p));
    }
    const TEN: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    let mut v = high * TEN[n as usize] + digits_value(c, n); // at most 16 digits: fits
    let mut p = p + n as usize;
    while n == 8
        && let Some(digit) = buf.get(p).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10)
    {
        let next = v.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit)));
        v = next.ok_or(NotANumber::Range)?;
        p += 1;
    }
    Ok((v, p))
}

/// 10^-k in f64. It is exact enough for the fast path: a numerator has at most 7 digits. So the quotient is never
/// nearer to the middle between two f32s than 2^-49 of itself, and the product is off by 2^-52 at most.
pub(crate) static TENTH: [f64; 9] = [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8];

/// Whether a byte ends a token of a line.
#[inline(always)]
pub(crate) fn blank(b: u8) -> bool {
    matches!(b, b' ' | b'\n' | b'\t' | b'\r')
}

/// Parses a finite decimal at `p` that a blank ends. Returns its end and the f32 nearest to the text, as `str::parse`
/// gives it. This function converts `[-]ddd[.ddd]` of up to 7 digits, and std everything else.
#[inline(always)]
pub(crate) fn float(buf: &[u8], p: usize) -> Result<(f32, usize), NotANumber> {
    let c = load(buf, p);
    let negative = c as u8 == b'-';
    let q = p + usize::from(negative);
    let c = if negative { load(buf, q) } else { c };
    let whole = digits(c);
    if whole < 8 {
        let after = (c >> (8 * whole)) as u8;
        if after == b'.' {
            // Without the dot: the digits of both sides in one word, whose byte 7 is 0.
            let low = c & ((1u64 << (8 * whole)) - 1);
            let joined = low | (((c >> (8 * whole)) >> 8) << (8 * whole));
            let all = digits(joined);
            let end = q + all as usize + 1;
            if all > 0 && buf.get(end).is_some_and(|&b| blank(b)) {
                let v = (digits_value(joined, all) as f64 * TENTH[(all - whole) as usize]) as f32;
                return Ok((if negative { -v } else { v }, end));
            }
        } else if whole > 0 && blank(after) {
            let v = digits_value(c, whole) as f32;
            return Ok((if negative { -v } else { v }, q + whole as usize));
        }
    }
    float_by_std(buf, p)
}

/// Parses `[-]d[dd].[ddd]` of at most 7 bytes at the beginning of `c`, ended by a space. Returns the value that
/// [`float`] gives and the number of bytes.
#[inline(always)]
pub(crate) fn short_float(c: u64) -> Option<(f32, u32)> {
    // The whole word gives the end without a loop, so that the next steps need not wait for the value.
    let x = c ^ 0x2020_2020_2020_2020;
    let space = x.wrapping_sub(0x0101_0101_0101_0101) & !x & 0x8080_8080_8080_8080;
    let length = space.trailing_zeros() >> 3;
    let sign = u32::from(c as u8 == b'-');
    let c = c >> (8 * sign);
    let whole = digits(c);
    let low = (1u64 << (8 * (whole & 7))) - 1;
    let joined = (c & low) | ((c >> 8) & !low);
    // The number of digits of both sides of the dot. The space must end them.
    let all = length.wrapping_sub(sign + 1);
    let sound = length < 8 && whole < 8 && (c >> (8 * whole)) as u8 == b'.';
    if !sound || all.wrapping_sub(1) >= 7 || digits(joined) != all {
        return None;
    }
    let v = (digits_value(joined, all) as f64 * TENTH[((all - whole) & 7) as usize]) as f32;
    Some((if sign == 1 { -v } else { v }, length))
}

#[inline(never)]
fn float_by_std(buf: &[u8], p: usize) -> Result<(f32, usize), NotANumber> {
    let rest = buf.get(p..).unwrap_or_default();
    let n = rest.iter().position(|&b| blank(b)).unwrap_or(rest.len());
    parse_float(&rest[..n]).map(|v| (v, p + n))
}

/// Parses `text` as a finite f32.
pub(crate) fn parse_float(text: &[u8]) -> Result<f32, NotANumber> {
    let v: f32 = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or(NotANumber::Missing)?;
    if v.is_finite() { Ok(v) } else { Err(NotANumber::Range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn padded(text: &str) -> Vec<u8> {
        [text.as_bytes(), b" ", &[b'7'; 16]].concat()
    }

    proptest! {
        #[test]
        fn unsigned_is_std(v in prop_oneof![any::<u64>(), 0u64..100_000, any::<u64>().prop_map(|v| v >> 24)]) {
            let text = v.to_string();
            prop_assert_eq!(unsigned(&padded(&text), 0), Ok((v, text.len())));
        }

        #[test]
        fn unsigned_out_of_range(text in "[1-9][0-9]{18,24}") {
            let want = text.parse::<u64>().map(|v| (v, text.len())).map_err(|_| NotANumber::Range);
            prop_assert_eq!(unsigned(&padded(&text), 0), want);
        }

        /// Gives std's result bit for bit, on both paths, for short and long texts.
        #[test]
        fn float_is_std(text in prop_oneof![
            "-?[0-9]{1,4}\\.[0-9]{0,4}", "-?[0-9]{0,3}\\.[0-9]{1,8}", "-?[0-9]{1,12}", "-?[0-9]\\.[0-9]{1,3}e-?[0-9]{1,2}",
            "[-+]?[0-9.e]{0,9}", "[-+a-z]{1,8}"]) {
            let std = text.parse::<f32>().map_err(|_| NotANumber::Missing);
            let want = std.and_then(|v| if v.is_finite() { Ok(v) } else { Err(NotANumber::Range) });
            let got = float(&padded(&text), 0);
            prop_assert_eq!(got.map(|(v, end)| (v.to_bits(), end)), want.map(|v| (v.to_bits(), text.len())));
        }

        /// Gives the result of `float` for the texts that it parses. It parses the most common forms.
        #[test]
        fn short_floats_are_floats(text in prop_oneof!["-?[0-9]{1,3}\\.[0-9]{1,3}", "[-+.0-9e\t\r\n x\x01é]{0,9}"], end in "[ \n\t]") {
            let mut buf = padded(&text);
            buf[text.len()] = end.as_bytes()[0];
            let got = short_float(load(&buf, 0)).map(|(v, n)| (v.to_bits(), n as usize));
            if let Some((_, n)) = got {
                prop_assert_eq!(Ok(got), float(&buf, 0).map(|(v, n)| Some((v.to_bits(), n))));
                prop_assert_eq!(buf[n], b' ');
            } else {
                let plain = text.is_ascii() && text.len() < 8 && end == " " && !text.contains(['+', 'e', 'x', ' ', '\t', '\r', '\n']);
                prop_assert!(!plain || text.matches('.').count() != 1 || float(&buf, 0).is_err());
            }
        }

        #[test]
        fn every_seven_digit_fraction(v in 0u32..10_000_000, point in 0usize..=7, negative: bool) {
            let mut text = format!("{v:07}");
            text.insert(point, '.');
            if negative { text.insert(0, '-'); }
            let (got, _) = float(&padded(&text), 0).unwrap();
            prop_assert_eq!(got.to_bits(), text.parse::<f32>().unwrap().to_bits());
        }
    }

    #[test]
    fn not_numbers() {
        for text in ["", "x", "-", ".", "+", "--1", "1..2", "1.2.3", "1x"] {
            assert_eq!(float(&padded(text), 0), Err(NotANumber::Missing), "{text:?}");
        }
        for text in ["nan", "-inf", "1e39", "infinity"] {
            assert_eq!(float(&padded(text), 0), Err(NotANumber::Range), "{text:?}");
        }
    }
}
