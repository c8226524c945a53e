//! RDMA devices: their state in the kernel and the library, and whether they can register memory.

use crate::doctor::finding::{Finding, Level};
use bytesize::ByteSize;
use gannet::transport::verbs::{self, Device, DeviceError, GidKind, Limits, Port};
use serde_json::{Value, json};

/// Bytes to register as a test: the rings of sixteen sessions.
const TRIAL_BYTES: usize = 16 << 20;

/// Packets of this size waste little. Ethernet needs an interface MTU of 4200 or more for them.
const MTU_GOOD: u32 = 4096;

pub fn findings(devices: &[Device]) -> Vec<Finding> {
    let mut findings = vec![built()];
    if devices.is_empty() {
        findings.push(Finding::note(
            "rdma",
            "no RDMA device: --transport auto uses shm and tcp",
            "if there is a card, load its driver (`rdma link` lists devices); any Ethernet interface can do it in software: \
             modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0",
        ));
    }
    for device in devices {
        if device.is_iwarp() {
            findings.push(Finding::note(
                "rdma",
                format!("{} is {}", device.name, verbs::IWARP),
                "--transport auto uses shm and tcp",
            ));
            continue;
        }
        let limits = verbs::limits(&device.name);
        let of_port = |port: &Port| {
            let ports = limits.iter().flat_map(|limits| &limits.ports);
            ports.into_iter().find(|found| found.number == port.number).map(|found| found.mtu)
        };
        findings.extend(device.ports.iter().flat_map(|port| self::port(&device.name, port, of_port(port))));
        findings.extend(match &limits {
            Ok(limits) => vec![self::limits(&device.name, limits), registration(&device.name)],
            Err(error) => vec![unusable(error)],
        });
    }
    findings
}

fn built() -> Finding {
    match verbs::BUILT {
        Some(how) => Finding::ok("rdma", format!("built with RDMA (libibverbs and librdmacm are {how})")),
        None => Finding::note(
            "rdma",
            "built without RDMA: verbs cannot be used",
            "cargo build --release --features rdma (or rdma-dlopen: one binary for machines with and without)",
        ),
    }
}

fn unusable(error: &DeviceError) -> Finding {
    let level = if matches!(error, DeviceError::NotBuilt { .. }) { Level::Note } else { Level::Problem };
    Finding::not("rdma", level, error.to_string(), "")
}

fn port(device: &str, port: &Port, mtu: Option<u32>) -> Vec<Finding> {
    let name = format!("{device} port {}", port.number);
    if !port.is_active() {
        return vec![Finding::not(
            "rdma",
            Level::Problem,
            format!("{name} is {}", port.state),
            "its cable, its switch, and `ip link set dev INTERFACE up`; `rdma link` shows the state",
        )];
    }
    let interface = port.gids.iter().find_map(|gid| gid.interface.as_deref()).unwrap_or("INTERFACE");
    if port.addresses().is_empty() {
        return vec![Finding::not(
            "rdma",
            Level::Problem,
            format!("{name} has no IP address that RDMA can use (no GID of RoCE v2): peers cannot name it"),
            format!("ip addr add ADDRESS/24 dev {interface}"),
        )];
    }
    let addresses: Vec<String> = port.addresses().iter().map(ToString::to_string).collect();
    let (layer, rate, addresses) = (&port.link_layer, &port.rate, addresses.join(", "));
    let packets = mtu.map_or(String::new(), |mtu| format!(", packets of {mtu} bytes"));
    let text = format!("{name} is ACTIVE: {layer}, {rate}{packets}, addresses {addresses}");
    let mut findings = vec![Finding::ok("rdma", text)];
    if let Some(mtu) = mtu.filter(|&mtu| mtu < MTU_GOOD && layer == "Ethernet") {
        findings.push(Finding::note(
            "rdma",
            format!("{name} sends packets of {mtu} bytes; up to {MTU_GOOD} cost less"),
            format!(
                "where every switch in between takes them: ip link set dev {interface} mtu 9000, on all hosts"
            ),
        ));
    }
    findings
}

fn limits(device: &str, limits: &Limits) -> Finding {
    let Limits {
        sge, work_requests, completions, inline_bytes, reads_asked, reads_answered, regions, ..
    } = limits;
    Finding::ok(
        "rdma",
        format!(
            "{device} takes {work_requests} work requests a queue of {sge} elements ({inline_bytes} bytes inline), \
             {completions} completions, {reads_asked} READs asked and {reads_answered} answered at once, {regions} regions"
        ),
    )
}

fn registration(device: &str) -> Finding {
    let size = ByteSize(TRIAL_BYTES as u64).display().iec();
    match verbs::try_registration(device, TRIAL_BYTES) {
        Ok(()) => Finding::ok("rdma", format!("{device} registers {size} of memory")),
        Err(error) => Finding::not("rdma", Level::Problem, error.to_string(), ""),
    }
}

/// Everything about the devices, as JSON.
pub fn json(devices: &[Device]) -> Value {
    let one = |device: &Device| {
        let limits = verbs::limits(&device.name).ok();
        json!({
            "name": device.name, "kind": device.kind, "firmware": device.firmware,
            "ports": device.ports.iter().map(|port| port_json(port, limits.as_ref())).collect::<Vec<_>>(),
            "limits": limits.as_ref().map(limits_json),
        })
    };
    devices.iter().map(one).collect()
}

fn port_json(port: &Port, limits: Option<&Limits>) -> Value {
    let ports = limits.into_iter().flat_map(|limits| &limits.ports);
    let known = ports.into_iter().find(|found| found.number == port.number);
    let kind = |kind| match kind {
        GidKind::RoceV2 => "RoCE v2",
        GidKind::V1 => "IB/RoCE v1",
        _ => "unknown",
    };
    let gids = port.gids.iter().map(
        |gid| json!({ "index": gid.index, "gid": gid.gid.to_string(), "ip": gid.ip().to_string(), "kind": kind(gid.kind), "interface": gid.interface }),
    );
    json!({
        "number": port.number, "state": port.state, "link_layer": port.link_layer, "rate": port.rate,
        "mtu": known.map(|port| port.mtu), "message_bytes": known.map(|port| port.message_bytes),
        "gids": gids.collect::<Vec<_>>(),
    })
}

fn limits_json(limits: &Limits) -> Value {
    json!({
        "sge": limits.sge, "work_requests": limits.work_requests, "completions": limits.completions,
        "queue_pairs": limits.queue_pairs, "regions": limits.regions, "region_bytes": limits.region_bytes,
        "reads_asked": limits.reads_asked, "reads_answered": limits.reads_answered, "inline_bytes": limits.inline_bytes,
    })
}
