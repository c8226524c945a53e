//! Which devices answer READs by themselves. Software devices (rxe, siw), and devices that use the host's
//! processor for this (hfi1, qib, pvrdma), have the same verbs. Only the vendor tells them apart. A vendor that
//! is not listed counts as software, which is slower but always correct.

use crate::remote::ReadCapability;

/// Vendors whose devices read the host's memory themselves. The numbers are those of
/// `ibv_device_attr.vendor_id`: an OUI (NVIDIA's, formerly Mellanox's) or a PCI vendor number.
const VENDORS: [(u32, &str); 8] = [
    (0x02_c9, "NVIDIA (mlx4, mlx5)"),
    (0x10_77, "Marvell (qedr)"),
    (0x14_14, "Microsoft (mana)"),
    (0x14_25, "Chelsio (cxgb4)"),
    (0x14_e4, "Broadcom (bnxt_re)"),
    (0x19_e5, "Huawei (hns)"),
    (0x1d_ed, "Alibaba (erdma)"),
    (0x80_86, "Intel (irdma)"),
];

/// How a device of this vendor answers READs of this host's memory.
///
/// Whole lines are read if the device is listed, and if the host's PCI Express reads memory line by line,
/// coherently with the caches: x86-64. (A PCI Express completion ends only at multiples of 64 bytes, so the
/// bytes of one line come in one completion. FaRM and others rely on this too.)
pub(crate) fn answering(vendor: u32) -> ReadCapability {
    let by_device = VENDORS.iter().any(|(known, _)| *known == vendor);
    ReadCapability { by_device, whole_lines: by_device && cfg!(target_arch = "x86_64") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_and_strangers_promise_nothing() {
        // rxe before and since Linux 5.1, siw, hfi1 and qib, pvrdma.
        for vendor in [0, 0xff_ffff, 0x62_6d74, 0x11_75, 0x15_ad] {
            assert_eq!(answering(vendor), ReadCapability::default(), "{vendor:#x}");
        }
        assert!(answering(0x02_c9).by_device);
    }
}
