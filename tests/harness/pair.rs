//! Tests that run on two machines at once; scripts/test_rdma.sh starts them. Both machines run the same binary with its
//! tests in the same order. They exchange messages in a folder that both can write, so a cut network does not separate
//! them.

use super::limit;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// This machine's part of a test.
pub struct Pair {
    /// 0 or 1.
    pub rank: u32,
    /// This machine's address.
    pub ip: String,
    /// The other machine's address.
    pub peer: String,
    /// Whether these are guests whose network may be cut. On real machines other users may need the network.
    pub guests: bool,
    folder: PathBuf,
    test: &'static str,
}

impl Pair {
    /// This machine's part of the test with this name. `None`, with a message, if there are not two machines.
    pub fn of(test: &'static str) -> Option<Pair> {
        let said = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(folder) = said("GANNET_PAIR_DIR") else {
            eprintln!("skipped: a test for two machines; make test-rdma has them");
            return None;
        };
        let known = |name| said(name).unwrap_or_else(|| panic!("{name} is not set"));
        let (rank, ip, peer) = (known("NODE_RANK").parse().unwrap(), known("NODE_IP"), known("PEER_IP"));
        let guests = std::env::var_os("GANNET_GUEST").is_some();
        let pair = Pair { rank, guests, ip, peer, folder: folder.into(), test };
        pair.meet("begin");
        Some(pair)
    }

    fn file(&self, what: &str, rank: u32) -> PathBuf {
        self.folder.join(format!("{}.{what}.{rank}", self.test))
    }

    /// Leaves a message for the other machine.
    pub fn send(&self, what: &str, text: &str) {
        let (file, new) = (self.file(what, self.rank), self.file(&format!("{what}.new"), self.rank));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// The other machine's message, if it has arrived.
    pub fn message(&self, what: &str) -> Option<String> {
        std::fs::read_to_string(self.file(what, 1 - self.rank)).ok()
    }

    /// Waits for the other machine's message, and returns it.
    pub fn wait_for(&self, what: &str) -> String {
        let (file, start) = (self.file(what, 1 - self.rank), Instant::now());
        while start.elapsed() < limit() {
            if let Ok(text) = std::fs::read_to_string(&file) {
                return text;
            }
            assert!(!self.file("failed", 1 - self.rank).exists(), "the other machine's part has failed");
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("node {} has not said {what:?} of {} for {:?}", 1 - self.rank, self.test, limit())
    }

    /// Waits until both machines have called this.
    pub fn meet(&self, what: &str) {
        self.send(what, "");
        self.wait_for(what);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.send("failed", "");
        }
    }
}
