//! The wait for the first batch of a worker that goes on in the middle of its share.

use crate::batch::Batch;
use crate::batch::batches::Batches;
use crate::limits::READ_LOOK;

/// The first batch behind those that are only read. It calls `meanwhile` from time to time.
///
/// # Errors
/// Those of `meanwhile`.
pub(crate) fn await_first<E>(
    batches: &mut Batches,
    mut meanwhile: impl FnMut() -> Result<(), E>,
) -> Result<Option<Batch>, E> {
    loop {
        match batches.next_within(READ_LOOK) {
            Ok(first) => return Ok(first),
            Err(_) => meanwhile()?,
        }
    }
}
