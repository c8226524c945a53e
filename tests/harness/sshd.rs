//! A server of ssh on loopback, for jobs on several hosts: 127.0.0.1 and 127.0.0.2 are two of them.

use super::*;
use std::fs;
use std::path::PathBuf;

/// See the module. Dropping it ends it.
pub struct Sshd {
    _process: Owned,
    folder: tempfile::TempDir,
    port: String,
}

fn key(at: PathBuf) -> PathBuf {
    let mut command = Command::new("ssh-keygen");
    let done = command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&at).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    at
}

impl Sshd {
    pub fn start() -> Sshd {
        let folder = tempfile::tempdir().unwrap();
        let (host, user) = (key(folder.path().join("host")), key(folder.path().join("user")));
        let addr = ports::free_addr();
        let port = addr.rsplit(':').next().unwrap().to_owned();
        let config = folder.path().join("config");
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nListenAddress 127.0.0.2\nHostKey {}\nAuthorizedKeysFile {}.pub\n\
             PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 100\n",
            host.display(),
            user.display()
        );
        fs::write(&config, text).unwrap();
        // Without it sshd does not start. A package makes it at boot.
        let _ = fs::create_dir_all("/run/sshd");
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f"]).arg(&config).stdin(Stdio::null()).stderr(log);
        let child = command.spawn().expect("sshd is installed (scripts/test.sh does that)");
        let sshd = Sshd { _process: Owned(child), folder, port };
        let begun = Instant::now();
        while std::net::TcpStream::connect(&addr).is_err() {
            let log = fs::read_to_string(sshd.folder.path().join("log"));
            assert!(begun.elapsed() < LIMIT, "sshd does not listen: {log:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    /// The command that connects to it, for `--ssh`.
    pub fn command(&self) -> String {
        format!(
            "ssh -F none -p {} -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            self.port,
            self.folder.path().join("user").display()
        )
    }
}
