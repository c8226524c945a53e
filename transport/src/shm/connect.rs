//! How sessions over shared memory begin: the name, who may connect, the first packet. This is cold code.
//!
//! A server listens on an abstract unix socket `gannet/IP:PORT` for each address on which it listens. The name
//! belongs to the network namespace, as the address does, and disappears with the process, so no file remains.
//! A worker that finds the name is on the server's host. The kernel tells each side which user and process the
//! other one is.

use super::error::ShmError;
use super::memory::SharedMemory;
use super::packet;
use super::session::{ShmSession, ShmSide};
use super::stream::ShmStream;
use crate::error::NetError;
use crate::limits::{BACKLOG, RING_BYTES, WARNING_EVERY};
use crate::tcp::WatchedDescriptor;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn socket_name(addr: SocketAddr) -> Result<SocketAddrUnix, Errno> {
    // The name does not contain the scope of a link-local address.
    let addr = SocketAddr::new(addr.ip(), addr.port());
    SocketAddrUnix::new_abstract_name(format!("gannet/{addr}").as_bytes())
}

fn socket() -> Result<OwnedFd, ShmError> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
        .map_err(|error| ShmError::System("make a control socket", error))
}

/// Whether a process of user `theirs` may talk to a process of user `ours`. It may if the users are the same,
/// or if `theirs` is root. With `anyone` every user may, because a token proves more.
fn may(theirs: u32, ours: u32, anyone: bool) -> bool {
    anyone || theirs == ours || theirs == 0
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The user and the process of the peer, as the kernel reports them. For a connecting side: the user and the
/// process that listen.
pub(super) fn other_end<Fd: AsFd>(socket: Fd) -> Result<(u32, i32), ShmError> {
    let other = sockopt::socket_peercred(socket);
    let other =
        other.map_err(|error| ShmError::System("find the user of the control socket's peer", error))?;
    Ok((other.uid.as_raw(), other.pid.as_raw_nonzero().get()))
}

/// The names under which a server of this host may listen for this address, including those of servers that
/// listen on all addresses.
fn socket_names(addr: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    std::iter::once(addr).chain(all.map(|ip| SocketAddr::new(ip, addr.port())))
}

/// Whether the address is one of this host's own.
fn is_own(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Nothing is sent. A connected UDP socket shows which address it would send from.
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, 9))?;
        socket.local_addr()
    };
    ip.to_canonical().is_loopback() || from().is_ok_and(|from| from.ip() == ip)
}

/// Begins a session with the server at the first of these addresses where one listens. With `anyone` the
/// server's user does not matter, because the greeting proves more. The server's rings come later. Only
/// addresses of this host are tried, because any process here can take the name of another machine's address.
pub(crate) fn begin_shm(addr: &str, candidates: &[SocketAddr], anyone: bool) -> Result<ShmStream, ShmError> {
    let own: Vec<SocketAddr> = candidates.iter().copied().filter(|addr| is_own(addr.ip())).collect();
    if own.is_empty() {
        return Err(ShmError::Elsewhere);
    }
    for candidate in own.into_iter().flat_map(socket_names) {
        let socket = socket()?;
        let name =
            socket_name(candidate).map_err(|error| ShmError::System("name a control socket", error))?;
        match retry_on_intr(|| rustix::net::connect(&socket, &name)) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED | Errno::NOENT) => continue,
            Err(Errno::AGAIN) => return Err(ShmError::Busy),
            Err(error) => return Err(ShmError::System("connect to a control socket", error)),
        }
        let ((theirs, _), ours) = (other_end(&socket)?, own_user());
        // The server would refuse it too, but this check gives the reason at once.
        if !may(theirs, ours, anyone) || !may(ours, theirs, anyone) {
            return Err(ShmError::User { who: "server", theirs, ours });
        }
        return Ok(ShmStream::new(ShmSession::new(socket, ShmSide::Worker, None), addr.into()));
    }
    Err(ShmError::Absent)
}

/// Accepts sessions over shared memory.
#[derive(Debug)]
pub(crate) struct ShmListener {
    socket: Arc<Socket>,
    anyone: bool,
    watched: RefCell<Option<WatchedDescriptor>>,
    warned_at: Option<Instant>,
}

#[derive(Debug)]
struct Socket(OwnedFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ShmListener {
    /// Listens under the name of a server's address.
    pub(crate) fn new(addr: SocketAddr, anyone: bool) -> Result<ShmListener, ShmError> {
        let socket = socket()?;
        socket_name(addr)
            .and_then(|name| rustix::net::bind(&socket, &name))
            .and_then(|()| rustix::net::listen(&socket, BACKLOG as i32))
            .map_err(|error| match error {
                Errno::ADDRINUSE => ShmError::Taken,
                error => ShmError::System("listen for shared memory", error),
            })?;
        let socket = Arc::new(Socket(socket));
        Ok(ShmListener { socket, anyone, watched: RefCell::default(), warned_at: None })
    }

    pub(crate) fn holds(&self) -> Arc<dyn crate::uring::OpenDescriptor> {
        self.socket.clone()
    }

    /// Moves the listener to this poll, and away from any other.
    pub(crate) fn keep(&self, watched: WatchedDescriptor) {
        if let Some(before) = self.watched.replace(Some(watched)) {
            // Nothing was received there, and the poll of an io_uring ring reports its own errors.
            let _ = before.leave();
        }
    }

    /// The next session, or `None` if none waits. If a process may not connect, it gets the reason, and its
    /// connection is dropped.
    pub(crate) fn accept(&mut self) -> Result<Option<ShmStream>, NetError> {
        loop {
            match rustix::net::accept_with(&*self.socket, FLAGS) {
                Ok(socket) => match admit(socket, self.anyone) {
                    Ok(stream) => return Ok(Some(stream)),
                    Err(error) => self.warn(&error),
                },
                Err(Errno::AGAIN) => {
                    if let Some(watched) = &*self.watched.borrow() {
                        watched.want_more();
                    }
                    return Ok(None);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    return Err(NetError::System { what: "accept a connection", source: error.into() });
                }
            }
        }
    }

    fn warn(&mut self, error: &ShmError) {
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_EVERY) {
            self.warned_at = Some(Instant::now());
            tracing::warn!(%error, "refused shared memory to a worker");
        }
    }
}

/// Makes the rings of a session, if the process that connected may have one.
fn admit(socket: OwnedFd, anyone: bool) -> Result<ShmStream, ShmError> {
    let ((theirs, pid), ours) = (other_end(&socket)?, own_user());
    let made = if may(theirs, ours, anyone) {
        SharedMemory::create(RING_BYTES).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::NOMEM);
            ShmError::System("make the rings of a session", errno)
        })
    } else {
        Err(ShmError::User { who: "worker", theirs, ours })
    };
    let (memory, file) = made.inspect_err(|why| {
        // The peer gets the reason, if it is still there.
        let _ = packet::send_refusal(&socket, &why.to_string());
    })?;
    packet::send_rings(&socket, file.as_fd(), RING_BYTES)
        .map_err(|error| ShmError::System("send the rings of a session", error))?;
    let session = ShmSession::new(socket, ShmSide::Server, Some(memory));
    Ok(ShmStream::new(session, format!("process {pid} (shm)").into()))
}

#[cfg(test)]
mod tests {
    use super::super::packet::{Packet, PacketOutcome, recv};
    use super::*;
    use crate::stream::Stream;
    use rustix::thread::Uid;

    const NOBODY: u32 = 65_534;

    /// Runs `work` as another user. `None` if this process is not root.
    fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
        if own_user() != 0 {
            eprintln!("skipped: only root can run as another user");
            return None;
        }
        // This changes the user of this thread only.
        let become_nobody = || {
            let nobody = Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            work()
        };
        Some(std::thread::scope(|scope| scope.spawn(become_nobody).join().unwrap()))
    }

    /// A listener at an unused address, and the address.
    fn listen(anyone: bool) -> (ShmListener, SocketAddr, std::net::TcpListener) {
        let holds_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = holds_port.local_addr().unwrap();
        (ShmListener::new(addr, anyone).unwrap(), addr, holds_port)
    }

    #[test]
    fn another_user_is_refused_by_both_sides_in_words() {
        let (mut listener, addr, _port) = listen(false);
        let Some(error) = as_nobody(|| begin_shm("here", &[addr], false).unwrap_err()) else { return };
        let text = error.to_string();
        let says = ["server", "user 0", "user 65534", "same user", "--token-file"];
        assert!(says.iter().all(|word| text.contains(word)) && !error.mends(), "{text}");
        assert!(listener.accept().unwrap().is_none(), "it was let in");

        // A worker that does not check the user itself gets a refusal.
        let raw = as_nobody(|| {
            let socket = socket().unwrap();
            rustix::net::connect(&socket, &socket_name(addr).unwrap()).unwrap();
            socket
        });
        assert!(listener.accept().unwrap().is_none(), "it was let in");
        let raw = raw.unwrap();
        match recv(&raw, true).unwrap() {
            PacketOutcome::Packet(Packet::Refused(why)) => {
                assert!(
                    ["worker", "user 65534", "user 0", "--token-file"].iter().all(|w| why.contains(w)),
                    "{why}"
                );
            }
            _ => panic!("no refusal"),
        }
        assert!(matches!(recv(&raw, true), Ok(PacketOutcome::Ended)));
    }

    #[test]
    fn a_token_opens_it_to_other_users() {
        let (mut listener, addr, _port) = listen(true);
        let Some(mut worker) = as_nobody(|| begin_shm("here", &[addr], true).unwrap()) else { return };
        let mut server = listener.accept().unwrap().expect("let in");
        let hello = [std::io::IoSlice::new(b"hello")];
        assert_eq!(server.send(&hello).unwrap(), Some(5));
        let mut got = [0; 9];
        assert_eq!(worker.recv(&mut [std::io::IoSliceMut::new(&mut got)]).unwrap(), Some(5));
        assert_eq!(&got[..5], b"hello");
    }

    #[test]
    fn a_server_is_found_under_its_own_address_and_under_all_of_this_hosts() {
        let port = |listener: &std::net::TcpListener| listener.local_addr().unwrap().port();
        let (_own, addr, _port) = listen(false);
        assert!(begin_shm("here", &[addr], false).is_ok());
        assert!(matches!(
            begin_shm("here", &[SocketAddr::new([127, 0, 0, 9].into(), addr.port())], false),
            Err(ShmError::Absent)
        ));
        let everywhere = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let _all = ShmListener::new(everywhere.local_addr().unwrap(), false).unwrap();
        let here = |ip: [u8; 4]| begin_shm("here", &[SocketAddr::new(ip.into(), port(&everywhere))], false);
        assert!(here([127, 0, 0, 1]).is_ok() && here([127, 0, 0, 9]).is_ok());
        // Addresses reserved for documentation do not belong to this host, whichever process uses their names here.
        let far = SocketAddr::new([192, 0, 2, 1].into(), port(&everywhere));
        let _impostor = ShmListener::new(far, false).unwrap();
        assert!(matches!(here([192, 0, 2, 1]), Err(ShmError::Elsewhere)));
        assert!(!is_own([198, 51, 100, 7].into()));
    }

    #[test]
    fn rings_from_a_server_are_checked_before_they_are_mapped() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let sealed = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        let whole = 4096 + 2 * RING_BYTES as u64;
        for (bytes, seals, ring, says) in [
            (whole, SealFlags::empty(), RING_BYTES as u64, "not sealed"),
            (whole, SealFlags::GROW | SealFlags::SEAL, RING_BYTES as u64, "not sealed"),
            (whole - 1, sealed, RING_BYTES as u64, "but it must have"),
            (0, sealed, RING_BYTES as u64, "a file of 0 bytes"),
            (whole, sealed, 0, "rings of 0 bytes"),
            (whole, sealed, u64::MAX, "rings of"),
            (whole, sealed, RING_BYTES as u64 + 8, "rings of"),
        ] {
            let (mut listener, addr, _port) = listen(false);
            let worker = begin_shm("here", &[addr], false).unwrap();
            let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, bytes).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            let socket = rustix::net::accept_with(&*listener.socket, FLAGS).unwrap();
            packet::send_rings(&socket, file.as_fd(), ring as usize).unwrap();
            let mut worker = worker;
            let error = worker.recv(&mut []).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert!(!worker.is_open() && worker.failure().is_some());
            assert!(listener.accept().unwrap().is_none());
        }
        // A file on a disk, which its owner can shrink at any time.
        let (listener, addr, _port) = listen(false);
        let mut worker = begin_shm("here", &[addr], false).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(whole).unwrap();
        let socket = rustix::net::accept_with(&*listener.socket, FLAGS).unwrap();
        packet::send_rings(&socket, file.as_fd(), RING_BYTES).unwrap();
        let error = worker.recv(&mut []).unwrap_err().to_string();
        assert!(error.contains("sealed"), "{error}");
    }

    #[test]
    fn files_go_one_way_in_order_before_what_is_sent_behind_them() {
        let (mut listener, addr, _port) = listen(false);
        let mut worker = begin_shm("here", &[addr], false).unwrap();
        let mut server = listener.accept().unwrap().unwrap();
        let file = |text: &str| {
            let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::io::pwrite(&file, text.as_bytes(), 0).unwrap();
            file
        };
        for number in 0..100 {
            server.give(file(&format!("{number:02}")).as_fd()).unwrap();
        }
        assert_eq!(server.send(&[std::io::IoSlice::new(b"there")]).unwrap(), Some(5));
        let mut got = [0; 5];
        assert_eq!(worker.recv(&mut [std::io::IoSliceMut::new(&mut got)]).unwrap(), Some(5));
        for number in 0..100 {
            let given = worker.take_given().unwrap().expect("it was there before");
            let mut text = [0; 2];
            rustix::io::pread(&given, &mut text, 0).unwrap();
            assert_eq!(text, format!("{number:02}").as_bytes());
        }
        assert!(worker.take_given().unwrap().is_none());
        // A server would have to hold a worker's file.
        assert_eq!(worker.give(file("no").as_fd()).unwrap_err().kind(), std::io::ErrorKind::Unsupported);
        packet::send_file(worker.session(), file("no").as_fd()).unwrap();
        let error = server.take_given().unwrap_err();
        assert!(error.to_string().contains("has a file"), "{error}");
    }
}
