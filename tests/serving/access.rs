//! Who may ask: the token and TLS.

use crate::client::{Connection, ask, get, post, served, table, trained};
use crate::harness::authority::Authority;
use crate::harness::limit;
use std::net::TcpStream;
use std::sync::Arc;

/// Without the token only health is answered.
#[test]
fn requests_carry_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 30), "");
    let token = crate::harness::write(folder.path(), "token", b"a token of some length\n");
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let served = served(&format!("--model {model} --token-file {token}"));
    for path in ["/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/v2/models/default/ready"] {
        assert_eq!(get(&served, path).status, 200, "{path}");
    }
    let with = |given: &str, method: &str, path: &str| {
        let body: &[u8] = if method == "POST" { b"{}" } else { b"" };
        ask(&served, &format!("{method} {path} HTTP/1.1\r\nAuthorization: {given}"), body).status
    };
    let right = "Bearer a token of some length";
    for (method, path) in [("POST", "/v1/predict"), ("GET", "/metrics"), ("GET", "/v2/models/default")] {
        assert_eq!(with(right, method, path), 200, "{path}");
        for wrong in ["Bearer a token of some lengtH", "Bearer ", "Basic a token of some length", "x"] {
            assert_eq!(with(wrong, method, path), 401, "{path} {wrong}");
        }
    }
    let answer = post(&served, "/v2/models/default/infer", b"{}");
    assert!(answer.status == 401 && answer.text().contains("Authorization: Bearer"), "{answer:?}");
}

/// HTTPS with the certificate, and only for clients that an authority has signed.
#[test]
fn tls_shows_and_asks_for_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 31), "");
    let authority = Authority::new("here");
    let flags = authority.shows("server", "localhost", 2100);
    authority.shows("client", "client", 2100);
    let (own, own_key) = (authority.path("client.pem"), authority.path("client.key"));
    let ca = authority.path("ca.pem");
    let served_open = served(&format!("--model {model} {flags}"));
    let served_closed = served(&format!("--model {model} {flags} --tls-client-ca {ca}"));
    let connect = |addr: &str, with: Option<(&str, &str)>| {
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject;
        let read = |file: &str| rustls::pki_types::CertificateDer::from_pem_file(file).unwrap();
        roots.add(read(&ca)).unwrap();
        let builder =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = match with {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = rustls::pki_types::PrivateKeyDer::from_pem_file(key).unwrap();
                builder.with_client_auth_cert(vec![read(cert)], key).unwrap()
            }
        };
        let name = "localhost".try_into().unwrap();
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(limit())).unwrap();
        rustls::StreamOwned::new(rustls::ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    };
    let head = "POST /v1/predict HTTP/1.1";
    assert_eq!(Connection::over(connect(&served_open.addr, None)).ask(head, b"{}").status, 200);
    let known = Some((&*own, &*own_key));
    assert_eq!(Connection::over(connect(&served_closed.addr, known)).ask(head, b"{}").status, 200);
    let mut stranger = connect(&served_closed.addr, None);
    use std::io::{Read, Write};
    let _ = stranger.write_all(format!("{head}\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes());
    assert!(stranger.read(&mut [0; 100]).is_err());
    // Plain HTTP finds no server.
    let mut plain = TcpStream::connect(&served_open.addr).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}
