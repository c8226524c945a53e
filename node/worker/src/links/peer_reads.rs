//! Rows of one peer that the worker reads without a request.

use crate::error::WorkerError;
use crate::links::peer::Peer;
use crate::reads::one_sided::{ReadPath, known_since};
use crate::reads::spec::PullSpec;
use crate::requests::in_flight::LocalHits;
use gannet_transport::{LinkError, Stream};
use std::time::Duration;

impl<S: Stream> Peer<S> {
    /// Reads what it can of a chunk's rows. `None`: it can read none now.
    pub(crate) fn read_one_sided(
        &mut self,
        keys: &[u64],
        spec: &PullSpec,
        values: &mut [f32],
        now: Duration,
        timeout: Duration,
    ) -> Result<Option<Box<LocalHits>>, WorkerError> {
        let Peer { link: Some(link), near, .. } = self else { return Ok(None) };
        let &PullSpec { table, read, segments, .. } = spec;
        let (slots, lowest, with_slots) = match near.fresh(table, now) {
            None => return Ok(None),
            Some(ReadPath::Images(images)) => {
                // Read before the rows, so they include all pushes below that clock.
                let lowest = images.lowest();
                if lowest < spec.least {
                    return Ok(None);
                }
                let (mut slots, lowest) = (Vec::with_capacity(keys.len()), known_since(lowest));
                match images.pull(keys, read, segments, values, &mut slots) {
                    // All rows were found, and no own push is in flight.
                    Ok(0) if !near.own_pushes.any() => {
                        let slots = if spec.keep { slots } else { Vec::new() };
                        return Ok(Some(Box::new(LocalHits { slots, lowest, ..LocalHits::default() })));
                    }
                    Ok(_) => (slots, lowest, false),
                    Err(_) => return Ok(None),
                }
            }
            Some(ReadPath::Rdma(rdma)) => {
                let peer = link.peer().clone();
                let Some(reader) = link.stream_mut().reader() else { return Ok(None) };
                let slots = rdma.read(reader, keys, spec, values, timeout);
                let lowest = known_since(rdma.lowest);
                (slots.map_err(|source| LinkError::Io { peer, source })?, lowest, true)
            }
        };
        let mut part = near.left_to_ask(keys, slots, spec, with_slots);
        part.lowest = lowest;
        Ok(Some(part))
    }
}
