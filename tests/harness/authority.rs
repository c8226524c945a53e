//! Certificates for tests of TLS.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority, and files that it has signed.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    pub fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    /// Flags that present a certificate for this name, valid until January of that year.
    pub fn shows(&self, file: &str, name: &str, until: i32) -> String {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().unwrap();
        let (cert, secret) = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        std::fs::write(&cert, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        format!("--tls-cert {cert} --tls-key {secret}")
    }

    /// Flags that trust what it has signed.
    pub fn believed(&self) -> String {
        format!("--tls-ca {}", self.path("ca.pem"))
    }
}
