//! TLS streams over real sockets. Frames of random sizes are echoed through small buffers. For each way in
//! which a handshake can fail, both sides name the reason.

use gannet_transport::Prng;
use gannet_transport::tcp::{Io, Tcp};
use gannet_transport::tls::{TlsClient, TlsError, TlsFileError, TlsServer};
use gannet_transport::{Head, HeadError, Link, LinkError, Listener, Net, NoOwner, Poll, Stream};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An authority, and files that it has signed.
struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    ca: PathBuf,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder, issuer: Issuer::new(params, key), ca }
    }

    /// A certificate for these names, and its key.
    fn sign(&self, file: &str, names: &[&str], until: i32) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(until, 1, 1));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let (cert, secret) = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        std::fs::write(&cert, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        (cert, secret)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }
}

fn tls_server(files: &(PathBuf, PathBuf), client_ca: Option<&Path>) -> Tcp {
    Tcp::new().with_tls_server(TlsServer::load(&files.0, &files.1, client_ca).unwrap())
}

fn tls_client(ca: &Path, name: Option<&str>, own: Option<&(PathBuf, PathBuf)>) -> Tcp {
    let own = own.map(|(cert, key)| (cert.as_path(), key.as_path()));
    Tcp::new().with_tls_client(TlsClient::load(ca, name, own).unwrap())
}

/// Answers every frame with its payload until the link ends. Returns what ended it.
fn echo_once(net: &Tcp, listener: &mut impl Listener<Stream = <Tcp as Net>::Stream>) -> LinkError {
    let stream = loop {
        if let Some(stream) = listener.accept().unwrap() {
            break stream;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut link = Link::new(stream);
    let (mut poll, mut events) = (net.poll().unwrap(), Vec::new());
    poll.add(link.stream(), 0).unwrap();
    loop {
        match echo(&mut link) {
            Ok(()) => {}
            Err(error) => return error,
        }
        // Flush even if there is more to do: a wait sends the bytes that a ring holds back.
        let idle = !link.is_readable() && !link.can_send();
        let limit = if idle { Duration::from_millis(100) } else { Duration::ZERO };
        poll.wait(limit, &mut events).unwrap();
        events.iter().for_each(|event| link.note(event));
    }
}

fn echo<S: Stream>(link: &mut Link<S>) -> Result<(), LinkError> {
    if link.is_readable() {
        link.fill(&mut NoOwner)?;
    }
    let (receive, transmit) = link.halves();
    while let Some(frame) = receive.peek(&mut NoOwner)? {
        if transmit.send_copy(Head::new(2, 0, frame.head.id, [0; 4]), frame.payload).is_err() {
            break;
        }
        receive.consume();
    }
    link.flush(&mut NoOwner)?;
    Ok(())
}

/// Sends frames and expects their echoes. Returns how many came, and the error that ended the link.
fn talk(net: &Tcp, addr: &str, blocking: bool, frames: usize) -> (usize, Result<(), LinkError>) {
    let stream = match blocking {
        true => net.connect(addr, Duration::from_secs(20)).unwrap(),
        false => net.begin_connect(addr, 0).unwrap(),
    };
    let mut link = Link::new(stream);
    let (mut poll, mut events) = (net.poll().unwrap(), Vec::new());
    poll.add(link.stream(), 0).unwrap();
    let mut prng = Prng::new(frames as u64);
    let payloads: Vec<Vec<u8>> = (0..frames)
        .map(|i| (0..prng.below([9, 700, 260_000][i % 3]) / 8 * 8).map(|_| prng.next_u64() as u8).collect())
        .collect();
    let (mut sent, mut back, start) = (0, 0, Instant::now());
    let mut round = || -> Result<bool, LinkError> {
        while sent < frames
            && link.transmit().send_copy(Head::new(1, 0, sent as u64, [0; 4]), &payloads[sent]).is_ok()
        {
            sent += 1;
        }
        if link.can_send() {
            link.flush(&mut NoOwner)?;
        }
        if link.is_readable() {
            link.fill(&mut NoOwner)?;
        }
        while let Some(frame) = link.receive().peek(&mut NoOwner)? {
            assert_eq!(frame.head.id, back as u64);
            assert!(frame.payload == &payloads[back][..], "frame {back} came back changed");
            link.receive().consume();
            back += 1;
        }
        if !link.is_readable() && !link.can_send() {
            poll.wait(Duration::from_millis(100), &mut events).unwrap();
            events.iter().for_each(|event| link.note(event));
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{back} of {frames} after a minute");
        Ok(back == frames)
    };
    let ended = loop {
        match round() {
            Ok(true) => break Ok(()),
            Ok(false) => {}
            Err(error) => break Err(error),
        }
    };
    (back, ended)
}

/// Runs both sides of one connection. Returns what the client saw, and the error that ended the server's link.
fn meet(
    server: Tcp,
    client: &Tcp,
    blocking: bool,
    frames: usize,
) -> ((usize, Result<(), LinkError>), LinkError) {
    let mut listener = server.listen("127.0.0.1:0").unwrap();
    let addr = listener.addr().to_owned();
    let serving = std::thread::spawn(move || echo_once(&server, &mut listener));
    let seen = talk(client, &addr, blocking, frames);
    (seen, serving.join().unwrap())
}

#[test]
fn frames_are_echoed_with_and_without_waiting_for_the_handshake() {
    let authority = Authority::new("one");
    let files = authority.sign("server", &["127.0.0.1"], 2999);
    // If the system refuses io_uring, this is epoll again.
    for (blocking, io) in [(true, Io::Epoll), (false, Io::Epoll), (true, Io::Uring), (false, Io::Uring)] {
        let client = tls_client(&authority.ca, None, None).with_io(io);
        let ((back, ended), server) = meet(tls_server(&files, None).with_io(io), &client, blocking, 300);
        assert!(back == 300 && ended.is_ok(), "{ended:?} {server}");
        assert!(matches!(server, LinkError::Closed { .. }), "{server}");
    }
    // With a name from the flag, and with a certificate of the client.
    let named = authority.sign("named", &["ps.example.org"], 2999);
    let own = authority.sign("worker", &["worker"], 2999);
    let client = tls_client(&authority.ca, Some("ps.example.org"), Some(&own));
    let ((back, ended), server) = meet(tls_server(&named, Some(&authority.ca)), &client, false, 50);
    assert!(back == 50 && ended.is_ok(), "{ended:?} {server}");
}

/// The client's error, whether it waits for the handshake or not.
fn refused(server: &Tcp, client: &Tcp) -> (String, LinkError) {
    let ((_, ended), of_server) = meet(server.clone(), client, false, 2);
    let text = match ended.unwrap_err() {
        LinkError::Tls { source, .. } => source.to_string(),
        LinkError::Frame { source, .. } => source.to_string(),
        other => panic!("{other}; the server: {of_server}"),
    };
    let mut listener = server.listen("127.0.0.1:0").unwrap();
    let (addr, net) = (listener.addr().to_owned(), server.clone());
    let serving = std::thread::spawn(move || echo_once(&net, &mut listener));
    if let Err(error) = client.connect(&addr, Duration::from_secs(20)) {
        assert_eq!(error.to_string(), format!("cannot connect to {addr}: {text}"));
    }
    drop(serving.join());
    (text, of_server)
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_with_the_remedy() {
    let (authority, other, twin) = (Authority::new("one"), Authority::new("other"), Authority::new("one"));
    let good = authority.sign("good", &["127.0.0.1"], 2999);
    let expired = authority.sign("expired", &["127.0.0.1"], 2020);
    let named = authority.sign("named", &["ps.example.org"], 2999);
    let client = tls_client(&authority.ca, None, None);
    let says = |server: &Tcp, client: &Tcp, of_client: &str, of_server: &str| {
        for io in [Io::Epoll, Io::Uring] {
            let (text, server) = refused(&server.clone().with_io(io), &client.clone().with_io(io));
            assert!(text.contains(of_client), "{io:?}: {text}");
            assert!(server.to_string().contains(of_server), "{io:?}: {server}");
        }
    };
    says(&tls_server(&expired, None), &client, "days ago: renew the server's --tls-cert", "ended TLS");
    says(&tls_server(&named, None), &client, "--tls-name", "ended TLS");
    says(&tls_server(&named, None), &client, "ps.example.org", "ended TLS");
    says(&tls_server(&good, None), &tls_client(&other.ca, None, None), "--tls-ca", "UnknownCA");
    says(&tls_server(&good, None), &tls_client(&twin.ca, None, None), "but with another key", "DecryptError");
    let wants = tls_server(&good, Some(&authority.ca));
    says(&wants, &client, "requires a certificate: give --tls-cert", "--tls-client-ca requires one");
    let stranger = other.sign("stranger", &["worker"], 2999);
    let stranger = tls_client(&authority.ca, None, Some(&stranger));
    says(&wants, &stranger, "does not trust our --tls-cert", "no authority in --tls-client-ca");
}

#[test]
fn plain_and_tls_tell_each_other_apart() {
    let authority = Authority::new("one");
    let files = authority.sign("server", &["127.0.0.1"], 2999);
    let (text, server) = refused(&tls_server(&files, None), &Tcp::new());
    assert_eq!(text, HeadError::TlsServer.to_string());
    assert!(matches!(server, LinkError::Tls { source: TlsError::PlainClient, .. }), "{server}");
    // The plain server of this test sends nothing. A real one answers with a frame (see below).
    let ((_, ended), server) = meet(Tcp::new(), &tls_client(&authority.ca, None, None), false, 1);
    assert!(matches!(server, LinkError::Frame { source: HeadError::TlsClient, .. }), "{server}");
    assert!(ended.is_err());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let plain = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"GN\x01\0 is no record").unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let error = tls_client(&authority.ca, None, None).connect(&addr, Duration::from_secs(20)).unwrap_err();
    assert!(error.to_string().contains("does not speak TLS: start it with --tls-cert"), "{error}");
    plain.join().unwrap();
}

#[test]
fn connecting_to_a_silent_server_ends_at_the_timeout() {
    let authority = Authority::new("one");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let error = tls_client(&authority.ca, None, None).connect(&addr, Duration::from_millis(200)).unwrap_err();
    assert!(error.to_string().contains("no answer in the TLS handshake"), "{error}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new("one");
    let (cert, key) = authority.sign("server", &["127.0.0.1"], 2999);
    let (_, other) = authority.sign("other", &["127.0.0.1"], 2999);
    let file = |name: &str, text: &str| {
        let path = authority.path(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let text = std::fs::read_to_string(&key).unwrap();
    let secret = text.lines().nth(1).unwrap().to_owned();
    let says = |error: TlsFileError, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)) && !text.contains(&secret), "{text}");
    };
    let server = |cert: &Path, key: &Path| TlsServer::load(cert, key, None).unwrap_err();
    says(server(&authority.path("none"), &key), &["--tls-cert", "none", "No such file"]);
    says(server(&cert, authority.folder.path()), &["--tls-key", "not a regular file"]);
    says(server(&key, &key), &["--tls-cert", "BEGIN CERTIFICATE"]);
    says(server(&cert, &cert), &["--tls-key", "BEGIN PRIVATE KEY"]);
    says(server(&cert, &other), &["--tls-key", "other.key", "is not the key of", "server.pem"]);
    says(server(&cert, &file("cut", &text[..text.len() - 30])), &["--tls-key", "truncated"]);
    let bad = text.replace(&secret, &format!("!{}", &secret[1..]));
    says(server(&cert, &file("bad", &bad)), &["--tls-key", "not base64"]);
    let client = |ca: &Path, name| TlsClient::load(ca, name, None).unwrap_err();
    says(client(&file("empty", ""), None), &["--tls-ca", "it has no certificate"]);
    says(client(&authority.ca, Some("not a name")), &["--tls-name", "not a name"]);
    let own = TlsClient::load(&authority.ca, None, Some((&cert, &other))).unwrap_err();
    says(own, &["--tls-key", "is not the key of"]);
}
