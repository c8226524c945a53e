//! Work requests: messages, receives and READs, posted to the device in chains with one doorbell each. This is
//! hot code.
#![allow(unsafe_code)]

use crate::remote::ReadRequest;
use crate::verbs::ffi;
use crate::verbs::resources::cm::QueuePair;
use crate::verbs::resources::objects::checked;
use crate::verbs::window::Message;
use std::io;
use std::ptr::null_mut;

/// The most work requests in one call to the device.
const CHAIN: usize = 64;

/// Registered memory of this side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local {
    pub(crate) addr: usize,
    pub(crate) key: u32,
}

/// Registered memory of the peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RemoteRing {
    pub(crate) addr: u64,
    pub(crate) key: u32,
}

fn empty() -> (ffi::ibv_send_wr, ffi::ibv_sge) {
    // SAFETY: C structs of numbers and pointers, of which null is one.
    unsafe { (std::mem::zeroed(), std::mem::zeroed()) }
}

impl QueuePair {
    /// Posts messages. Their bytes are in `staging` at the same offsets as in the ring `to`.
    ///
    /// The staging memory belongs to the device until the completion; [`crate::verbs::Staging`] ensures that.
    pub(crate) fn post_messages(
        &self,
        messages: &[Message],
        staging: Local,
        to: RemoteRing,
    ) -> io::Result<()> {
        for chunk in messages.chunks(CHAIN) {
            let mut chain: [(ffi::ibv_send_wr, ffi::ibv_sge); CHAIN] = std::array::from_fn(|_| empty());
            for (message, (request, element)) in chunk.iter().zip(&mut chain) {
                element.addr = (staging.addr + message.at) as u64;
                (element.length, element.lkey) = (message.bytes as u32, staging.key);
                request.wr_id = message.id;
                request.num_sge = i32::from(message.bytes > 0);
                request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
                let mut flags = 0;
                if message.signalled {
                    flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
                }
                if 0 < message.bytes && message.bytes <= self.inline() {
                    flags |= ffi::ibv_send_flags::IBV_SEND_INLINE.0;
                }
                request.send_flags = flags;
                request.imm_data_invalidated_rkey_union.imm_data = message.credit.encode().to_be();
                request.wr.rdma = ffi::rdma_t { remote_addr: to.addr + message.at as u64, rkey: to.key };
            }
            self.post_chain(&mut chain[..chunk.len()])?;
        }
        Ok(())
    }

    /// Posts READs into `landing`, which must have space for them. The last of them is signalled as `id`.
    pub(crate) fn post_reads(&self, wants: &[ReadRequest], landing: Local, id: u64) -> io::Result<()> {
        let last = wants.len().saturating_sub(1);
        for (number, chunk) in wants.chunks(CHAIN).enumerate() {
            let mut chain: [(ffi::ibv_send_wr, ffi::ibv_sge); CHAIN] = std::array::from_fn(|_| empty());
            for (i, (want, (request, element))) in chunk.iter().zip(&mut chain).enumerate() {
                element.addr = landing.addr as u64 + u64::from(want.at);
                (element.length, element.lkey) = (want.bytes, landing.key);
                request.wr_id = id;
                request.num_sge = 1;
                request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
                if number * CHAIN + i == last {
                    request.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
                }
                request.wr.rdma = ffi::rdma_t { remote_addr: want.addr, rkey: want.rkey };
            }
            self.post_chain(&mut chain[..chunk.len()])?;
        }
        Ok(())
    }

    fn post_chain(&self, chain: &mut [(ffi::ibv_send_wr, ffi::ibv_sge)]) -> io::Result<()> {
        let mut next = null_mut();
        for (request, element) in chain.iter_mut().rev() {
            (request.sg_list, request.next) = (element, next);
            next = request;
        }
        let mut bad = null_mut();
        // SAFETY: the pair exists; the chain does as long as the call, which copies what it needs of it. The memory
        // that it names is registered under its key, or the device refuses it.
        checked(unsafe { ffi::ibv_post_send(self.raw(), next, &mut bad) })
    }

    /// Posts this many receives, for messages whose bytes are written to the ring.
    pub(crate) fn post_receives(&self, mut count: usize) -> io::Result<()> {
        while count > 0 {
            // SAFETY: C structs of numbers and pointers, of which null is one.
            let mut chain: [ffi::ibv_recv_wr; CHAIN] = unsafe { std::mem::zeroed() };
            let posted = count.min(CHAIN);
            let mut next = null_mut();
            for request in chain[..posted].iter_mut().rev() {
                request.next = next;
                next = request;
            }
            let mut bad = null_mut();
            // SAFETY: the pair exists; the chain does as long as the call, which copies it. No memory is named.
            checked(unsafe { ffi::ibv_post_recv(self.raw(), next, &mut bad) })?;
            count -= posted;
        }
        Ok(())
    }
}
