//! Faults of certificates and keys, and of the peers that present them.

use rustls::{AlertDescription, CertificateError, Error};
use std::io;
use std::path::PathBuf;

/// Why a file cannot be used for TLS. [`TlsClient`](super::TlsClient) has an example.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// It cannot be read.
    #[error("{flag} {}: {source}", path.display())]
    Read {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It holds no certificate or no key.
    #[error("{flag} {}: it has no {what}; give a PEM file with a line -----BEGIN {label}-----", path.display())]
    Nothing {
        /// The flag that names it.
        flag: &'static str,
        /// What is missing: a certificate or a private key.
        path: PathBuf,
        /// A certificate or a private key.
        what: &'static str,
        /// The label of the PEM line.
        label: &'static str,
    },
    /// Its content cannot be used.
    #[error("{flag} {}: {why}", path.display())]
    Unusable {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate belongs to another key.
    #[error("--tls-key {} is not the key of the first certificate of --tls-cert {}", key.display(), cert.display())]
    Pair {
        /// The certificates.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// Neither a host name nor an IP address.
    #[error("--tls-name {name:?}: give a host name or an IP address that is in the server's certificate")]
    Name {
        /// The name that the flag gave.
        name: String,
    },
}

/// Why a connection could not be protected. The error ends that connection. [`LinkError`](crate::LinkError) may hold
/// one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The server answers, but does not speak TLS.
    #[error(
        "the server does not speak TLS: start it with --tls-cert FILE and --tls-key FILE, or leave out --tls-ca here"
    )]
    PlainServer,
    /// The client does not speak TLS.
    #[error("the client does not speak TLS: give the worker --tls-ca FILE")]
    PlainClient,
    /// The server's certificate is not trusted.
    #[error("the server's certificate is not trusted: {0}")]
    Certificate(String),
    /// The client's certificate is not trusted.
    #[error("the client's certificate is not trusted: {0}")]
    ClientCertificate(String),
    /// The client has presented no certificate.
    #[error(
        "the client presented no certificate, but --tls-client-ca requires one: give the worker --tls-cert and --tls-key"
    )]
    NoClientCertificate,
    /// The peer refused.
    #[error("the peer ended TLS: {0}")]
    Alert(String),
    /// The expected name of the server's certificate is not a name.
    #[error(
        "{0:?} is neither a host name nor an IP address: give --tls-name with a name in the server's certificate"
    )]
    Name(String),
    /// Any other fault of TLS.
    #[error("TLS failed: {0}")]
    Other(String),
}

impl TlsError {
    /// The TLS error inside an error of a stream.
    pub(crate) fn of(error: &io::Error) -> Option<TlsError> {
        error.get_ref()?.downcast_ref::<TlsError>().cloned()
    }

    /// Turns an error of rustls into a message with a remedy. `of_server`: this side is the client.
    pub(super) fn new(error: &Error, of_server: bool) -> TlsError {
        match error {
            Error::InvalidCertificate(error) if of_server => {
                TlsError::Certificate(certificate_text(error, true))
            }
            Error::InvalidCertificate(error) => TlsError::ClientCertificate(certificate_text(error, false)),
            Error::NoCertificatesPresented => TlsError::NoClientCertificate,
            Error::AlertReceived(alert) => TlsError::Alert(alert_text(*alert, of_server)),
            other => TlsError::Other(other.to_string()),
        }
    }
}

/// What is wrong with a certificate, and what to do about it.
fn certificate_text(error: &CertificateError, of_server: bool) -> String {
    let (cert, ca) = match of_server {
        true => ("the server's --tls-cert", "--tls-ca"),
        false => ("the worker's --tls-cert", "--tls-client-ca"),
    };
    let name = |expected: &str, presented: &str| {
        format!(
            "it is not made for {expected:?}{presented}: give --tls-name with one of its names, or make a certificate for that name"
        )
    };
    match error {
        CertificateError::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            format!("it expired {days} days ago: renew {cert}")
        }
        CertificateError::Expired => format!("it has expired: renew {cert}"),
        CertificateError::NotValidYetContext { .. } | CertificateError::NotValidYet => {
            format!("it is not valid yet: check the clocks of both machines, and {cert}")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let has = if presented.is_empty() {
                String::from(", or any name")
            } else {
                format!(" but for {}", presented.join(", "))
            };
            name(&expected.to_str(), &has)
        }
        CertificateError::NotValidForName => name("this address", ""),
        CertificateError::UnknownIssuer => {
            format!(
                "no authority in {ca} has signed it: give {ca} the certificate of the authority that signed {cert}"
            )
        }
        CertificateError::BadSignature => {
            format!(
                "{ca} has an authority of the right name but with another key: give {ca} the certificate of the authority that signed it"
            )
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            format!("it is an authority's certificate: sign another one with it, and give that to {cert}")
        }
        other => format!("{other:?}: check {cert} and {ca}"),
    }
}

/// What the peer's last alert means.
fn alert_text(alert: AlertDescription, of_server: bool) -> String {
    use AlertDescription::*;
    match (alert, of_server) {
        (CertificateRequired, true) => {
            "it requires a certificate: give --tls-cert FILE and --tls-key FILE, signed by an authority of its --tls-client-ca".into()
        }
        (BadCertificate | UnsupportedCertificate | CertificateRevoked | CertificateUnknown | UnknownCA, true) => {
            format!("it does not trust our --tls-cert ({alert:?}): give one that is signed by an authority of its --tls-client-ca")
        }
        (CertificateExpired, true) => "our --tls-cert has expired: renew it".into(),
        (BadCertificate | CertificateExpired | CertificateUnknown | UnknownCA, false) => {
            format!("it does not trust our --tls-cert ({alert:?})")
        }
        (alert, _) => format!("{alert:?}"),
    }
}
