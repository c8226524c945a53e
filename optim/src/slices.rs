//! What is the same for every rule: adding a change of state, and looking for values that are not finite.

/// Replay: adds a change of state to a row, plane by plane. Both are `planes * dim` floats.
///
/// # Panics
/// When the lengths differ; nothing has been changed then.
#[inline(always)]
pub fn add_change(row: &mut [f32], change: &[f32]) {
    assert_eq!(row.len(), change.len());
    for (v, c) in row.iter_mut().zip(change) {
        *v += c;
    }
}

/// Whether no value is NaN or infinite. Reads all of them: a row is short, and a branch per value would
/// keep the loop from being vectorised.
#[inline(always)]
pub fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    const LOWEST: u32 = 0x0080_0000;
    // An exponent of all ones, and no other, carries into the sign's place.
    let carried = values.iter().fold(0, |any, v| any | ((v.to_bits() & EXPONENT) + LOWEST));
    carried >> 31 == 0
}
