//! Tests of the coordinator of a single process.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[test]
fn a_key_ends_with_its_lease() {
    let time = Arc::new(AtomicU64::new(0));
    let clock = time.clone();
    let coordinator = MemoryCoordinator::new(Arc::new(move || Duration::from_secs(clock.load(Relaxed))));
    let lease = coordinator.grant(Duration::from_secs(3)).unwrap();
    let version = coordinator.compare_and_set("owner", 0, b"a", Some(lease)).unwrap().unwrap();
    time.store(2, Relaxed);
    assert_eq!(coordinator.keep_alive(lease), Ok(true));
    time.store(4, Relaxed);
    assert_eq!(coordinator.get("owner").unwrap().map(|entry| entry.version), Some(version));
    time.store(5, Relaxed);
    assert_eq!((coordinator.get("owner"), coordinator.keep_alive(lease)), (Ok(None), Ok(false)));
    assert_eq!(coordinator.compare_and_set("owner", version, b"b", None), Ok(None));
    assert_eq!(coordinator.compare_and_set("owner", 0, b"b", Some(lease)), Ok(None), "its lease has ended");
    assert!(coordinator.compare_and_set("owner", 0, b"b", None).unwrap().unwrap() > version);
}

fn write(key: &str, version: u64, value: &[u8]) -> CoordinatorWrite {
    CoordinatorWrite { key: key.into(), version, value: value.into(), lease: None }
}

#[test]
fn keys_are_written_together_or_not_at_all() {
    let time = Arc::new(AtomicU64::new(0));
    let clock = time.clone();
    let coordinator = MemoryCoordinator::new(Arc::new(move || Duration::from_secs(clock.load(Relaxed))));
    let first = coordinator.compare_and_set("a", 0, b"1", None).unwrap().unwrap();
    let both =
        |of_a, of_b| coordinator.compare_and_set_all(&[write("a", of_a, b"2"), write("b", of_b, b"3")]);
    let known = |key| coordinator.get(key).unwrap().map(|entry| (entry.value, entry.version));
    assert_eq!((both(0, 0), both(first, first)), (Ok(None), Ok(None)));
    assert_eq!((known("a"), known("b")), (Some((b"1".to_vec(), first)), None));
    let version = both(first, 0).unwrap().expect("both have these versions");
    assert!(version > first);
    assert_eq!((known("a"), known("b")), (Some((b"2".to_vec(), version)), Some((b"3".to_vec(), version))));
    // One of them with a lease that has ended.
    let lease = coordinator.grant(Duration::from_secs(3)).unwrap();
    time.store(3, Relaxed);
    let late = CoordinatorWrite { lease: Some(lease), ..write("b", version, b"5") };
    assert_eq!(coordinator.compare_and_set_all(&[write("a", version, b"4"), late]), Ok(None));
    assert_eq!(known("a"), Some((b"2".to_vec(), version)));
    let twice = coordinator.compare_and_set_all(&[write("c", 0, b""), write("c", 0, b"")]).unwrap_err();
    assert!(twice.0.contains("\"c\" is written twice"), "{twice}");
    let many: Vec<_> = (0..=COORDINATOR_WRITES_MAX).map(|key| write(&format!("d/{key}"), 0, b"")).collect();
    assert!(coordinator.compare_and_set_all(&many).unwrap_err().0.contains("65 writes at once: 64 are"));
    assert!(coordinator.compare_and_set_all(&many[1..]).unwrap().is_some());
}

#[test]
fn keys_survive_the_process_and_leases_last_for_another_of_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicU64::new(50));
    let clock = time.clone();
    let clock: Clock = Arc::new(move || Duration::from_secs(clock.load(Relaxed)));
    let first = MemoryCoordinator::open(folder.path(), clock.clone()).unwrap();
    let lease = first.grant(Duration::from_secs(3)).unwrap();
    let place = first.compare_and_set("place", 0, b"a", None).unwrap().unwrap();
    let owner = first.compare_and_set("owner", 0, b"b", Some(lease)).unwrap().unwrap();
    drop(first);
    // A server that takes long to start hears nobody meanwhile.
    let slow = MemoryCoordinator::open(folder.path(), clock.clone()).unwrap();
    time.store(90, Relaxed);
    slow.begin_wait(Duration::from_secs(1));
    assert_eq!(slow.get("owner").unwrap().map(|entry| entry.version), Some(owner));
    drop(slow);
    // The clock of another process begins anew.
    time.store(1, Relaxed);
    let second = MemoryCoordinator::open(folder.path(), clock.clone()).unwrap();
    assert_eq!(second.get("place").unwrap().map(|entry| entry.version), Some(place));
    assert_eq!(second.compare_and_set("place", 0, b"c", None), Ok(None));
    time.store(3, Relaxed);
    assert_eq!(second.keep_alive(lease), Ok(true));
    time.store(5, Relaxed);
    assert_eq!(second.get("owner").unwrap().map(|entry| entry.version), Some(owner));
    time.store(6, Relaxed);
    assert_eq!(second.get("owner"), Ok(None));
    assert!(second.grant(Duration::from_secs(3)).unwrap() > owner, "a number is never given twice");
}

#[test]
fn a_write_that_cannot_be_kept_did_not_happen() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).unwrap();
    std::fs::create_dir(folder.path().join("COORDINATOR.new")).unwrap();
    assert!(coordinator.compare_and_set("place", 0, b"a", None).unwrap_err().0.contains("COORDINATOR"));
    assert_eq!(coordinator.get("place"), Ok(None));
    std::fs::remove_dir(folder.path().join("COORDINATOR.new")).unwrap();
    assert!(coordinator.compare_and_set("place", 0, b"a", None).unwrap().is_some());
    std::fs::write(folder.path().join("COORDINATOR"), b"GNTCOOR1 but torn").unwrap();
    let torn = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).err().unwrap();
    assert!(torn.0.contains("COORDINATOR") && torn.0.contains("checksum"), "{torn}");
}

#[test]
fn pages_have_all_keys_of_a_prefix_in_order() {
    let coordinator = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
    let count = 2 * COORDINATOR_PAGE_KEYS + 3;
    let keys: Vec<String> = (0..count).map(|key| format!("job/{key:04}")).collect();
    keys.iter().for_each(|key| {
        coordinator.compare_and_set(key, 0, key.as_bytes(), None).unwrap();
    });
    for other in ["jo", "job", "job0", "jobs/0001"] {
        coordinator.compare_and_set(other, 0, b"", None).unwrap();
    }
    let first = coordinator.list("job/", "").unwrap();
    assert_eq!((first.entries.len(), first.more), (COORDINATOR_PAGE_KEYS, true));
    let (all, version) = gannet_wire::coordinator::list_all(&coordinator, "job/").unwrap();
    assert_eq!(all.iter().map(|(key, _)| key).collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>());
    assert!(all.iter().all(|(key, entry)| entry.value == key.as_bytes() && entry.version <= version));
    // Long values end a page before it is full.
    let long = vec![0; COORDINATOR_BYTES_MAX - 10];
    (0..9).for_each(|key| {
        coordinator.compare_and_set(&format!("long/{key}"), 0, &long, None).unwrap();
    });
    let page = coordinator.list("long/", "").unwrap();
    assert!(page.more && page.entries.len() == 5, "{} keys", page.entries.len());
    assert_eq!(gannet_wire::coordinator::list_all(&coordinator, "long/").unwrap().0.len(), 9);
}

#[test]
fn a_watch_sees_writes_and_ends_of_leases() {
    let folder = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicU64::new(0));
    let clock = time.clone();
    let clock: Clock = Arc::new(move || Duration::from_secs(clock.load(Relaxed)));
    let coordinator = MemoryCoordinator::open(folder.path(), clock.clone()).unwrap();
    let watch = |since| coordinator.watch("a/", since, Duration::from_secs(9)).unwrap();
    let begun = coordinator.list("a/", "").unwrap().version;
    assert_eq!(watch(begun), None);
    coordinator.compare_and_set("b/1", 0, b"", None).unwrap();
    assert_eq!(watch(begun), None, "the key of another prefix");
    let lease = coordinator.grant(Duration::from_secs(3)).unwrap();
    let written = coordinator.compare_and_set("a/1", 0, b"", Some(lease)).unwrap();
    assert_eq!((watch(begun), watch(written.unwrap())), (written, None));
    time.store(3, Relaxed);
    let ended = watch(written.unwrap()).expect("the lease has ended");
    assert_eq!(watch(ended), None);
    drop(coordinator);
    // The number of the end was not kept, and is not given again.
    let again = MemoryCoordinator::open(folder.path(), clock).unwrap();
    let later = again.compare_and_set("a/2", 0, b"", None).unwrap().unwrap();
    assert_eq!(again.watch("a/", ended, Duration::ZERO), Ok(Some(later)));
    let new = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
    assert!(new.watch("a/", later, Duration::ZERO).unwrap().is_some(), "another coordinator");
}

#[test]
fn a_lease_does_not_end_by_a_time_in_which_nobody_is_heard() {
    let time = Arc::new(AtomicU64::new(0));
    let clock = time.clone();
    let coordinator = MemoryCoordinator::new(Arc::new(move || Duration::from_millis(clock.load(Relaxed))));
    let (lease, tick) = (Duration::from_secs(2), Duration::from_secs(1));
    let pass = |millis| time.fetch_add(millis, Relaxed);
    let begin = || {
        coordinator.begin_wait(tick);
        let lease = coordinator.grant(lease).unwrap();
        coordinator.compare_and_set(&format!("{lease}"), 0, b"", Some(lease)).unwrap().unwrap();
        lease
    };
    let is_there = |lease: u64| coordinator.get(&lease.to_string()).unwrap().is_some();
    // The thread waits for a disk. Then it answers others before it hears of the owner.
    let first = begin();
    coordinator.end_wait();
    pass(9000);
    assert!(is_there(first));
    coordinator.begin_wait(tick);
    pass(1000);
    coordinator.end_wait();
    assert!(is_there(first) && coordinator.keep_alive(first).unwrap());
    // The system stops the thread while it waits for requests.
    coordinator.begin_wait(tick);
    pass(9000);
    coordinator.end_wait();
    assert!(is_there(first));
    // A lease that is renewed late in such a time is no longer by what came before.
    pass(9000);
    assert!(coordinator.keep_alive(first).unwrap());
    coordinator.begin_wait(tick);
    pass(1000);
    coordinator.end_wait();
    assert!(is_there(first));
    coordinator.begin_wait(tick);
    pass(1000);
    coordinator.end_wait();
    assert!(!is_there(first), "it was renewed two seconds ago");
    // Two waits in which nobody came.
    let second = begin();
    for _ in 0..2 {
        assert!(is_there(second));
        coordinator.begin_wait(tick);
        pass(1000);
        coordinator.end_wait();
    }
    assert!(!is_there(second));
    // A thread that waits for its disk again and again ends leases, too.
    let third = begin();
    let turns = (1..1000).find(|_| {
        coordinator.end_wait();
        pass(1000);
        coordinator.begin_wait(tick);
        !is_there(third)
    });
    assert_eq!(turns, Some(UNHEARD_PART as usize));
}

#[test]
fn limits_are_named() {
    let coordinator = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
    let long = coordinator.compare_and_set("k", 0, &[0; COORDINATOR_BYTES_MAX], None).unwrap_err();
    assert!(long.0.contains("16385 bytes"), "{long}");
    assert!(coordinator.grant(Duration::from_millis(1)).unwrap_err().0.contains("0.001 s"));
    for key in 0..COORDINATOR_KEYS_MAX {
        coordinator.compare_and_set(&key.to_string(), 0, b"", None).unwrap();
    }
    assert!(coordinator.compare_and_set("more", 0, b"", None).unwrap_err().0.contains("4096 keys"));
}

#[test]
fn keys_are_removed_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).unwrap();
    let versions = ["a", "b"].map(|key| coordinator.compare_and_set(key, 0, b"", None).unwrap().unwrap());
    let all = |of_a, of_b| coordinator.remove_all(&[("a".into(), of_a), ("b".into(), of_b)]);
    assert_eq!((all(versions[0], 0), all(versions[1], versions[1])), (Ok(false), Ok(false)));
    assert!(coordinator.get("a").unwrap().is_some() && coordinator.get("b").unwrap().is_some());
    let since = coordinator.list("a", "").unwrap().version;
    assert_eq!(all(versions[0], versions[1]), Ok(true));
    assert!(coordinator.watch("a", since, Duration::ZERO).unwrap().is_some());
    drop(coordinator);
    let again = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).unwrap();
    assert_eq!((again.get("a"), again.get("b")), (Ok(None), Ok(None)));
    assert!(again.remove_all(&vec![("a".into(), 0); 65]).unwrap_err().0.contains("65 writes at once"));
}
