//! Owners for connections of rdma_cm: an id with its own event channel, and the channel's events. The queue
//! pairs do not belong to the id. This code makes them and changes their states, both for messages and for
//! READs.
#![allow(unsafe_code)]

use crate::verbs::ffi;
use crate::verbs::resources::objects::{Completions, Context, Depths, Domain, attributes, checked};
use rustix::fd::BorrowedFd;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::null_mut;
use std::sync::Arc;

/// RDMA_OPTION_ID and RDMA_OPTION_ID_ACK_TIMEOUT: constants of C enums without names.
const OPTION_ID: c_int = 0;
const OPTION_ACK_TIMEOUT: c_int = 3;
/// A packet without an acknowledgement is resent after 4.096 us * 2^this: half a second.
const ACK_TIMEOUT: u8 = 17;
/// The number of resends: a dead link is noticed within seconds of the next message.
const RETRIES: u8 = 7;
/// 7 means without limit: a send to a receiver without a posted receive is always tried again. (Credits prevent
/// that case.)
const RETRIES_WITHOUT_RECEIVE: u8 = 7;

/// One end of a connection, or a listening id.
pub(crate) struct Id {
    id: *mut ffi::rdma_cm_id,
    channel: Channel,
}

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for Id {}

struct Channel(*mut ffi::rdma_event_channel);

impl Channel {
    fn new() -> io::Result<Channel> {
        // SAFETY: no arguments; the descriptor is the channel's, open as long as it exists.
        unsafe {
            let channel = ffi::rdma_create_event_channel();
            if channel.is_null() {
                return Err(io::Error::last_os_error());
            }
            let channel = Channel(channel);
            let flags = rustix::fs::fcntl_getfl(channel.fd())?;
            rustix::fs::fcntl_setfl(channel.fd(), flags | rustix::fs::OFlags::NONBLOCK)?;
            rustix::io::fcntl_setfd(channel.fd(), rustix::io::FdFlags::CLOEXEC)?;
            Ok(channel)
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel exists.
        unsafe { BorrowedFd::borrow_raw((*self.0).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its ids were destroyed before it.
        unsafe { ffi::rdma_destroy_event_channel(self.0) };
    }
}

/// An event of a channel.
pub(crate) enum CmEvent {
    AddressResolved,
    RouteResolved,
    /// A peer wants to connect: the id that can accept, and the peer's private data.
    Request(Id, Vec<u8>),
    /// The peer has accepted, with this private data.
    Answered(Vec<u8>),
    /// The connection is established.
    Established,
    Rejected {
        status: i32,
        private_data: Vec<u8>,
    },
    Disconnected,
    Failed {
        what: String,
        status: i32,
    },
}

impl Id {
    pub(crate) fn new() -> io::Result<Id> {
        let channel = Channel::new()?;
        let mut id = null_mut();
        // SAFETY: the channel exists as long as the id.
        checked(unsafe {
            ffi::rdma_create_id(channel.0, &mut id, null_mut(), ffi::rdma_port_space::RDMA_PS_TCP)
        })?;
        Ok(Id { id, channel })
    }

    /// Readable when there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// The device that the id is bound to, if it is.
    pub(crate) fn context(&self) -> io::Result<Context> {
        // SAFETY: the id exists; a context is never closed.
        let context = unsafe { (*self.id).verbs };
        if context.is_null() { Err(io::ErrorKind::NotConnected.into()) } else { Ok(Context::of(context)) }
    }

    /// Whether its port can move packets; also `true` if that is not known.
    pub(crate) fn port_is_active(&self) -> bool {
        // SAFETY: the id exists.
        let port = unsafe { (*self.id).port_num };
        self.context().map_or(true, |context| port == 0 || context.is_active(port))
    }

    pub(crate) fn listen(&self, addr: SocketAddr, backlog: usize) -> io::Result<()> {
        let mut addr = Address::of(addr);
        // SAFETY: the id exists; the address does as long as the calls.
        unsafe {
            checked(ffi::rdma_bind_addr(self.id, addr.raw()))?;
            checked(ffi::rdma_listen(self.id, backlog as c_int))
        }
    }

    pub(crate) fn resolve_address(&self, addr: SocketAddr, limit_ms: i32) -> io::Result<()> {
        let mut addr = Address::of(addr);
        // SAFETY: as above.
        checked(unsafe { ffi::rdma_resolve_addr(self.id, null_mut(), addr.raw(), limit_ms) })
    }

    pub(crate) fn resolve_route(&self, limit_ms: i32) -> io::Result<()> {
        // SAFETY: the id exists.
        checked(unsafe { ffi::rdma_resolve_route(self.id, limit_ms) })
    }

    /// Sends the connection request with this private data.
    pub(crate) fn connect(&self, pair: &QueuePair, private_data: &[u8]) -> io::Result<()> {
        self.set_ack_timeout();
        let mut parameters = parameters(pair, private_data);
        // SAFETY: the id exists; the parameters do as long as the call.
        checked(unsafe { ffi::rdma_connect(self.id, &mut parameters) })
    }

    /// Confirms the connection to the peer, which has answered.
    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: the id exists.
        checked(unsafe { ffi::rdma_establish(self.id) })
    }

    pub(crate) fn accept(&self, pair: &QueuePair, private_data: &[u8]) -> io::Result<()> {
        let mut parameters = parameters(pair, private_data);
        // SAFETY: as for connect.
        checked(unsafe { ffi::rdma_accept(self.id, &mut parameters) })
    }

    /// Rejects a request. The reason has at most 148 bytes.
    pub(crate) fn reject(&self, why: &str) {
        let why = &why.as_bytes()[..why.len().min(148)];
        // SAFETY: the id exists; the bytes do as long as the call. If the rejection is lost, the peer sees the end of
        // the id.
        unsafe { ffi::rdma_reject(self.id, why.as_ptr().cast::<c_void>(), why.len() as u8) };
    }

    /// Ends the connection. The peer gets an event.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the id exists. An error says that there is no connection.
        unsafe { ffi::rdma_disconnect(self.id) };
    }

    fn set_ack_timeout(&self) {
        let mut timeout = ACK_TIMEOUT;
        // SAFETY: one byte, as the option wants. Kernels before 5.1 do without.
        unsafe {
            ffi::rdma_set_option(
                self.id,
                OPTION_ID,
                OPTION_ACK_TIMEOUT,
                (&raw mut timeout).cast::<c_void>(),
                1,
            )
        };
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the id exists; its address is a sockaddr of the family that it names.
        unsafe { from_storage(&(*self.id).route.addr.dst_addr_union.dst_storage) }
    }

    /// The channel's next event, if there is one.
    pub(crate) fn next(&self) -> io::Result<Option<CmEvent>> {
        use ffi::rdma_cm_event_type as kind;
        let mut event = null_mut();
        // SAFETY: the channel exists and does not block.
        if unsafe { ffi::rdma_get_cm_event(self.channel.0, &mut event) } != 0 {
            let error = io::Error::last_os_error();
            let nothing = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            return if nothing { Ok(None) } else { Err(error) };
        }
        // SAFETY: the event is valid until it is acknowledged; with these kinds the union holds connection parameters,
        // whose data is as long as they say.
        let (kind, status, private_data, request) = unsafe {
            let event = &*event;
            let carries = matches!(
                event.event,
                kind::RDMA_CM_EVENT_CONNECT_REQUEST
                    | kind::RDMA_CM_EVENT_CONNECT_RESPONSE
                    | kind::RDMA_CM_EVENT_ESTABLISHED
                    | kind::RDMA_CM_EVENT_REJECTED
            );
            let private_data = if carries && !event.param.conn.private_data.is_null() {
                let conn = event.param.conn;
                let data = conn.private_data.cast::<u8>();
                std::slice::from_raw_parts(data, conn.private_data_len.into()).to_vec()
            } else {
                Vec::new()
            };
            (event.event, event.status, private_data, event.id)
        };
        // SAFETY: it came from this channel, and nothing of it is used from here on.
        unsafe { ffi::rdma_ack_cm_event(event) };
        Ok(Some(match kind {
            kind::RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::AddressResolved,
            kind::RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::RouteResolved,
            kind::RDMA_CM_EVENT_CONNECT_REQUEST => CmEvent::Request(Id::requested(request)?, private_data),
            kind::RDMA_CM_EVENT_CONNECT_RESPONSE => CmEvent::Answered(private_data),
            kind::RDMA_CM_EVENT_ESTABLISHED => CmEvent::Established,
            kind::RDMA_CM_EVENT_REJECTED => CmEvent::Rejected { status, private_data },
            kind::RDMA_CM_EVENT_DISCONNECTED | kind::RDMA_CM_EVENT_TIMEWAIT_EXIT => CmEvent::Disconnected,
            kind => {
                // SAFETY: a C string that is never freed, for any number.
                let what = unsafe { CStr::from_ptr(ffi::rdma_event_str(kind)) };
                CmEvent::Failed { what: what.to_string_lossy().into_owned(), status }
            }
        }))
    }

    /// The id of a connection request, moved to a channel of its own.
    fn requested(id: *mut ffi::rdma_cm_id) -> io::Result<Id> {
        // SAFETY: the id is new, and nobody else has it; its event was acknowledged.
        let moved = Channel::new()
            .and_then(|channel| checked(unsafe { ffi::rdma_migrate_id(id, channel.0) }).map(|()| channel));
        match moved {
            Ok(channel) => {
                let id = Id { id, channel };
                id.set_ack_timeout();
                Ok(id)
            }
            Err(error) => {
                // SAFETY: as above; this rejects the request.
                unsafe { ffi::rdma_destroy_id(id) };
                Err(error)
            }
        }
    }

    /// The attributes that move a queue pair to `state` in this connection.
    fn attributes(&self, state: u32) -> io::Result<(ffi::ibv_qp_attr, c_int)> {
        let mut mask = 0;
        // SAFETY: a C struct of numbers, which the call fills in; the id exists.
        unsafe {
            let mut attributes: ffi::ibv_qp_attr = std::mem::zeroed();
            attributes.qp_state = state;
            checked(ffi::rdma_init_qp_attr(self.id, &mut attributes, &mut mask))?;
            Ok((attributes, mask))
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: its events were acknowledged, it has no queue pair, and its channel still exists.
        unsafe { ffi::rdma_destroy_id(self.id) };
    }
}

fn parameters(pair: &QueuePair, private_data: &[u8]) -> ffi::rdma_conn_param {
    // SAFETY: a C struct of numbers and pointers, of which null is one.
    let mut parameters: ffi::rdma_conn_param = unsafe { std::mem::zeroed() };
    parameters.private_data = private_data.as_ptr().cast();
    parameters.private_data_len = private_data.len() as u8;
    (parameters.responder_resources, parameters.initiator_depth) = (1, 1);
    parameters.retry_count = RETRIES;
    parameters.rnr_retry_count = RETRIES_WITHOUT_RECEIVE;
    parameters.qp_num = pair.number();
    parameters
}

/// A queue pair.
pub(crate) struct QueuePair {
    pair: *mut ffi::ibv_qp,
    inline: usize,
    completions: Arc<Completions>,
    _domain: Arc<Domain>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for QueuePair {}

impl QueuePair {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        completions: &Arc<Completions>,
        depths: Depths,
    ) -> io::Result<Self> {
        let mut wanted = attributes(completions, depths);
        // SAFETY: the domain and the completion queue live as long as the pair, which holds shares of them.
        let pair = unsafe { ffi::ibv_create_qp(domain.raw(), &mut wanted) };
        if pair.is_null() {
            return Err(io::Error::last_os_error());
        }
        let inline = wanted.cap.max_inline_data as usize;
        Ok(QueuePair { pair, inline, completions: completions.clone(), _domain: domain.clone() })
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_qp {
        self.pair
    }

    /// The most bytes that can be copied into a work request itself.
    pub(crate) fn inline(&self) -> usize {
        self.inline
    }

    pub(crate) fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the pair exists.
        unsafe { (*self.pair).qp_num }
    }

    /// Makes it ready to receive and to send. The connection names the peer's pair.
    pub(crate) fn initialise(&self, id: &Id) -> io::Result<()> {
        self.go(id, ffi::ibv_qp_state::IBV_QPS_INIT, |_| ())
    }

    /// Makes it ready to receive and to send, to the pair that the connection names.
    pub(crate) fn make_ready(&self, id: &Id) -> io::Result<()> {
        // The access rights are known only now.
        self.go(id, ffi::ibv_qp_state::IBV_QPS_INIT, |_| ())?;
        self.go(id, ffi::ibv_qp_state::IBV_QPS_RTR, |_| ())?;
        self.go(id, ffi::ibv_qp_state::IBV_QPS_RTS, |_| ())
    }

    /// As [`QueuePair::make_ready`], for READs: to the peer's pair of this number, over the connection's path.
    /// At most `reads` are in flight. The peer may not read or write over this pair yet.
    pub(crate) fn make_ready_to(&self, id: &Id, number: u32, reads: u8) -> io::Result<()> {
        self.go(id, ffi::ibv_qp_state::IBV_QPS_INIT, |with| with.qp_access_flags = 0)?;
        self.go(id, ffi::ibv_qp_state::IBV_QPS_RTR, |with| {
            (with.dest_qp_num, with.rq_psn, with.max_dest_rd_atomic) = (number, 0, reads);
        })?;
        self.go(id, ffi::ibv_qp_state::IBV_QPS_RTS, |with| {
            (with.sq_psn, with.max_rd_atomic) = (0, reads);
        })
    }

    fn go(&self, id: &Id, state: u32, change: impl FnOnce(&mut ffi::ibv_qp_attr)) -> io::Result<()> {
        let (mut with, mask) = id.attributes(state)?;
        change(&mut with);
        // SAFETY: the pair exists; the mask says which attributes are set.
        checked(unsafe { ffi::ibv_modify_qp(self.pair, &mut with, mask) })
    }

    /// Lets the peer READ memory that is registered for it in this pair's domain.
    pub(crate) fn allow_reads(&self) -> io::Result<()> {
        // SAFETY: a C struct of numbers, of which those that the mask names are set; the pair exists.
        unsafe {
            let mut with: ffi::ibv_qp_attr = std::mem::zeroed();
            with.qp_state = ffi::ibv_qp_state::IBV_QPS_RTS;
            with.qp_access_flags = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
            let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE | ffi::ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
            checked(ffi::ibv_modify_qp(self.pair, &mut with, mask.0 as c_int))
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: it belongs to this value alone; operations in flight on it end before this returns.
        unsafe { ffi::ibv_destroy_qp(self.pair) };
    }
}

/// A socket address in C's form.
enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Address {
    fn of(addr: SocketAddr) -> Address {
        // SAFETY: C structs of numbers.
        unsafe {
            match addr {
                SocketAddr::V4(addr) => {
                    let mut raw: libc::sockaddr_in = std::mem::zeroed();
                    raw.sin_family = libc::AF_INET as libc::sa_family_t;
                    raw.sin_port = addr.port().to_be();
                    raw.sin_addr.s_addr = u32::from_ne_bytes(addr.ip().octets());
                    Address::V4(raw)
                }
                SocketAddr::V6(addr) => {
                    let mut raw: libc::sockaddr_in6 = std::mem::zeroed();
                    raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    raw.sin6_port = addr.port().to_be();
                    raw.sin6_addr.s6_addr = addr.ip().octets();
                    raw.sin6_scope_id = addr.scope_id();
                    Address::V6(raw)
                }
            }
        }
    }

    fn raw(&mut self) -> *mut libc::sockaddr {
        match self {
            Address::V4(addr) => (&raw mut *addr).cast(),
            Address::V6(addr) => (&raw mut *addr).cast(),
        }
    }
}

/// # Safety
/// The storage must hold an address of the family that it names.
unsafe fn from_storage(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(storage.ss_family) {
        // SAFETY: by the family.
        libc::AF_INET => unsafe {
            let raw = &*(&raw const *storage).cast::<libc::sockaddr_in>();
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(raw.sin_port)))
        },
        // SAFETY: by the family.
        libc::AF_INET6 => unsafe {
            let raw = &*(&raw const *storage).cast::<libc::sockaddr_in6>();
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddr::new(IpAddr::V6(ip), u16::from_be(raw.sin6_port)))
        },
        _ => None,
    }
}
