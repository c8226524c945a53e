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
    bodies: Arc<Semaphore>,
    body: Option<OwnedSemaphorePermit>,
}

impl Admitted {
    /// Makes sure that the request has places for so many bytes.
    ///
    /// # Errors
    /// There are none.
    pub fn hold(&mut self, bytes: usize) -> Result<(), RequestError> {
        let held = self.body.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(UNIT).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        let got = self.bodies.clone().try_acquire_many_owned(more as u32);
        let got = got.map_err(|_| RequestError::Busy("too many bytes of requests at once"))?;
        match &mut self.body {
            Some(body) => body.merge(got),
            None => self.body = Some(got),
        }
        Ok(())
    }
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

    /// A place for a request.
    ///
    /// # Errors
    /// There is none.
    pub fn enter(&self) -> Result<Admitted, RequestError> {
        let request = self.requests.clone().try_acquire_owned();
        let request = request.map_err(|_| RequestError::Busy("too many requests at once (--requests)"))?;
        Ok(Admitted { _request: request, bodies: self.bodies.clone(), body: None })
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
        self.compute_in(body_bytes, deadline, async { work() }).await?
    }

    /// As [`compute`](Self::compute), of a future that computes and does not wait.
    ///
    /// # Errors
    /// Its time ends first.
    pub async fn compute_in<T>(
        &self,
        body_bytes: usize,
        deadline: Deadline,
        work: impl Future<Output = T>,
    ) -> Result<T, RequestError> {
        if body_bytes <= SMALL_BODY_BYTES {
            return Ok(work.await);
        }
        let turn = tokio::time::timeout(deadline.left(), self.computing.acquire()).await;
        let _turn = turn.map_err(|_| deadline.error())?;
        Ok(tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work)))
    }
}
