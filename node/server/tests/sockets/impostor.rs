//! Another process of this host listens where a worker looks for shared memory. A worker with a token must
//! still reach its server over tcp. It must trust nothing over shared memory without the proof of the token.

use crate::model;

use gannet_core::{Read, Write};
use gannet_server::{Server, ServerConfig};
use gannet_transport::multi::{Transport, Transports};
use gannet_transport::tcp::Tcp;
use gannet_transport::{Net, Stream};
use gannet_wire::Token;
use gannet_worker::{Worker, WorkerConfig};
use model::{Model, schema};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, connect, listen,
    recvmsg, sendmsg, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const SECRET: &[u8] = b"the token of this job and no other";

fn token(secret: &[u8]) -> Token {
    Token::new(secret).unwrap()
}

/// A control socket and the name under which a server at this address offers shared memory.
fn control(addr: &str) -> (OwnedFd, SocketAddrUnix) {
    let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    (made.unwrap(), SocketAddrUnix::new_abstract_name(format!("gannet/{addr}").as_bytes()).unwrap())
}

/// Takes the name of an address. Each connection is handled by `deal` on its own thread. Returns a counter of
/// the connections.
fn take_name(addr: &str, deal: impl Fn(OwnedFd) + Send + Sync + 'static) -> Arc<AtomicUsize> {
    let (socket, name) = control(addr);
    rustix::net::bind(&socket, &name).unwrap();
    listen(&socket, 16).unwrap();
    let (came, deal) = (Arc::<AtomicUsize>::default(), Arc::new(deal));
    let count = came.clone();
    std::thread::spawn(move || {
        while let Ok(guest) = accept(&socket) {
            count.fetch_add(1, Relaxed);
            let deal = deal.clone();
            std::thread::spawn(move || deal(guest));
        }
    });
    came
}

/// Forwards packets, with the files in them.
fn pass_on(from: &OwnedFd, to: &OwnedFd) {
    let mut bytes = [0; 4096];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let Ok(got) = recvmsg(from, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) else { return };
        if got.bytes == 0 {
            return;
        }
        let files: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        }
        if sendmsg(to, &[IoSlice::new(&bytes[..got.bytes])], &mut control, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

/// Connects each visitor with the server at `addr`, which has another token.
fn relay(addr: &str) -> impl Fn(OwnedFd) + Send + Sync + 'static {
    let addr = addr.to_owned();
    move |guest| {
        let (far, name) = control(&addr);
        connect(&far, &name).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| pass_on(&guest, &far));
            pass_on(&far, &guest);
            let _ = rustix::net::shutdown(&guest, rustix::net::Shutdown::Both);
            let _ = rustix::net::shutdown(&far, rustix::net::Shutdown::Both);
        });
    }
}

/// A server over tcp only, so that any process can take the shared-memory name of its address.
fn server(secret: &[u8], transport: Transport) -> Server {
    let config = ServerConfig { threads: 2, token: Some(token(secret)), ..ServerConfig::new("127.0.0.1:0") };
    Server::start(Transports::over(Tcp::new()).with_transport(transport).with_token(true), config).unwrap()
}

/// Runs a job over this server. It must succeed, whichever process has the server's name.
fn job(server: &Server, came: &AtomicUsize) -> Duration {
    let start = Instant::now();
    let config = WorkerConfig {
        token: Some(token(SECRET)),
        peer_timeout: Duration::from_secs(20),
        ..WorkerConfig::new([server.addr()], 1, 1)
    };
    let mut worker = Worker::connect(Transports::new().with_token(true), config).unwrap();
    assert_eq!((worker.transport().as_str(), worker.links()), ("tcp", 2));
    let mut model = Model::new(schema("t", 1, 8));
    let table = worker.open_table(&model.schema).unwrap();
    let (keys, values) = ((0..500).collect::<Vec<u64>>(), vec![1.0; 500]);
    worker.push(table, &keys, Write::Gradient, &values).unwrap();
    model.push(&keys, &values);
    let mut out = vec![0.0; keys.len()];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys));
    // After the first link, the worker does not try the name again for a while.
    assert_eq!(came.load(Relaxed), 1);
    start.elapsed()
}

#[test]
fn an_impostor_with_another_token_ended_a_worker_over_shared_memory() {
    let other = server(b"the token of somebody else's job", Transport::Auto);
    let server = server(SECRET, Transport::Tcp);
    let came = take_name(server.addr(), relay(other.addr()));
    job(&server, &came);
}

#[test]
fn an_impostor_that_closes_stopped_a_worker_from_reaching_its_server() {
    let server = server(SECRET, Transport::Tcp);
    let came = take_name(server.addr(), drop);
    job(&server, &came);
}

#[test]
fn a_silent_impostor_stopped_a_worker_from_reaching_its_server() {
    let server = server(SECRET, Transport::Tcp);
    let came = take_name(server.addr(), |guest| {
        std::thread::sleep(Duration::from_secs(60));
        drop(guest);
    });
    job(&server, &came);
}

/// Once a worker with `--transport shm` did not say which process had taken the server's name, nor what to do.
#[test]
fn a_process_that_took_the_servers_name_was_not_named_with_shared_memory_alone() {
    let other = server(b"the token of somebody else's job", Transport::Auto);
    let silent = |guest| {
        std::thread::sleep(Duration::from_secs(20));
        drop(guest);
    };
    let [relayed, quiet, closing] = [(); 3].map(|()| server(SECRET, Transport::Tcp));
    take_name(relayed.addr(), relay(other.addr()));
    take_name(quiet.addr(), silent);
    take_name(closing.addr(), drop);
    for server in [relayed, quiet, closing] {
        let start = Instant::now();
        let config = WorkerConfig {
            token: Some(token(SECRET)),
            peer_timeout: Duration::from_secs(2),
            ..WorkerConfig::new([server.addr()], 1, 1)
        };
        let net = Transports::new().with_transport(Transport::Shm).with_token(true);
        let Err(error) = Worker::connect(net, config) else { panic!("believed") };
        let (text, own) = (error.to_string(), std::process::id());
        for says in [server.addr(), &format!("process {own} of user "), "--transport tcp"] {
            assert!(text.contains(says), "{says}: {text}");
        }
        assert!(start.elapsed() < Duration::from_secs(15), "{text}");
    }
}

/// A server whose name another process has taken says so, and what to do.
#[test]
fn a_server_whose_name_is_taken_says_what_to_do() {
    // The port is free, and the name is not.
    let port = server(SECRET, Transport::Tcp);
    let addr = port.addr().to_owned();
    take_name(&addr, drop);
    drop(port);
    let config = ServerConfig { threads: 1, ..ServerConfig::new(&addr) };
    let Err(error) = Server::start(Transports::new().with_transport(Transport::Shm), config) else {
        panic!("it listens")
    };
    let text = error.to_string();
    assert!(
        text.contains(&addr) && text.contains("another process") && text.contains("--transport tcp"),
        "{text}"
    );
}

/// Any process of this host can take the name of another machine's address.
#[test]
fn the_name_of_another_machines_address_was_tried_on_this_machine() {
    // A port of its own: the name of the address is known to all processes of this machine.
    let far = format!("192.0.2.1:{}", 1024 + std::process::id() % 60_000);
    let came = take_name(&far, drop);
    let stream = Transports::new().with_token(true).begin_connect(&far, 0);
    assert!(stream.is_err() || stream.is_ok_and(|stream| stream.transport() == "tcp"));
    assert_eq!(came.load(Relaxed), 0);
}
