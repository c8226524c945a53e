//! `gannet doctor`: what Gannet can use on this machine, what it cannot, and what to do about it. Also whether peers
//! can be reached.

pub mod finding;
pub mod images;
pub mod memory;
pub mod peers;
pub mod rdma;
pub mod shared;
pub mod storage;
pub mod system;

use crate::doctor::finding::{Finding, Summary};
use crate::failure::Failure;
use crate::features;
use crate::flags::DoctorArgs;
use gannet::transport::verbs;
use serde_json::json;

/// Runs the command.
pub fn run_doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let devices = verbs::devices();
    let mut findings = Vec::new();
    findings.push(Finding::ok("features", features::words()));
    findings.extend(system::findings());
    findings.extend(memory::findings(!devices.is_empty()));
    findings.push(storage::finding(&args.data_dir));
    findings.extend(images::finding(&args.data_dir));
    findings.push(shared::finding());
    findings.extend(rdma::findings(&devices));
    for peer in &args.peer {
        findings.extend(peers::findings(peer, args)?);
    }
    let summary = Summary::of(&findings);
    if args.json {
        let findings: Vec<_> = findings.iter().map(Finding::json).collect();
        let (version, devices) = (env!("CARGO_PKG_VERSION"), rdma::json(&devices));
        say!(
            "{}",
            json!({
                "version": version, "features": features::built(), "rdma": verbs::BUILT, "memlock_bytes": verbs::locked_bytes_max(),
                "findings": findings, "devices": devices, "notes": summary.notes, "problems": summary.problems,
            })
        );
    } else {
        findings.iter().for_each(Finding::say);
    }
    match summary.problems {
        0 => Ok(()),
        1 => Err(Failure::new(summary.code, "1 problem, see above")),
        n => Err(Failure::new(summary.code, format!("{n} problems, see above"))),
    }
}
