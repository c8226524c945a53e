//! Which requests may begin. What is beyond a limit is refused at once, so that nothing queues without end.

use crate::error::RequestError;
use crate::limits::{Limits, SMALL_BODY_BYTES};
use crate::scores::Deadline;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in units, because permits are 32 bits.
const UNIT: usize = 1 << 10;

/// The places for requests, for the bytes of their bodies, and for those that compute.
pub struct Admission {
    requests: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    computing: Arc<Semaphore>,
}

/// The places of one request, which it gives back when it is dropped.
pub struct Admitted {
    _request: OwnedSemaphorePermit,
    _body: OwnedSemaphorePermit,
}

impl Admission {
    /// As many places as the limits say.
    pub fn new(limits: &Limits) -> Admission {
        Admission {
            requests: Arc::new(Semaphore::new(limits.requests)),
            bodies: Arc::new(Semaphore::new(limits.bodies_bytes.div_ceil(UNIT))),
            computing: Arc::new(Semaphore::new(limits.threads)),
        }
    }

    /// A place for a request whose body has at most so many bytes.
    ///
    /// # Errors
    /// There is none.
    pub fn enter(&self, body_bytes: usize) -> Result<Admitted, RequestError> {
        let busy = |what| move |_| RequestError::Busy(what);
        let request = self.requests.clone().try_acquire_owned();
        let request = request.map_err(busy("too many requests at once (--requests)"))?;
        let body = self.bodies.clone().try_acquire_many_owned(body_bytes.div_ceil(UNIT) as u32);
        let body = body.map_err(busy("too many bytes of requests at once"))?;
        Ok(Admitted { _request: request, _body: body })
    }

    /// Runs what a request computes: at once if it is small, else when one of the threads has time for it.
    ///
    /// # Errors
    /// Its time ends first, or its own.
    pub async fn compute<T>(
        &self,
        body_bytes: usize,
        deadline: Deadline,
        work: impl FnOnce() -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        if body_bytes <= SMALL_BODY_BYTES {
            return work();
        }
        let turn = tokio::time::timeout(deadline.left(), self.computing.acquire()).await;
        let _turn = turn.map_err(|_| deadline.error())?;
        tokio::task::block_in_place(work)
    }
}
