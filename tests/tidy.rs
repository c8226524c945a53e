//! Rules of the source code: edges between crates, banned names, the files with unsafe code, file length.

#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/shape/mod.rs"]
mod shape;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The crates, and which of the others each may use. Dependencies of tests are free.
const EDGES: &[(&str, &[&str])] = &[
    ("optim", &[]),
    ("transport", &[]),
    ("transport/sim", &["gannet-transport"]),
    ("core", &["gannet-optim"]),
    ("core/memory_store", &["gannet-core"]),
    ("node/wire", &["gannet-core", "gannet-transport", "gannet-optim"]),
    ("node/buckets", &["gannet-core"]),
    ("node/jobs", &["gannet-core", "gannet-transport", "gannet-wire"]),
    ("node/worker", &["gannet-core", "gannet-jobs", "gannet-optim", "gannet-transport", "gannet-wire"]),
    (
        "node/server",
        &["gannet-core", "gannet-jobs", "gannet-optim", "gannet-transport", "gannet-wire", "gannet-worker"],
    ),
    (
        "train",
        &[
            "gannet-buckets",
            "gannet-core",
            "gannet-jobs",
            "gannet-optim",
            "gannet-server",
            "gannet-transport",
            "gannet-wire",
            "gannet-worker",
        ],
    ),
    (
        ".",
        &[
            "gannet-buckets",
            "gannet-core",
            "gannet-jobs",
            "gannet-optim",
            "gannet-server",
            "gannet-train",
            "gannet-transport",
            "gannet-wire",
            "gannet-worker",
        ],
    ),
    ("serve", &["gannet"]),
    ("bench", &["gannet", "gannet-core", "gannet-optim", "gannet-train", "gannet-transport"]),
    ("cli", &["gannet", "gannet-bench", "gannet-serve"]),
    ("fuzz", &["gannet-server", "gannet-train"]),
    ("python", &["gannet"]),
];

/// Crates that only the command and its server of predictions use. A program that depends on the library does not get
/// them.
const ONLY_CLI: &[&str] = &[
    "axum",
    "bytesize",
    "clap",
    "hyper",
    "hyper-util",
    "indicatif",
    "mimalloc",
    "object_store",
    "reqwest",
    "safetensors",
    "serde_json",
    "signal-hook",
    "tempfile",
    "tokio",
    "tracing-subscriber",
    "zip",
];

/// The files that may hold unsafe code, each block with its reason.
const UNSAFE: &[&str] = &[
    "core/src/checkpoint/row_files/file_ring.rs",
    "core/src/image/memory/address_range.rs",
    "core/src/image/bucket.rs",
    "core/src/image/memory/extents.rs",
    "core/src/image/owned_image.rs",
    "core/src/image/memory/prefetch.rs",
    "core/src/image/row.rs",
    "core/src/reader/mapped_image.rs",
    "optim/src/arch/avx2.rs",
    "optim/src/arch/avx512.rs",
    "optim/src/arch/float16.rs",
    "python/src/lent.rs",
    "python/src/rows.rs",
    "transport/src/shm/memory.rs",
    "transport/sim/src/process.rs",
    "transport/src/uring/buffers.rs",
    "transport/src/uring/ring.rs",
    "transport/src/verbs/resources/cm.rs",
    "transport/src/verbs/resources/datapath.rs",
    "transport/src/verbs/resources/device.rs",
    "transport/src/verbs/resources/memory.rs",
    "transport/src/verbs/resources/objects.rs",
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

/// The lines of a manifest's dependencies, without those of tests and builds.
fn dependencies(folder: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let lines = text.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    lines.lines().map(str::to_owned).collect()
}

/// The name of the crate that a line of a manifest depends on.
fn depends_on(line: &str) -> &str {
    line.split(['.', ' ', '=']).next().unwrap()
}

#[test]
fn crates_keep_to_their_edges() {
    for (folder, allowed) in EDGES {
        for line in dependencies(folder).iter().filter(|line| line.starts_with("gannet")) {
            let name = depends_on(line);
            assert!(
                allowed.contains(&name),
                "{folder} may not use {name}: see ARCHITECTURE.md, Crates and edges"
            );
        }
    }
}

/// The output of `cargo tree` for a package of this workspace, without its dependencies for tests.
fn tree(package: &str, edges: &str) -> Vec<String> {
    let arguments = ["tree", "--offline", "--locked", "--prefix", "none", "-e", edges, "-p", package];
    let tree =
        std::process::Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(tree.status.success(), "cargo tree -p {package}: {}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Only the facade re-exports other crates. A crate names the crates that it uses in its manifest, so the edges
/// are true.
#[test]
fn only_the_facade_re_exports_crates() {
    let crates = EDGES.iter().map(|(folder, _)| *folder).filter(|folder| *folder != ".");
    let parts: Vec<String> = crates.map(|folder| format!("{folder}/src/")).collect();
    for path in files("rs").iter().filter(|path| parts.iter().any(|part| short(path).starts_with(part))) {
        let text = std::fs::read_to_string(path).unwrap();
        let tunnel = text.lines().any(|line| line.trim_start().starts_with("pub use gannet_"));
        assert!(!tunnel, "{} re-exports a crate: its users name that crate in their Cargo.toml", short(path));
    }
}

#[test]
fn the_library_pulls_nothing_that_only_the_command_needs() {
    for (folder, _) in
        EDGES.iter().filter(|(folder, _)| !["cli", "serve", "node/buckets", "fuzz"].contains(folder))
    {
        // What a feature pulls is off by default: the tree below has none of it.
        for line in dependencies(folder).iter().filter(|line| !line.contains("optional = true")) {
            let name = depends_on(line);
            // Python takes sizes as texts, as the command does.
            let is_size = (*folder, name) == ("python", "bytesize");
            assert!(
                is_size || !ONLY_CLI.contains(&name),
                "{folder} may not use {name}: move the code that needs it to cli/, or put it behind a feature \
                 that is off by default"
            );
        }
    }
    let library = tree("gannet", "normal");
    assert!(library.iter().any(|line| line.starts_with("gannet-server ")), "{library:?}");
    for name in library.iter().map(|line| depends_on(line)) {
        assert!(
            !ONLY_CLI.contains(&name),
            "a program that depends on gannet pulls {name}: see `cargo tree -e normal -p gannet -i {name}`"
        );
    }
}

#[test]
fn no_product_has_code_for_tests() {
    for package in ["gannet", "gannet-cli"] {
        let features = tree(package, "normal,features");
        assert!(features.iter().any(|line| line.contains("feature \"default\"")), "{features:?}");
        for line in features {
            assert!(
                !line.contains("\"test-support\"") && !line.starts_with("criterion "),
                "{package} is built with {line}: only [dev-dependencies] and fuzz/ may turn it on"
            );
        }
    }
}

#[test]
fn the_facade_has_no_code_of_its_own() {
    const KEYWORDS: [&str; 7] = ["fn ", "struct ", "enum ", "impl ", "trait ", "static ", "macro_rules!"];
    for path in files("rs").iter().filter(|path| short(path).starts_with("src/")) {
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let code = KEYWORDS.iter().find(|keyword| line.contains(**keyword));
            let name = short(path);
            assert!(
                code.is_none(),
                "{name}: `{line}`: src/ has `pub use` lists only; code goes into a crate"
            );
        }
    }
}

/// The asynchronous crates serve predictions and metrics, reach buckets and ask etcd.
#[test]
fn async_code_stays_in_four_places() {
    let names = ["axum", "etcd_client", "hyper", "tokio"];
    let may = ["cli/src/metrics/", "serve/src/", "node/buckets/src/", "node/jobs/src/coordinator/etcd/"];
    for path in files("rs").iter().filter(|path| !may.iter().any(|folder| short(path).starts_with(folder))) {
        let text = std::fs::read_to_string(path).unwrap();
        let used =
            |name: &&str| text.contains(&format!("use {name}::")) || text.contains(&format!(" {name}::"));
        let tests = short(path).starts_with("tests/");
        assert!(
            tests || !names.iter().any(used),
            "{} uses one of {names:?}: use a thread, or move it to one of {may:?}",
            short(path)
        );
    }
}

/// Five files of an experiment were once committed at the root.
#[test]
fn the_root_holds_what_is_listed() {
    const LISTED: [&str; 20] = [
        "bench",
        "cli",
        "core",
        "data",
        "docs",
        "examples",
        "fuzz",
        "node",
        "optim",
        "python",
        "scripts",
        "serve",
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
    // Without git no file can be committed.
    let Some(git) = git.ok().filter(|git| git.status.success()) else { return };
    for path in String::from_utf8(git.stdout).unwrap().lines() {
        let name = path.split('/').next().unwrap();
        let known =
            LISTED.contains(&name) || name == ".ci" || [".md", ".toml"].iter().any(|end| name.ends_with(end));
        assert!(known, "{path}: put it into a folder, or take it out of the repository");
    }
}

#[test]
fn every_crate_is_listed() {
    let with_manifest: BTreeSet<String> = files("toml")
        .iter()
        .filter(|p| p.ends_with("Cargo.toml"))
        .map(|p| short(p.parent().unwrap()))
        .map(|s| if s.is_empty() { ".".into() } else { s })
        .collect();
    let listed = EDGES.iter().map(|(folder, _)| (*folder).to_string()).collect();
    assert_eq!(with_manifest, listed);
}

#[test]
fn no_crate_or_file_has_a_name_that_says_nothing() {
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
        if name.ends_with("src/lib.rs") || name == "cli/src/main.rs" {
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
        assert!(
            lines <= LINES_MAX,
            "{} has {lines} lines, more than {LINES_MAX}: split it by subject",
            short(&path)
        );
    }
}

#[test]
fn files_say_what_they_are_for() {
    for path in files("rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{}: open with a few lines on what the file is for", short(&path));
    }
}

/// core reads no clock and opens no socket. No wall clock decides anything. Only cli prints.
/// A name is no proof that Gannet has written a file. Functions of own_files.rs look at its bytes first.
#[test]
fn one_module_removes_and_replaces_files() {
    let calls =
        ["remove_file(", "remove_dir(", "remove_dir_all(", "fs::rename(", "File::create(", "fs::write("];
    let tests = ["core/src/own_files.rs", "transport/src/verbs/hostile_pair.rs"];
    for path in files("rs") {
        let name = short(&path);
        let is_product = name.contains("src/") && !name.contains("tests") && !name.starts_with("fuzz/");
        let text = std::fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap();
        let line = product.lines().find(|line| {
            !line.trim_start().starts_with("//") && calls.iter().any(|call| line.contains(call))
        });
        assert!(
            line.is_none() || !is_product || tests.contains(&&*name),
            "{name} changes files of any owner: {}: use gannet_core::own_files",
            line.unwrap_or_default().trim()
        );
    }
}

#[test]
fn absences_hold() {
    let never: &[(&str, &[&str])] = &[
        ("core/src", &["SystemTime", "Instant", "TcpStream", "UdpSocket", "println!(", "eprintln!("]),
        ("core/memory_store/src", &["SystemTime", "Instant", "println!(", "eprintln!("]),
        ("optim/src", &["std::fs", "std::net", "std::time", "println!(", "eprintln!("]),
        ("transport/src", &["gannet_core", "gannet_optim", "SystemTime", "println!(", "eprintln!("]),
        (
            "transport/sim/src",
            &["gannet_core", "gannet_optim", "SystemTime", "Instant", "println!(", "eprintln!("],
        ),
        ("node/wire/src", &["SystemTime", "println!(", "eprintln!("]),
        ("node/buckets/src", &["SystemTime", "println!(", "eprintln!("]),
        ("node/jobs/src", &["SystemTime", "println!(", "eprintln!("]),
        ("node/worker/src", &["SystemTime", "println!(", "eprintln!("]),
        ("node/server/src", &["SystemTime", "println!(", "eprintln!("]),
        ("train/src", &["SystemTime", "println!(", "eprintln!("]),
        ("src/", &["SystemTime", "println!(", "eprintln!("]),
        ("bench/src", &["SystemTime", "println!(", "eprintln!("]),
        // cli reads wall time for three things: the name of a saved model's layers, when a run ended (in messages), and
        // when the process started (metrics).
        ("cli/src/job", &["SystemTime"]),
        ("cli/src/runs/settings.rs", &["SystemTime"]),
        ("cli/src/train/tasks.rs", &["SystemTime"]),
        ("cli/src/doctor", &["SystemTime"]),
    ];
    for (place, _) in never {
        assert!(root().join(place).exists(), "{place} has moved: name its new place here");
    }
    for path in files("rs") {
        let name = short(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap();
        for (_, words) in never.iter().filter(|(folder, _)| name.starts_with(folder)) {
            for word in *words {
                let used = product.lines().any(|l| !l.trim_start().starts_with("//") && l.contains(word));
                assert!(
                    !used,
                    "{name} uses {word}, which its crate must not: see ARCHITECTURE.md, Crates and edges"
                );
            }
        }
    }
}
