//! Holds the house: edges between rooms, banned names, where unsafe code may stand, file length.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The rooms and what each may use.
const EDGES: &[(&str, &[&str])] = &[
    ("optim", &[]),
    ("transport", &[]),
    ("core", &["gannet-optim"]),
    ("node", &["gannet-core", "gannet-transport", "gannet-optim"]),
    ("train", &["gannet-core", "gannet-node", "gannet-optim", "gannet-transport"]),
    (".", &["gannet-core", "gannet-node", "gannet-optim", "gannet-train", "gannet-transport"]),
    ("bench", &["gannet", "gannet-core", "gannet-node", "gannet-optim", "gannet-train", "gannet-transport"]),
    ("fuzz", &["gannet-node", "gannet-train"]),
];

/// The files that may hold unsafe code, each block with its reason.
const UNSAFE: &[&str] = &[
    "core/src/image/extents.rs",
    "core/src/image/mapped_image.rs",
    "core/src/image/mod.rs",
    "core/src/row.rs",
    "core/src/slot.rs",
    "optim/src/arch/avx2.rs",
    "optim/src/arch/avx512.rs",
    "transport/src/shm/memory.rs",
    "transport/src/uring/buffers.rs",
    "transport/src/uring/ring.rs",
    "transport/src/verbs/cm.rs",
    "transport/src/verbs/datapath.rs",
    "transport/src/verbs/device.rs",
    "transport/src/verbs/memory.rs",
    "transport/src/verbs/objects.rs",
];

const BANNED: &[&str] =
    &["common", "util", "utils", "lib_", "libs", "manager", "managers", "helper", "helpers", "misc"];

const LINES_MAX: usize = 520;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty());
    found
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

#[test]
fn rooms_keep_to_their_edges() {
    for (room, allowed) in EDGES {
        let text = std::fs::read_to_string(root().join(room).join("Cargo.toml")).unwrap();
        let dependencies = text.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for line in dependencies.lines().filter(|l| l.starts_with("gannet")) {
            let name = line.split(['.', ' ', '=']).next().unwrap();
            assert!(
                allowed.contains(&name),
                "{room} may not use {name}: see ARCHITECTURE.md, Crates and edges"
            );
        }
    }
}

/// Only the facade re-exports other crates. Whoever uses a crate names it in its manifest, so that edges tell the truth.
#[test]
fn only_the_facade_re_exports_crates() {
    let crates = EDGES.iter().map(|(room, _)| *room).filter(|room| *room != ".");
    let parts: Vec<String> = crates.map(|room| format!("{room}/src/")).collect();
    for path in files("rs").iter().filter(|path| parts.iter().any(|part| short(path).starts_with(part))) {
        let text = std::fs::read_to_string(path).unwrap();
        let tunnel = text.lines().any(|line| line.trim_start().starts_with("pub use gannet_"));
        assert!(!tunnel, "{} re-exports a crate: its users name that crate in their Cargo.toml", short(path));
    }
}

/// The asynchronous crates serve metrics, in the command's own folder: no room knows them.
#[test]
fn async_stays_at_the_door() {
    let names = ["axum", "hyper", "tokio"];
    for (room, _) in EDGES.iter().filter(|(room, _)| *room != ".") {
        let text = std::fs::read_to_string(root().join(room).join("Cargo.toml")).unwrap();
        let named = |line: &str| names.iter().any(|name| line.starts_with(name));
        assert!(!text.lines().any(named), "{room} may not use asynchronous crates");
    }
    for path in files("rs").iter().filter(|path| !short(path).starts_with("src/command/metrics/")) {
        let text = std::fs::read_to_string(path).unwrap();
        let used =
            |name: &&str| text.contains(&format!("use {name}::")) || text.contains(&format!(" {name}::"));
        let tests = short(path).starts_with("tests/");
        assert!(tests || !names.iter().any(used), "{} uses one of {names:?}", short(path));
    }
}

/// A trial by hand left five files at the root once, and they were committed.
#[test]
fn the_root_holds_what_is_listed() {
    const LISTED: [&str; 17] = [
        "bench",
        "core",
        "data",
        "docs",
        "examples",
        "fuzz",
        "node",
        "optim",
        "scripts",
        "src",
        "tests",
        "train",
        "transport",
        "Cargo.lock",
        "LICENSE",
        "Makefile",
        ".gitignore",
    ];
    let git =
        std::process::Command::new("git").args(["ls-files"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    // Without git nothing can be committed.
    let Some(git) = git.ok().filter(|git| git.status.success()) else { return };
    for path in String::from_utf8(git.stdout).unwrap().lines() {
        let name = path.split('/').next().unwrap();
        let known =
            LISTED.contains(&name) || name == ".ci" || [".md", ".toml"].iter().any(|end| name.ends_with(end));
        assert!(known, "{path}: put it into a folder, or take it out of the repository");
    }
}

#[test]
fn every_room_is_listed() {
    let with_manifest: BTreeSet<String> = files("toml")
        .iter()
        .filter(|p| p.ends_with("Cargo.toml"))
        .map(|p| short(p.parent().unwrap()))
        .map(|s| if s.is_empty() { ".".into() } else { s })
        .collect();
    let listed = EDGES.iter().map(|(room, _)| (*room).to_string()).collect();
    assert_eq!(with_manifest, listed);
}

#[test]
fn no_room_or_file_has_a_name_that_says_nothing() {
    for path in files("rs") {
        for part in short(&path).trim_end_matches(".rs").split('/') {
            assert!(!BANNED.contains(&part), "{}: name it for what it holds", short(&path));
        }
    }
}

#[test]
fn unsafe_code_stands_where_it_may() {
    let allow = format!("allow({})", "unsafe_code");
    for path in files("rs") {
        let (name, text) = (short(&path), std::fs::read_to_string(&path).unwrap());
        let may = UNSAFE.contains(&name.as_str());
        assert!(may || !text.contains(&allow), "{name} may not hold unsafe code: see tests/tidy.rs");
        if name.ends_with("src/lib.rs") || name == "src/main.rs" {
            let denies = text.contains("deny(unsafe_code)") || text.contains("forbid(unsafe_code)");
            assert!(denies, "{name}: a crate root denies or forbids unsafe code");
        }
        if may {
            assert!(text.contains("SAFETY:"), "{name} is listed but has no unsafe code");
        }
    }
}

#[test]
fn files_are_short() {
    for path in files("rs") {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines: a second room may want out", short(&path));
    }
}

#[test]
fn files_say_what_they_are_for() {
    for path in files("rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{}: open with a few lines on what the file is for", short(&path));
    }
}

/// core reads no clock and opens no socket; no wall clock decides anything in the rooms; only the facade prints.
#[test]
fn absences_hold() {
    let never: &[(&str, &[&str])] = &[
        ("core/src", &["SystemTime", "Instant", "TcpStream", "UdpSocket", "println!(", "eprintln!("]),
        ("optim/src", &["std::fs", "std::net", "std::time", "println!(", "eprintln!("]),
        ("transport/src", &["gannet_core", "gannet_optim", "SystemTime", "println!(", "eprintln!("]),
        ("node/src", &["SystemTime", "println!(", "eprintln!("]),
        ("train/src", &["SystemTime", "println!(", "eprintln!("]),
        // The name of a saved model's layers, and the process's start on the page of metrics, are the facade's wall
        // times.
        ("src/command/job.rs", &["SystemTime"]),
        ("src/command/others.rs", &["SystemTime"]),
        ("src/command/tasks.rs", &["SystemTime"]),
        ("src/command/doctor", &["SystemTime"]),
    ];
    for path in files("rs") {
        let name = short(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap();
        for (_, words) in never.iter().filter(|(room, _)| name.starts_with(room)) {
            for word in *words {
                let used = product.lines().any(|l| !l.trim_start().starts_with("//") && l.contains(word));
                assert!(!used, "{name} uses {word}, which its room never does");
            }
        }
    }
}
