//! Tokens, seen from outside: which peers are accepted, what is sent, and that a recorded greeting is useless.

use gannet_core::{Read, Schema, Write};
use gannet_optim::{Add, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_transport::tcp::Tcp;
use gannet_wire::{Refusal, Token};
use gannet_worker::{Worker, WorkerConfig, WorkerError};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECRET: &[u8] = b"a secret of this job and no other";

fn server(secret: Option<&[u8]>) -> Server {
    let token = secret.map(|secret| Token::new(secret).unwrap());
    Server::start(Tcp::new(), ServerConfig { threads: 2, token, ..ServerConfig::new("127.0.0.1:0") }).unwrap()
}

fn connect(addr: &str, secret: Option<&[u8]>) -> Result<Worker<Tcp>, WorkerError> {
    let token = secret.map(|secret| Token::new(secret).unwrap());
    Worker::connect(Tcp::new(), WorkerConfig { token, ..WorkerConfig::new([addr], 1, 1) })
}

fn works(worker: &mut Worker<Tcp>) {
    let table = worker.open_table(&Schema { shards: 4, ..Schema::scalar("t", Rule::Add(Add)) }).unwrap();
    worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0, 2.0, 3.0]).unwrap();
    let mut out = [0.0; 4];
    worker.pull(table, &[3, 2, 1, 0], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [3.0, 2.0, 1.0, 0.0]);
}

#[test]
fn peers_with_the_token_are_accepted_and_others_get_the_reason_at_once() {
    let open = server(None);
    works(&mut connect(open.addr(), None).unwrap());
    let closed = server(Some(SECRET));
    works(&mut connect(closed.addr(), Some(SECRET)).unwrap());
    let refused = |server: &Server, secret: Option<&[u8]>, says: &str| {
        let start = Instant::now();
        let Err(error) = connect(server.addr(), secret) else { panic!("let in") };
        assert!(matches!(error, WorkerError::Refused { refusal: Refusal::Token, .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(server.addr()) && text.contains(says) && text.contains("--token-file"),
            "{text}"
        );
        // The worker does not retry until the peer timeout of 60 s.
        assert!(start.elapsed() < Duration::from_secs(30));
    };
    refused(&closed, None, "asks for a token");
    refused(&closed, Some(b"another secret of another job"), "is not this server's");
    refused(&open, Some(SECRET), "has no token");
    assert_eq!((closed.served().token_refusals, open.served().token_refusals), (2, 1));
    assert_eq!(closed.served().sessions_begun, 2);
}

/// The bytes that went through a relay in each direction, over all connections.
#[derive(Default)]
struct Heard {
    from_worker: Vec<u8>,
    from_server: Vec<u8>,
}

/// Forwards the bytes of connections, and records them.
fn relay(server: &str) -> (String, Arc<Mutex<Heard>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, heard) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Heard>>::default());
    let (server, keep) = (server.to_owned(), heard.clone());
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(&server).unwrap());
            copy(near.try_clone().unwrap(), far.try_clone().unwrap(), keep.clone(), |h| &mut h.from_worker);
            copy(far, near, keep.clone(), |h| &mut h.from_server);
        }
    });
    (addr, heard)
}

fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    heard: Arc<Mutex<Heard>>,
    of: fn(&mut Heard) -> &mut Vec<u8>,
) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(got @ 1..) = from.read(&mut bytes) {
            of(&mut heard.lock().unwrap()).extend(&bytes[..got]);
            if to.write_all(&bytes[..got]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

#[test]
fn the_token_does_not_travel_and_a_recorded_greeting_is_refused() {
    let server = server(Some(SECRET));
    let (addr, heard) = relay(server.addr());
    works(&mut connect(&addr, Some(SECRET)).unwrap());
    let heard = heard.lock().unwrap();
    for bytes in [&heard.from_worker, &heard.from_server] {
        assert!(bytes.len() > 304);
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET));
    }

    let mut again = TcpStream::connect(server.addr()).unwrap();
    again.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    again.write_all(&heard.from_worker[..304]).unwrap(); // knock, proof, hello
    let mut answers = Vec::new();
    let _ = again.read_to_end(&mut answers);
    let kinds: Vec<u16> = frames(&answers).map(|(kind, _)| kind).collect();
    let codes: Vec<u16> = frames(&answers).map(|(_, aux)| aux).collect();
    assert_eq!((kinds, codes), (vec![18, 15], vec![0, Refusal::Token as u16]));
    assert_eq!(server.served().token_refusals, 1);

    // The opposite direction: a fake server that repeats what a real server once sent.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (fake, said) = (listener.local_addr().unwrap().to_string(), heard.from_server.clone());
    std::thread::spawn(move || {
        let (mut worker, _) = listener.accept().unwrap();
        worker.write_all(&said).unwrap();
        let _ = worker.read_to_end(&mut Vec::new());
    });
    let Err(error) = connect(&fake, Some(SECRET)) else { panic!("believed") };
    assert!(matches!(error, WorkerError::Impostor { .. }), "{error}");
}

/// Kind and aux of each frame.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u16, u16)> + '_ {
    std::iter::from_fn(move || {
        let head = bytes.get(..64)?;
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        bytes = &bytes[64 + len..];
        Some((word(4), word(6)))
    })
}
