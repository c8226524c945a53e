//! The shape of the crates: files that need each other in a circle can only be read together, so circles are small, and
//! so are folders. The lists of what is larger today may only shrink.

mod circles;
mod imports;
mod items;
mod tokens;

use super::{EDGES, files, root, short};
use circles::{circles, ties};
use imports::{Edges, edges};
use std::collections::BTreeMap;
use std::path::Path;

/// The files of a circle, at most.
const CIRCLE_MAX: usize = 5;

/// The files of a folder, at most.
const FOLDER_MAX: usize = 20;

/// The crates that still have larger circles, each with the sizes of these. Core's rest on `impl` blocks alone: its
/// files import each other in no circle.
const CIRCLES: &[(&str, &[usize])] =
    &[("core", &[32, 6]), ("node/jobs", &[9]), ("node/server", &[11]), ("node/worker", &[18, 7])];

/// The folders that still have more files.
const FOLDERS: &[(&str, usize)] = &[("node/server/tests/sim", 45), ("tests/command", 24)];

/// The modules of core, as layers: a module uses those before it. lib.rs describes them.
const CORE_LAYERS: &[&str] = &[
    "limits",
    "hash",
    "kill",
    "push_name",
    "own_files",
    "schema",
    "error",
    "image",
    "checkpoint",
    "index",
    "table",
    "reader",
];

/// The edges between the files of a crate.
fn edges_of(folder: &str) -> Edges {
    let source = root().join(folder).join("src");
    let of_source = |path: &Path| {
        let name = path.strip_prefix(&source).ok()?;
        Some((name.to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap()))
    };
    edges(&files("rs").iter().filter_map(|path| of_source(path)).collect())
}

/// The edges of imports and paths, without those that rest on `impl` blocks alone.
fn imported(mut edges: Edges) -> Edges {
    for needs in edges.values_mut() {
        needs.retain(|_, names| names.iter().any(|name| !name.starts_with("impl ")));
    }
    edges
}

/// What is wrong with the circles of a crate. `listed` are the sizes that it may have.
fn complaint(edges: &Edges, listed: &[usize]) -> Option<String> {
    let mut large = circles(edges);
    large.retain(|circle| circle.len() > CIRCLE_MAX);
    let sizes: Vec<usize> = large.iter().map(Vec::len).collect();
    if sizes == listed {
        return None;
    }
    let mut text = format!("has circles of {sizes:?} files, and tests/tidy/shape lists {listed:?}.");
    let padded = listed.iter().copied().chain(std::iter::repeat(CIRCLE_MAX));
    if sizes.iter().zip(padded).all(|(size, most)| *size <= most) {
        return Some(text + " They are smaller now: list the new sizes.");
    }
    text += &format!(
        " At most {CIRCLE_MAX} may need each other. Move what they share to a file below them. Without these edges \
         there is no circle:"
    );
    for circle in &large {
        for (from, to) in ties(edges, circle) {
            let names: Vec<&str> = edges[&from][&to].iter().map(String::as_str).collect();
            text += &format!("\n  {from} -> {to}: {}", names.join(", "));
        }
    }
    Some(text)
}

#[test]
fn circles_of_files_are_small() {
    let listed =
        |folder: &str| CIRCLES.iter().find(|(name, _)| *name == folder).map_or(&[][..], |(_, sizes)| sizes);
    let crates =
        EDGES.iter().map(|(folder, _)| *folder).filter(|folder| root().join(folder).join("src").exists());
    let wrong: Vec<String> = crates
        .filter_map(|folder| Some(format!("{folder} {}", complaint(&edges_of(folder), listed(folder))?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn folders_are_small() {
    let mut sizes = BTreeMap::<String, usize>::new();
    for path in files("rs") {
        *sizes.entry(short(path.parent().unwrap())).or_default() += 1;
    }
    for (folder, listed) in FOLDERS {
        let now = sizes.get(*folder).copied().unwrap_or(0);
        assert!(
            now >= *listed,
            "{folder} has {now} files now: tests/tidy/shape lists {listed}, list the new number"
        );
    }
    for (folder, size) in sizes {
        let most = FOLDERS.iter().find(|(name, _)| *name == folder).map_or(FOLDER_MAX, |(_, size)| *size);
        assert!(
            size <= most,
            "{folder} has {size} files, and may have {most}: sort them into folders by subject"
        );
    }
}

#[test]
fn modules_of_core_are_layers() {
    let layer = |file: &str| {
        let own = file.trim_end_matches(".rs").split('/').next().unwrap();
        let at = CORE_LAYERS.iter().position(|layer| *layer == own);
        at.unwrap_or_else(|| panic!("core/src/{file}: put it into one of {CORE_LAYERS:?}"))
    };
    for (file, needs) in imported(edges_of("core")).iter().filter(|(file, _)| *file != "lib.rs") {
        for (below, names) in needs {
            assert!(
                layer(below) <= layer(file),
                "core/src/{file} uses {names:?} of {below}, a layer above: move what it needs down, or the code that \
                 needs it up (CORE_LAYERS in tests/tidy/shape has the order)"
            );
        }
    }
}

#[test]
fn files_of_core_import_each_other_in_no_circle() {
    let found = circles(&imported(edges_of("core")));
    assert!(found.is_empty(), "these files of core import each other: {found:?}");
}

/// A crate of these files.
fn made_up(files: &[(&str, &str)]) -> Edges {
    edges(&files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
}

/// Its edges, as `from -> to: names`.
fn shown(edges: &Edges) -> Vec<String> {
    let lines = edges.iter().flat_map(|(from, needs)| {
        needs.iter().map(move |(to, names)| {
            format!("{from} -> {to}: {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(" "))
        })
    });
    lines.collect()
}

#[test]
fn a_re_export_leads_to_the_file_that_defines() {
    let edges = made_up(&[
        ("lib.rs", "mod low; mod high; pub use low::Deep;"),
        ("low/mod.rs", "mod deep; pub use deep::{Deep, other as renamed}; pub(crate) use self::deep::*;"),
        ("low/deep.rs", "pub struct Deep; pub fn other() {} pub const STAR: u8 = 0;"),
        (
            "high.rs",
            "use crate::Deep; use crate::low::{self, renamed as again}; fn f() { again(); low::STAR; }",
        ),
    ]);
    assert_eq!(shown(&edges), ["high.rs -> low/deep.rs: Deep STAR renamed"]);
}

#[test]
fn paths_macros_and_globs_are_edges() {
    let edges = made_up(&[
        ("lib.rs", "#[macro_use] mod m; mod a; mod b; mod c; fn root() {}"),
        ("m.rs", "macro_rules! shout { () => { $crate::c::loud() } }"),
        ("a.rs", "use super::b::*; fn f() -> Item { shout!(); crate::c::loud() }"),
        (
            "b.rs",
            "pub struct Item; mod inner { use super::super::c::Kind as K; fn g() { K::One; crate::root(); } }",
        ),
        ("c.rs", "use std::fmt::*; pub fn loud() {} pub enum Kind { One }"),
    ]);
    let expected = [
        "a.rs -> b.rs: Item",
        "a.rs -> c.rs: loud",
        "a.rs -> m.rs: shout!",
        "b.rs -> c.rs: Kind One",
        "b.rs -> lib.rs: root",
        "m.rs -> c.rs: loud",
    ];
    assert_eq!(shown(&edges), expected);
}

#[test]
fn an_impl_away_from_its_type_is_an_edge_both_ways() {
    let edges = made_up(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "pub struct Whole<T>(T); pub struct Other;"),
        ("b.rs", "use crate::a::Whole; impl<T: Fn(u8) -> u8> Whole<T> { fn f(&self) {} }"),
        (
            "c.rs",
            "impl std::fmt::Debug for crate::a::Other {} fn f() -> impl Iterator<Item = crate::a::Other> {}",
        ),
    ]);
    let expected = [
        "a.rs -> b.rs: impl Whole",
        "a.rs -> c.rs: impl Other",
        "b.rs -> a.rs: Whole impl Whole",
        "c.rs -> a.rs: Other impl Other",
    ];
    assert_eq!(shown(&edges), expected);
}

#[test]
fn tests_comments_and_strings_are_no_edges() {
    let edges = made_up(&[
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod trial;"),
        (
            "a.rs",
            "// crate::b::B\n/* crate::b::B /* */ */ const S: &str = \"crate::b::B\"; const C: char = '\"';",
        ),
        (
            "b.rs",
            "pub struct B; #[cfg(test)] mod tests { use crate::a::S; } #[test] fn t() { crate::a::S; } /// crate::a::S",
        ),
        ("trial.rs", "use crate::a::S;"),
        ("b_tests.rs", "use crate::a::S;"),
    ]);
    assert_eq!(shown(&edges), [] as [String; 0]);
}

#[test]
fn a_circle_is_found_with_the_edge_that_ties_it() {
    let file = |next: usize| format!("pub struct Item; fn f(_: crate::f{next}::Item) {{}}");
    let texts: Vec<(String, String)> = (0..6).map(|at| (format!("f{at}.rs"), file((at + 1) % 6))).collect();
    let mut files: Vec<(&str, &str)> =
        texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("lib.rs", "mod f0; mod f1; mod f2; mod f3; mod f4; mod f5;"));
    let edges = made_up(&files);
    let found = complaint(&edges, &[]).unwrap();
    assert!(found.starts_with("has circles of [6] files") && found.lines().count() == 2, "{found}");
    assert!(found.lines().nth(1).is_some_and(|line| line.ends_with(": Item")), "{found}");
    assert_eq!(complaint(&edges, &[6]), None);
    assert!(complaint(&edges, &[7]).unwrap().contains("smaller now"));
    assert!(complaint(&edges, &[5]).unwrap().contains("At most 5"));
    // Without one file no circle is left, and the list must say so.
    files.retain(|(name, _)| *name != "f0.rs");
    assert_eq!(complaint(&made_up(&files), &[]), None);
    assert!(complaint(&made_up(&files), &[6]).unwrap().contains("smaller now"));
}
