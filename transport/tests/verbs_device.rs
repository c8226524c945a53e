//! A real device, named by GANNET_RDMA_DEVICE (scripts/test_rdma.sh sets it, in a guest or for a device of this
//! machine). The kernel and the library agree about it, memory can be registered, and the error about a limit that is
//! too low names the limit.
#![cfg(feature = "verbs")]

use gannet_transport::verbs::{BUILT, DeviceError, devices, limits, locked_bytes_max, try_registration};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The device to test on.
fn device() -> Option<String> {
    let device = std::env::var("GANNET_RDMA_DEVICE").ok().filter(|name| !name.is_empty());
    if device.is_none() {
        eprintln!("skipped: GANNET_RDMA_DEVICE names no device; make test-rdma does");
    }
    device
}

#[test]
fn kernel_and_library_agree_about_a_device() {
    let Some(name) = device() else { return };
    assert!(BUILT.is_some());
    let all = devices();
    let device = all.iter().find(|device| device.name == name).unwrap_or_else(|| panic!("{name}? {all:?}"));
    let limits = limits(&name).unwrap();
    assert_eq!(
        device.ports.iter().map(|port| port.number).collect::<Vec<_>>(),
        limits.ports.iter().map(|port| port.number).collect::<Vec<_>>(),
    );
    let active = device.ports.iter().find(|port| port.is_active()).expect("no port is active");
    assert!(!active.addresses().is_empty(), "{active:?}");
    let port = limits.ports.iter().find(|port| port.number == active.number).unwrap();
    assert!((256..=4096).contains(&port.mtu) && port.mtu.is_power_of_two(), "{port:?}");
    assert!(port.message_bytes >= port.mtu, "{port:?}");
    assert!(limits.sge >= 1 && limits.work_requests >= 64 && limits.completions >= 64, "{limits:?}");
    assert!(limits.reads_asked >= 1 && limits.reads_answered >= 1 && limits.queue_pairs >= 2, "{limits:?}");
    assert!(limits.region_bytes >= 1 << 30 && limits.regions >= 2, "{limits:?}");
}

#[test]
fn soft_roce_has_the_limits_that_it_is_known_for() {
    let Some(name) = device().filter(|name| name.starts_with("rxe")) else { return };
    let limits = limits(&name).unwrap();
    assert_eq!((limits.sge, limits.reads_answered, limits.inline_bytes), (32, 128, 512), "{limits:?}");
    let kind = gannet_transport::verbs::GidKind::RoceV2;
    let all = devices();
    let gids = &all.iter().find(|device| device.name == name).unwrap().ports[0].gids;
    assert!(gids.iter().any(|gid| gid.kind == kind && gid.ip().is_ipv4()), "{gids:?}");
}

#[test]
fn the_error_about_an_absent_device_names_the_present_ones() {
    let Some(name) = device() else { return };
    let error = limits("nosuch7").unwrap_err();
    assert!(matches!(error, DeviceError::Unknown { .. }), "{error}");
    assert!(error.to_string().contains(&name), "{error}");
}

/// This test first gives up the right to lock unlimited memory. Only its own thread does so; the limit belongs to the
/// process.
#[test]
fn a_registration_beyond_memlock_names_limit_amount_and_remedy() {
    let Some(name) = device() else { return };
    try_registration(&name, 1 << 20).unwrap();

    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), ..before }).unwrap();
    let refused = std::thread::spawn(move || {
        if let Ok(mut sets) = capabilities(None) {
            sets.effective.remove(CapabilitySet::IPC_LOCK);
            set_capabilities(None, sets).unwrap();
        }
        assert_eq!(locked_bytes_max(), Some(64 << 10));
        try_registration(&name, 1 << 20).unwrap_err()
    });
    let refused = refused.join();
    setrlimit(Resource::Memlock, before).unwrap();
    let refused = refused.unwrap();
    let text = refused.to_string();
    assert!(matches!(refused, DeviceError::Registration { bytes: 1_048_576, .. }), "{text}");
    for part in ["1048576 bytes", "65536 bytes", "ulimit -l", "LimitMEMLOCK"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
