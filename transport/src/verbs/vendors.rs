//! Which devices answer READs by themselves. Software devices (rxe, siw) and those that leave the work to the host's processor (hfi1, qib, pvrdma) have
//! the same verbs: only who made a device tells. Who is not listed is taken for software, which is slow and never wrong.

use crate::remote::ReadCapability;

/// Makers of devices that take what is read out of memory themselves, as drivers give them in `ibv_device_attr.vendor_id`: an OUI
/// (NVIDIA's, which was Mellanox's) or the number that their PCI devices have.
const MAKERS: [(u32, &str); 8] = [
    (0x02_c9, "NVIDIA (mlx4, mlx5)"),
    (0x10_77, "Marvell (qedr)"),
    (0x14_14, "Microsoft (mana)"),
    (0x14_25, "Chelsio (cxgb4)"),
    (0x14_e4, "Broadcom (bnxt_re)"),
    (0x19_e5, "Huawei (hns)"),
    (0x1d_ed, "Alibaba (erdma)"),
    (0x80_86, "Intel (irdma)"),
];

/// How a device of this maker answers READs of this host's memory.
///
/// Lines are whole where the device is one of these and the host's PCI Express reads memory line by line, coherently with the caches: x86-64.
/// (A completion of PCI Express ends at multiples of 64 bytes only, so bytes of one line come in one; FaRM and others build on the same.)
pub(super) fn answering(maker: u32) -> ReadCapability {
    let by_device = MAKERS.iter().any(|(known, _)| *known == maker);
    ReadCapability { by_device, whole_lines: by_device && cfg!(target_arch = "x86_64") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_and_strangers_promise_nothing() {
        // rxe before and since Linux 5.1, siw, hfi1 and qib, pvrdma.
        for maker in [0, 0xff_ffff, 0x62_6d74, 0x11_75, 0x15_ad] {
            assert_eq!(answering(maker), ReadCapability::default(), "{maker:#x}");
        }
        assert!(answering(0x02_c9).by_device);
    }
}
