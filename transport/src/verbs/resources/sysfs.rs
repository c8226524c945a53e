//! The RDMA devices of the kernel, with their ports and addresses (GIDs), read from /sys/class/infiniband. This needs
//! no library. (One of the bindings cannot query the kind of a GID.)

use std::fs::read_to_string;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// The most entries of a port's GID table that are read.
const GIDS_MAX: u32 = 256;

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// The name that tools use: mlx5_0, rxe0.
    pub name: String,
    /// The version of its firmware, where it has one.
    pub firmware: Option<String>,
    /// Its ports, in order.
    pub ports: Vec<Port>,
    /// The kernel's name for the kind of device: "CA" (InfiniBand, RoCE) or "RNIC" (iWARP).
    pub kind: String,
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// Counted from 1.
    pub number: u8,
    /// ACTIVE, DOWN, INIT, ARMED.
    pub state: String,
    /// Ethernet or InfiniBand.
    pub link_layer: String,
    /// As "100 Gb/sec (4X EDR)".
    pub rate: String,
    /// The addresses that are set, in order.
    pub gids: Vec<Gid>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gid {
    /// Its index in the port's table.
    pub index: u32,
    /// The address; IPv4 addresses have the form `::ffff:a.b.c.d`.
    pub gid: Ipv6Addr,
    /// The packet format.
    pub kind: GidKind,
    /// The network interface that it belongs to, if any.
    pub interface: Option<String>,
}

/// The packet format of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidKind {
    /// InfiniBand, or RoCE v1 on Ethernet, which cannot be routed.
    V1,
    /// RoCE v2: in UDP packets.
    RoceV2,
    /// The kernel does not report the format.
    Unknown,
}

impl Device {
    /// Whether the device uses iWARP. Sessions need WRITEs with immediates, and a second queue pair on a
    /// connection; iWARP has neither.
    pub fn is_iwarp(&self) -> bool {
        self.kind == "RNIC"
    }
}

impl Port {
    /// Whether packets can be sent.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// The addresses by which rdma_cm can find the port: IP addresses, those of RoCE v2 if there are any.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = Vec::new();
        for gid in self.gids.iter().filter(|gid| gid.kind != GidKind::V1 || self.link_layer != "Ethernet") {
            let ip = gid.ip();
            if !found.contains(&ip) {
                found.push(ip);
            }
        }
        found
    }
}

impl Gid {
    /// The address, as IPv4 if it is one.
    pub fn ip(&self) -> IpAddr {
        self.gid.to_canonical()
    }
}

/// The kernel's RDMA devices, by name. A machine without devices is not an error.
pub fn devices() -> Vec<Device> {
    devices_in(Path::new("/sys/class/infiniband"))
}

fn devices_in(folder: &Path) -> Vec<Device> {
    names(folder).into_iter().map(|name| device(&folder.join(&name), name)).collect()
}

fn device(folder: &Path, name: String) -> Device {
    let mut ports: Vec<Port> = names(&folder.join("ports"))
        .iter()
        .filter_map(|port| Some(self::port(&folder.join("ports").join(port), port.parse().ok()?)))
        .collect();
    ports.sort_by_key(|port| port.number);
    // "1: CA"
    let kind = word(&folder.join("node_type")).unwrap_or_default();
    let kind = kind.rsplit(": ").next().unwrap_or_default().to_owned();
    Device { name, firmware: word(&folder.join("fw_ver")), ports, kind }
}

fn port(folder: &Path, number: u8) -> Port {
    let text = |name: &str| word(&folder.join(name)).unwrap_or_default();
    Port {
        number,
        // "4: ACTIVE"
        state: text("state").rsplit(": ").next().unwrap_or_default().to_owned(),
        link_layer: text("link_layer"),
        rate: text("rate"),
        gids: (0..GIDS_MAX).map_while(|index| gid(folder, index)).flatten().collect(),
    }
}

/// Entry `index` of the table: `None` past its end, `Some(None)` if it is not set.
fn gid(folder: &Path, index: u32) -> Option<Option<Gid>> {
    let of = |table: &str| folder.join(table).join(index.to_string());
    // Reading an unset entry may be an error, and it is not the end of the table.
    of("gids").try_exists().ok().filter(|exists| *exists)?;
    let gid = word(&of("gids")).and_then(|text| text.parse::<Ipv6Addr>().ok());
    let kind = match word(&of("gid_attrs/types")).as_deref() {
        Some("RoCE v2") => GidKind::RoceV2,
        Some("IB/RoCE v1") => GidKind::V1,
        _ => GidKind::Unknown,
    };
    let set = gid.filter(|gid| !gid.is_unspecified());
    Some(set.map(|gid| Gid { index, gid, kind, interface: word(&of("gid_attrs/ndevs")) }))
}

/// A file's one line, if it is not empty.
fn word(file: &Path) -> Option<String> {
    let text = read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_as_the_kernel_writes_it() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("rxe0/ports/1");
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(port.join(name).parent().unwrap()).unwrap();
            std::fs::write(port.join(name), text).unwrap();
        };
        write("state", "4: ACTIVE\n");
        write("link_layer", "Ethernet\n");
        write("rate", "2.5 Gb/sec (1X SDR)\n");
        let gids = [
            ("fe80:0000:0000:0000:5054:00ff:fe77:0001", "RoCE v2"),
            ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
            ("0000:0000:0000:0000:0000:ffff:0a4d:0001", "IB/RoCE v1"),
            ("0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2"),
        ];
        for (i, (gid, kind)) in gids.iter().enumerate() {
            write(&format!("gids/{i}"), gid);
            write(&format!("gid_attrs/types/{i}"), kind);
            write(&format!("gid_attrs/ndevs/{i}"), "eth0\n");
        }
        std::fs::create_dir_all(root.path().join("mlx5_0/ports")).unwrap();
        std::fs::write(root.path().join("mlx5_0/fw_ver"), "20.31.1014\n").unwrap();
        std::fs::write(root.path().join("mlx5_0/node_type"), "1: CA\n").unwrap();
        std::fs::create_dir_all(root.path().join("siw0/ports")).unwrap();
        std::fs::write(root.path().join("siw0/node_type"), "4: RNIC\n").unwrap();

        let found = devices_in(root.path());
        assert_eq!(found.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["mlx5_0", "rxe0", "siw0"]);
        assert_eq!(found.iter().map(Device::is_iwarp).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!((found[0].firmware.as_deref(), found[0].ports.len()), (Some("20.31.1014"), 0));
        let port = &found[1].ports[0];
        assert!(port.is_active() && port.link_layer == "Ethernet" && port.number == 1);
        assert_eq!(port.gids.iter().map(|gid| gid.index).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(port.gids[1].kind, GidKind::V1);
        assert_eq!(port.gids[2].interface.as_deref(), Some("eth0"));
        let want: [IpAddr; 2] = ["fe80::5054:ff:fe77:1".parse().unwrap(), "10.77.0.1".parse().unwrap()];
        assert_eq!(port.addresses(), want);
        assert_eq!(devices_in(&root.path().join("nothing")), []);
    }
}
