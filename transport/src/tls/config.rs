//! Loads certificates and keys from PEM files. This is cold code. TLS 1.3 only, since both sides are Gannet.

use super::error::TlsFileError;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The certificate that a listener presents, and whether it requires one.
///
/// ```
/// use gannet_transport::multi::Transports;
/// use gannet_transport::tls::TlsServer;
///
/// # let folder = tempfile::tempdir()?;
/// # let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
/// # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
/// # std::fs::write(&cert, made.cert.pem())?;
/// # std::fs::write(&key, made.signing_key.serialize_pem())?;
/// let tls = TlsServer::load(&cert, &key, None)?; // two PEM files
/// assert!(!tls.asks_for_certificates());
/// let net = Transports::new().with_tls_server(tls);
/// # drop(net);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TlsServer(pub(super) Arc<ServerConfig>, bool);

/// Which servers a worker trusts, and the certificate that it presents when a server requires one.
///
/// ```
/// use gannet_transport::multi::Transports;
/// use gannet_transport::tls::{TlsClient, TlsFileError};
///
/// # let folder = tempfile::tempdir()?;
/// # let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
/// # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
/// # std::fs::write(&cert, made.cert.pem())?;
/// # std::fs::write(&key, made.signing_key.serialize_pem())?;
/// // The server's certificate is for "localhost", and workers connect to 127.0.0.1.
/// let net = Transports::new().with_tls_client(TlsClient::load(&cert, Some("localhost"), None)?);
/// let missing = TlsClient::load(&folder.path().join("none.pem"), None, None);
/// assert!(matches!(missing, Err(TlsFileError::Read { flag: "--tls-ca", .. })));
/// # drop(net);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TlsClient {
    pub(super) config: Arc<ClientConfig>,
    /// The name that must be in the server's certificate. `None`: the host of the address.
    pub(super) name: Option<ServerName<'static>>,
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsServer")
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient")
    }
}

impl TlsServer {
    /// `cert`: the server's certificate and the chain to its authority. `key`: its private key. `client_ca`: only
    /// clients with a certificate signed by an authority in this file may connect.
    ///
    /// # Errors
    /// A file cannot be read, or its content cannot be used.
    pub fn load(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<TlsServer, TlsFileError> {
        let (chain, secret) = (certificates("--tls-cert", cert)?, private_key(key)?);
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().expect("ring has TLS 1.3");
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = authorities("--tls-client-ca", ca)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
                builder.with_client_cert_verifier(verifier.build().map_err(|error| {
                    TlsFileError::Unusable {
                        flag: "--tls-client-ca",
                        path: ca.to_owned(),
                        why: error.to_string(),
                    }
                })?)
            }
        };
        let mut config =
            builder.with_single_cert(chain, secret).map_err(|error| unusable(&error, cert, key))?;
        // A worker connects rarely, so session tickets would use memory and bytes without benefit.
        (config.session_storage, config.send_tls13_tickets) = (Arc::new(NoServerSessionStorage {}), 0);
        Ok(TlsServer(Arc::new(config), client_ca.is_some()))
    }

    /// The settings, for servers of other protocols.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.clone()
    }

    /// Whether only clients with a certificate may connect.
    pub fn asks_for_certificates(&self) -> bool {
        self.1
    }
}

impl TlsClient {
    /// `ca`: the authorities that may sign a server's certificate. `name`: the name in the certificate, if it is not
    /// the host of the address. `own`: the worker's certificates and private key, for servers that require them.
    ///
    /// # Errors
    /// A file cannot be read, its content cannot be used, or `name` is not a name.
    pub fn load(
        ca: &Path,
        name: Option<&str>,
        own: Option<(&Path, &Path)>,
    ) -> Result<TlsClient, TlsFileError> {
        let roots = authorities("--tls-ca", ca)?;
        let name = name.map(|name| {
            ServerName::try_from(name.to_owned()).map_err(|_| TlsFileError::Name { name: name.to_owned() })
        });
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().expect("ring has TLS 1.3");
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(certificates("--tls-cert", cert)?, private_key(key)?)
                .map_err(|error| unusable(&error, cert, key))?,
        };
        config.resumption = Resumption::disabled();
        Ok(TlsClient { config: Arc::new(config), name: name.transpose()? })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let bytes = read_pem_file(flag, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| not_pem(flag, path, &error))?;
    if all.is_empty() {
        let (path, what, label) = (path.to_owned(), "certificate", "CERTIFICATE");
        return Err(TlsFileError::Nothing { flag, path, what, label });
    }
    Ok(all)
}

fn authorities(flag: &'static str, path: &Path) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(flag, path)? {
        roots.add(certificate).map_err(|error| TlsFileError::Unusable {
            flag,
            path: path.to_owned(),
            why: format!("a certificate in it cannot be used: {error}"),
        })?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let flag = "--tls-key";
    match PrivateKeyDer::from_pem_slice(&read_pem_file(flag, path)?) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            let (path, what, label) = (path.to_owned(), "private key without a passphrase", "PRIVATE KEY");
            Err(TlsFileError::Nothing { flag, path, what, label })
        }
        Err(error) => Err(not_pem(flag, path, &error)),
    }
}

fn read_pem_file(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsFileError> {
    let failed = |source| TlsFileError::Read { flag, path: path.to_owned(), source };
    // Checked before the file is opened, because opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(TlsFileError::Unusable {
            flag,
            path: path.to_owned(),
            why: "it is not a regular file".into(),
        });
    }
    std::fs::read(path).map_err(failed)
}

/// Says where a file stops being PEM. The error does not repeat the content, which may be a key.
fn not_pem(flag: &'static str, path: &Path, error: &pem::Error) -> TlsFileError {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "it is truncated: a line -----END ...----- is missing",
        pem::Error::IllegalSectionStart { .. } => "a line -----BEGIN ...----- in it is broken",
        pem::Error::Base64Decode(_) => "the text between its BEGIN and END lines is not base64",
        _ => "it is not a PEM file",
    };
    TlsFileError::Unusable { flag, path: path.to_owned(), why: why.into() }
}

fn unusable(error: &rustls::Error, cert: &Path, key: &Path) -> TlsFileError {
    let at = |flag, path: &Path, why| TlsFileError::Unusable { flag, path: path.to_owned(), why };
    match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsFileError::Pair { cert: cert.to_owned(), key: key.to_owned() }
        }
        rustls::Error::InvalidCertificate(error) => {
            at("--tls-cert", cert, format!("its first certificate cannot be used: {error:?}"))
        }
        _ => at(
            "--tls-key",
            key,
            "this kind of key cannot be used: give RSA (2048 bits or more), ECDSA (P-256, P-384) or Ed25519"
                .into(),
        ),
    }
}
