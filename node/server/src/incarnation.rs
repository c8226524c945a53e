//! The number of this incarnation of a server.

use crate::error::ServerError;
use gannet_wire::random;

/// Draws the number of this incarnation of the server. Workers use it to tell whether rows in their caches can still be
/// compared, so no other incarnation may have it. The number is random, because a clock could be set back.
pub(crate) fn new_incarnation() -> Result<u64, ServerError> {
    let drawn = random::draw_number();
    let drawn = drawn.ok_or_else(|| std::io::Error::other("the system gives no random numbers"));
    drawn.map_err(|source| ServerError::Incarnation { source })
}
