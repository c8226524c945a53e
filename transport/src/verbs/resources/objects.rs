//! Owners of verbs objects. Each object is destroyed when dropped, after the objects that depend on it (they
//! share ownership of it).
#![allow(unsafe_code)]

use crate::verbs::Limits;
use crate::verbs::error::{DeviceError, locked_bytes_max};
use crate::verbs::ffi;
use crate::verbs::resources::device::limits_of;
use crate::verbs::window::ProtocolViolation;
use rustix::fd::BorrowedFd;
use std::ffi::{CStr, c_void};
use std::io;
use std::ptr::null_mut;
use std::sync::Arc;

/// A device as librdmacm opened it. It stays open until the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(*mut ffi::ibv_context);

// SAFETY: verbs may be called from any thread, and the context is never closed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// `context` is one of librdmacm's, and not null.
    pub(crate) fn of(context: *mut ffi::ibv_context) -> Context {
        Context(context)
    }

    /// All devices that librdmacm lists.
    pub(crate) fn all() -> io::Result<Vec<Context>> {
        let mut count = 0;
        // SAFETY: the list has `count` entries and a null behind them; freeing it leaves the contexts open.
        unsafe {
            let list = ffi::rdma_get_devices(&mut count);
            if list.is_null() {
                return Err(io::Error::last_os_error());
            }
            let contexts = (0..count.max(0) as usize).map(|i| Context(*list.add(i))).collect();
            ffi::rdma_free_devices(list);
            Ok(contexts)
        }
    }

    pub(crate) fn name(self) -> String {
        // SAFETY: a context has a device, whose name is a C string that lives as long.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name((*self.0).device)) };
        name.to_string_lossy().into_owned()
    }

    /// The error for bytes that could not be registered.
    pub(crate) fn not_registered(self, bytes: usize, source: io::Error) -> DeviceError {
        DeviceError::Registration { device: self.name(), bytes, allowed: locked_bytes_max(), source }
    }

    /// What the device can do.
    pub(crate) fn limits(self) -> io::Result<Limits> {
        // SAFETY: the context is open.
        unsafe { limits_of(self.0) }
    }

    /// Whether packets can go through this port. A port whose state cannot be read counts as active.
    pub(crate) fn is_active(self, port: u8) -> bool {
        // SAFETY: a C struct of numbers, zeroed since one of the bindings calls the library's older entry, which leaves
        // out later fields; the context is open.
        unsafe {
            let mut attributes: ffi::ibv_port_attr = std::mem::zeroed();
            let result = ffi::ibv_query_port(self.0, port, (&raw mut attributes).cast());
            result != 0 || attributes.state == ffi::ibv_port_state::IBV_PORT_ACTIVE
        }
    }
}

/// Turns the result of a call that returns an error number into a `Result`.
pub(crate) fn checked(returned: i32) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        // librdmacm returns -1 and sets errno; libibverbs returns the number itself.
        error if error > 0 => Err(io::Error::from_raw_os_error(error)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn made<T>(object: *mut T) -> io::Result<*mut T> {
    if object.is_null() { Err(io::Error::last_os_error()) } else { Ok(object) }
}

/// A protection domain: queue pairs of another domain cannot use the keys of its regions.
pub(crate) struct Domain(*mut ffi::ibv_pd);

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: Context) -> io::Result<Arc<Domain>> {
        // SAFETY: the context is open.
        let domain = made(unsafe { ffi::ibv_alloc_pd(context.0) })?;
        Ok(Arc::new(Domain(domain)))
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_pd {
        self.0
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: objects that depend on the domain share its ownership, so none exists now.
        unsafe { ffi::ibv_dealloc_pd(self.0) };
    }
}

/// Which side may access registered memory, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// This side's device reads it, to send.
    Local,
    /// This side's device writes it: READs land there.
    LocalWrite,
    /// The peer writes it.
    RemoteWrite,
    /// The peer reads it.
    RemoteRead,
}

/// Registered memory.
pub(crate) struct MemoryRegistration {
    region: *mut ffi::ibv_mr,
    _domain: Arc<Domain>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for MemoryRegistration {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegistration {}

impl MemoryRegistration {
    /// Registers `bytes` bytes at `addr`. The kernel refuses memory that is not mapped, and pins the other
    /// pages. So the device never accesses other memory, even if the mapping ends.
    ///
    /// Memory that a device may write ([`Access::LocalWrite`], [`Access::RemoteWrite`]) must be accessed through raw
    /// pointers only: the blocks of [`crate::verbs::resources::memory`].
    pub(crate) fn new(domain: &Arc<Domain>, addr: usize, bytes: usize, access: Access) -> io::Result<Self> {
        use ffi::ibv_access_flags as flags;
        let access = match access {
            Access::Local => 0,
            Access::LocalWrite => flags::IBV_ACCESS_LOCAL_WRITE.0,
            Access::RemoteWrite => (flags::IBV_ACCESS_LOCAL_WRITE | flags::IBV_ACCESS_REMOTE_WRITE).0,
            Access::RemoteRead => flags::IBV_ACCESS_REMOTE_READ.0,
        };
        // SAFETY: the domain exists; only the kernel looks at the range.
        let region = made(unsafe { ffi::ibv_reg_mr(domain.0, addr as *mut c_void, bytes, access as i32) })?;
        Ok(MemoryRegistration { region, _domain: domain.clone() })
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region is registered while `self` exists.
        unsafe { (*self.region).lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region is registered while `self` exists.
        unsafe { (*self.region).rkey }
    }
}

impl Drop for MemoryRegistration {
    fn drop(&mut self) {
        // SAFETY: it belongs to this value alone. Devices that still use it get an error.
        unsafe { ffi::ibv_dereg_mr(self.region) };
    }
}

/// A completion queue, and the channel that wakes a sleeping thread.
pub(crate) struct Completions {
    queue: *mut ffi::ibv_cq,
    channel: *mut ffi::ibv_comp_channel,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

/// A completed work request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkCompletion {
    pub(crate) id: u64,
    pub(crate) what: WorkKind,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum WorkKind {
    /// A WRITE or a READ of this side.
    Sent,
    /// A WRITE_WITH_IMM of the peer.
    Received { bytes: u32, word: u32 },
}

/// Why a work request failed, for messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FailedWork {
    #[error("{what} (status {status}, vendor error {vendor:#x})")]
    Status { status: u32, vendor: u32, what: String },
    #[error("the completion queue cannot be read")]
    Queue,
    #[error("the peer broke the protocol: {0}")]
    Garbage(#[from] ProtocolViolation),
    #[error("the peer sent a message of an unknown kind (opcode {0})")]
    Opcode(u32),
}

/// The most completions that one call takes.
const BATCH: usize = 32;

impl Completions {
    /// A queue for at most `entries` work requests in flight.
    pub(crate) fn new(context: Context, entries: usize) -> io::Result<Arc<Completions>> {
        // SAFETY: the context is open; the queue is made on the channel, which is destroyed after it.
        unsafe {
            let channel = made(ffi::ibv_create_comp_channel(context.0))?;
            let flags = rustix::fs::fcntl_getfl(BorrowedFd::borrow_raw((*channel).fd));
            let ready = flags.map_err(io::Error::from).and_then(|flags| {
                let fd = BorrowedFd::borrow_raw((*channel).fd);
                Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
            });
            let queue = ready
                .and_then(|()| made(ffi::ibv_create_cq(context.0, entries as i32, null_mut(), channel, 0)));
            match queue {
                Ok(queue) => Ok(Arc::new(Completions { queue, channel })),
                Err(error) => {
                    ffi::ibv_destroy_comp_channel(channel);
                    Err(error)
                }
            }
        }
    }

    /// A descriptor that becomes readable after [`Completions::arm`] when there is something to reap.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open as long as it is.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }

    /// Passes the completions to `each`, in order. `true` if there were any. A failed one is an error.
    pub(crate) fn reap(
        &self,
        mut each: impl FnMut(WorkCompletion) -> Result<(), FailedWork>,
    ) -> Result<bool, FailedWork> {
        let mut any = false;
        loop {
            // SAFETY: a C struct of numbers; the call fills in as many as it says.
            let mut batch: [ffi::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
            // SAFETY: the queue exists, and the array has that many places.
            let count = unsafe { ffi::ibv_poll_cq(self.queue, BATCH as i32, batch.as_mut_ptr()) };
            let count = usize::try_from(count).map_err(|_| FailedWork::Queue)?;
            for done in &batch[..count] {
                each(read_completion(done)?)?;
            }
            any |= count > 0;
            if count < BATCH {
                return Ok(any);
            }
        }
    }

    /// Makes the next completion turn the descriptor readable. Reap once more after this, because earlier
    /// completions do not.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue exists.
        checked(unsafe { ffi::ibv_req_notify_cq(self.queue, 0) })
    }

    /// Consumes the event that made the descriptor readable.
    pub(crate) fn quiet(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel exists and does not block; each event is of this queue, and is acknowledged at once.
        unsafe {
            while ffi::ibv_get_cq_event(self.channel, &mut queue, &mut context) == 0 {
                ffi::ibv_ack_cq_events(queue, 1);
            }
        }
    }
}

fn read_completion(done: &ffi::ibv_wc) -> Result<WorkCompletion, FailedWork> {
    use ffi::{ibv_wc_opcode as opcode, ibv_wc_status as status};
    if done.status != status::IBV_WC_SUCCESS {
        // SAFETY: a C string that is never freed, for any number.
        let what = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(done.status)) };
        let what = what.to_string_lossy().into_owned();
        return Err(FailedWork::Status { status: done.status, vendor: done.vendor_err, what });
    }
    let what = match done.opcode {
        opcode::IBV_WC_RDMA_WRITE | opcode::IBV_WC_RDMA_READ => WorkKind::Sent,
        opcode::IBV_WC_RECV_RDMA_WITH_IMM => {
            // SAFETY: with this opcode the union holds an immediate; any bits are a number.
            let word = u32::from_be(unsafe { done.imm_data_invalidated_rkey_union.imm_data });
            WorkKind::Received { bytes: done.byte_len, word }
        }
        other => return Err(FailedWork::Opcode(other)),
    };
    Ok(WorkCompletion { id: done.wr_id, what })
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.quiet();
        // SAFETY: queue pairs on it share its ownership, so there are none; all events were acknowledged.
        unsafe {
            ffi::ibv_destroy_cq(self.queue);
            ffi::ibv_destroy_comp_channel(self.channel);
        }
    }
}

/// The sizes of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depths {
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    pub(crate) inline: usize,
}

/// The attributes for making an RC queue pair.
pub(crate) fn attributes(completions: &Completions, depths: Depths) -> ffi::ibv_qp_init_attr {
    // SAFETY: a C struct of numbers and pointers, of which null is one.
    let mut attributes: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
    (attributes.send_cq, attributes.recv_cq) = (completions.queue, completions.queue);
    attributes.cap.max_send_wr = depths.sends as u32;
    attributes.cap.max_recv_wr = depths.receives as u32;
    (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
    attributes.cap.max_inline_data = depths.inline as u32;
    attributes
}
