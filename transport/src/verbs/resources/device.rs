//! Opens a device and finds out what it can do: its attributes, and limits that must be tried (inline bytes,
//! registrations).
#![allow(unsafe_code)]

use crate::verbs::ffi::*;
use crate::verbs::{DeviceError, Limits, PortLimits, locked_bytes_max};
use std::ffi::CStr;
use std::io;
use std::ptr::{NonNull, addr_of_mut, null_mut};

/// Inline sizes to try, until a queue pair is made.
const INLINE_BYTES: [u32; 6] = [512, 256, 128, 64, 32, 0];

/// An open device.
pub(crate) struct OpenDevice {
    name: String,
    context: NonNull<ibv_context>,
}

/// The devices that the library lists.
struct DeviceList {
    first: NonNull<*mut ibv_device>,
    len: usize,
}

/// A protection domain.
struct Domain<'a> {
    domain: NonNull<ibv_pd>,
    device: &'a OpenDevice,
}

impl DeviceList {
    /// `device` is the name for errors.
    fn get(device: &str) -> Result<DeviceList, DeviceError> {
        let mut len = 0;
        // SAFETY: `len` is a valid place for the number.
        let first = unsafe { ibv_get_device_list(&mut len) };
        let Some(first) = NonNull::new(first) else {
            let (source, device) = (io::Error::last_os_error(), device.to_owned());
            let code = source.raw_os_error().unwrap_or(0);
            return Err(match rustix::io::Errno::from_raw_os_error(code) {
                rustix::io::Errno::NOSYS => DeviceError::NoKernel { device },
                // The wrappers of `rdma-dlopen` return this if they have not found the library.
                rustix::io::Errno::OPNOTSUPP if cfg!(feature = "rdma-dlopen") => {
                    DeviceError::NoLibrary { device }
                }
                _ => DeviceError::Verb { device, what: "list the devices", source },
            });
        };
        Ok(DeviceList { first, len: usize::try_from(len).unwrap_or(0) })
    }

    fn devices(&self) -> &[*mut ibv_device] {
        // SAFETY: the library's array has `len` entries and exists until `drop` frees it.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_get_device_list and is freed once.
        unsafe { ibv_free_device_list(self.first.as_ptr()) }
    }
}

/// The name of a device in a list that is still allocated.
fn name(device: *mut ibv_device) -> String {
    // SAFETY: `device` is an entry of a list that has not been freed; the name is a C string inside it.
    unsafe { CStr::from_ptr(ibv_get_device_name(device)) }.to_string_lossy().into_owned()
}

impl OpenDevice {
    /// Opens the device of this name.
    pub(crate) fn open(device: &str) -> Result<OpenDevice, DeviceError> {
        let list = DeviceList::get(device)?;
        let Some(&found) = list.devices().iter().find(|&&found| name(found) == device) else {
            let known = list.devices().iter().map(|&found| name(found)).collect::<Vec<_>>().join(", ");
            return Err(DeviceError::Unknown { device: device.to_owned(), known });
        };
        // SAFETY: an entry of a list that is alive; an open device outlives the list.
        let context = unsafe { ibv_open_device(found) };
        let name = device.to_owned();
        match NonNull::new(context) {
            Some(context) => Ok(OpenDevice { name, context }),
            None => Err(DeviceError::Open { device: name, source: io::Error::last_os_error() }),
        }
    }

    /// The device's limits.
    pub(crate) fn limits(&self) -> Result<Limits, DeviceError> {
        // SAFETY: the context is open for as long as `self` is.
        let limits = unsafe { limits_of(self.context.as_ptr()) };
        let mut limits = limits.map_err(|source| self.error("query the limits", source))?;
        limits.inline_bytes = self.try_inline()?;
        Ok(limits)
    }

    /// Registers memory and releases it.
    pub(crate) fn try_registration(&self, bytes: usize) -> Result<(), DeviceError> {
        let device = self.name.clone();
        let refused =
            |source| DeviceError::Registration { device, bytes, allowed: locked_bytes_max(), source };
        let domain = self.domain()?;
        let mut memory = match memmap2::MmapMut::map_anon(bytes) {
            Ok(memory) => memory,
            Err(source) => return Err(refused(source)),
        };
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
            | ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: `memory` is mapped for `bytes` and outlives the registration, which ends below. Its key is
        // not used, so no device accesses it.
        let region =
            unsafe { ibv_reg_mr(domain.domain.as_ptr(), memory.as_mut_ptr().cast(), bytes, access.0 as _) };
        if region.is_null() {
            return Err(refused(io::Error::last_os_error()));
        }
        // SAFETY: it was registered above and is released once.
        let code = unsafe { ibv_dereg_mr(region) };
        if code == 0 {
            Ok(())
        } else {
            Err(self.error("release a memory region", io::Error::from_raw_os_error(code)))
        }
    }

    /// The largest of the tried inline sizes with which a queue pair can be made.
    fn try_inline(&self) -> Result<u32, DeviceError> {
        let domain = self.domain()?;
        // SAFETY: the context is open; no channel, no context of ours.
        let queue = unsafe { ibv_create_cq(self.context.as_ptr(), 4, null_mut(), null_mut(), 0) };
        if queue.is_null() {
            return Err(self.error("make a completion queue", io::Error::last_os_error()));
        }
        let found = INLINE_BYTES.iter().find_map(|&bytes| domain.inline_bytes(queue, bytes));
        let why = io::Error::last_os_error();
        // SAFETY: made above; the queue pairs that used it are gone.
        unsafe { ibv_destroy_cq(queue) };
        found.ok_or_else(|| self.error("make a queue pair", why))
    }

    fn domain(&self) -> Result<Domain<'_>, DeviceError> {
        // SAFETY: the context is open.
        let domain = unsafe { ibv_alloc_pd(self.context.as_ptr()) };
        let domain = NonNull::new(domain);
        let domain =
            domain.ok_or_else(|| self.error("make a protection domain", io::Error::last_os_error()))?;
        Ok(Domain { domain, device: self })
    }

    fn error(&self, what: &'static str, source: io::Error) -> DeviceError {
        DeviceError::Verb { device: self.name.clone(), what, source }
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; everything that was made of it borrowed it and is gone.
        unsafe { ibv_close_device(self.context.as_ptr()) };
    }
}

impl Domain<'_> {
    /// The inline bytes that a queue pair gets for this request; `None` if it cannot be made.
    fn inline_bytes(&self, queue: *mut ibv_cq, bytes: u32) -> Option<u32> {
        // SAFETY: a C struct of integers and pointers, for which zero is "nothing".
        let mut wanted: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (wanted.send_cq, wanted.recv_cq) = (queue, queue);
        wanted.qp_type = ibv_qp_type::IBV_QPT_RC;
        wanted.cap.max_send_wr = 1;
        wanted.cap.max_recv_wr = 1;
        wanted.cap.max_send_sge = 1;
        wanted.cap.max_recv_sge = 1;
        wanted.cap.max_inline_data = bytes;
        // SAFETY: domain and completion queue are alive. The attributes are ours, and the granted ones are written into
        // them.
        let pair = unsafe { ibv_create_qp(self.domain.as_ptr(), &mut wanted) };
        let pair = NonNull::new(pair)?;
        // SAFETY: made above, destroyed once, never used.
        unsafe { ibv_destroy_qp(pair.as_ptr()) };
        Some(wanted.cap.max_inline_data)
    }
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, released once, and what was made in it is gone.
        let code = unsafe { ibv_dealloc_pd(self.domain.as_ptr()) };
        if code != 0 {
            tracing::warn!(device = self.device.name, code, "cannot release a protection domain");
        }
    }
}

/// What the device behind an open context can do. Inline bytes must be tried, and are 0 here.
///
/// # Errors
/// The driver's error.
///
/// # Safety
/// `context` belongs to an open device.
pub(crate) unsafe fn limits_of(context: *mut ibv_context) -> io::Result<Limits> {
    // SAFETY: a C struct of integers, all of which may be zero.
    let mut device: ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's context is open, and `device` is a place for the answer.
    check_code(unsafe { ibv_query_device(context, &mut device) })?;
    let count = |n: i32| u32::try_from(n).unwrap_or(0);
    let mut ports = Vec::new();
    for number in 1..=device.phys_port_cnt {
        // SAFETY: as above. It is zeroed, since one of the bindings calls the library's older entry, which leaves out
        // later fields.
        let mut port: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        check_code(unsafe { ibv_query_port(context, number, addr_of_mut!(port).cast()) })?;
        ports.push(PortLimits { number, mtu: mtu_bytes(port.active_mtu), message_bytes: port.max_msg_sz });
    }
    Ok(Limits {
        vendor: device.vendor_id,
        sge: count(device.max_sge),
        work_requests: count(device.max_qp_wr),
        completions: count(device.max_cqe),
        queue_pairs: count(device.max_qp),
        regions: count(device.max_mr),
        region_bytes: device.max_mr_size,
        reads_answered: count(device.max_qp_rd_atom),
        reads_asked: count(device.max_qp_init_rd_atom),
        inline_bytes: 0,
        ports,
    })
}

/// Verbs return 0, an errno, or -1 and set errno.
fn check_code(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code if code > 0 => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// enum ibv_mtu: 1 is 256 bytes, 5 is 4096.
fn mtu_bytes(mtu: ibv_mtu::Type) -> u32 {
    if (1..=5).contains(&mtu) { 128 << mtu } else { 0 }
}
