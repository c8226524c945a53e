//! Memory: huge pages for tables, and the limit of locked memory.

use crate::doctor::finding::Finding;
use gannet::storage::try_huge_page;
use gannet::transport::verbs;
use std::fs::read_to_string;
use std::io;

/// Checks memory. The limit of locked memory matters only with an RDMA device.
pub fn findings(with_devices: bool) -> Vec<Finding> {
    vec![huge_pages(&try_huge_page()), locked(with_devices)]
}

fn huge_pages(tried: &io::Result<()>) -> Finding {
    let setting = |name: &str| chosen(&format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let system = format!("enabled: {}, shmem_enabled: {}", setting("enabled"), setting("shmem_enabled"));
    match tried {
        Ok(()) => Finding::ok(
            "memory",
            format!("a full chunk of a table in memory becomes a huge page (MADV_COLLAPSE; {system})"),
        ),
        Err(error) => Finding::note(
            "memory",
            format!(
                "tables in memory stay in 4 KiB pages and large ones are read more slowly: MADV_COLLAPSE: {error} ({system})"
            ),
            "Linux 6.1 or later with transparent huge pages is needed, and shmem_enabled must not be `deny`: echo advise > \
             /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
    }
}

/// The word in brackets.
fn chosen(file: &str) -> String {
    let text = read_to_string(file).unwrap_or_default();
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or("not there".into(), |(word, _)| word.to_owned())
}

fn locked(with_devices: bool) -> Finding {
    let Some(bytes) = verbs::locked_bytes_max() else {
        return Finding::ok("memory", "no limit of locked memory (memlock)");
    };
    let privileged = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK));
    let text = format!("{bytes} bytes may be locked (memlock)");
    match (with_devices, privileged) {
        (_, true) => Finding::ok("memory", format!("{text}; this process is allowed more (CAP_IPC_LOCK)")),
        (false, false) => Finding::ok("memory", format!("{text}; only RDMA needs more")),
        (true, false) => Finding::note(
            "memory",
            format!("{text}: tables and buffers beyond that cannot be registered for RDMA"),
            "ulimit -l unlimited, memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity of a systemd service, or \
             --ulimit memlock=-1 of a container",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pages_are_a_note_with_a_remedy() {
        let finding = huge_pages(&Err(io::Error::from_raw_os_error(22))).json();
        assert_eq!(finding["level"], "note");
        assert!(finding["text"].as_str().unwrap().contains("4 KiB"), "{finding}");
        assert!(finding["remedy"].as_str().unwrap().contains("shmem_enabled"), "{finding}");
    }
}
