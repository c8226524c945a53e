//! Files of a crate that import each other in a circle are few, and so are the files of a folder. Imports are read by
//! item: each names the file that defines it. An `impl` away from its type ties both files to each other.

use super::{files, short};
use std::collections::{BTreeMap, BTreeSet};

/// The crates that keep to it.
const CRATES: [&str; 2] = ["node/worker/src", "node/server/src"];
const CIRCLE_MAX: usize = 5;
const FOLDER_MAX: usize = 20;

/// Types whose `impl` blocks stand in so many files that these would be a larger circle. The list may only shrink.
const SPREAD: [&str; 3] = ["Worker", "Links", "Membership"];

/// A file, and the files that it imports or is tied to, each with why.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// The code of a file without comments and without its inline tests.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = product.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Adds the paths of a `use` tree, such as `a::{b, c::d}`. Returns what is behind it.
fn expand<'a>(mut rest: &'a str, prefix: &str, paths: &mut Vec<String>) -> &'a str {
    let mut path = prefix.to_owned();
    loop {
        rest = rest.trim_start();
        if let Some(mut list) = rest.strip_prefix('{') {
            loop {
                list = expand(list, &path, paths).trim_start();
                list = list.strip_prefix(',').unwrap_or(list).trim_start();
                match list.strip_prefix('}') {
                    Some(behind) => return behind,
                    None => assert!(!list.is_empty(), "a `use` without an end"),
                }
            }
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end > 0 && !path.is_empty() {
            path.push_str("::");
        }
        path.push_str(&rest[..end]);
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(more) if end > 0 || path.is_empty() => rest = more,
            _ => break,
        }
    }
    paths.push(path);
    rest
}

/// All paths of a file that begin with `crate::`.
fn crate_paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if !code[..at].ends_with(|c| is_word(c) || c == '$' || c == ':') {
            expand(&code[at + "crate::".len()..], "", &mut paths);
        }
    }
    paths
}

/// The type of an `impl` line that stands at the beginning of a line.
fn impl_of(line: &str) -> Option<String> {
    let mut rest = line.strip_prefix("impl")?.trim_start();
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.char_indices().find(|&(at, c)| {
            depth += i32::from(c == '<') - i32::from(c == '>' && !rest[..at].ends_with('-'));
            depth == 0
        })?;
        rest = rest[end.0 + 1..].trim_start();
    }
    let name = rest.split(" for ").last()?.split(['<', ' ', '{']).next()?;
    Some(name.rsplit("::").next()?.to_owned())
}

/// The types that a file defines at the beginning of a line.
fn types(code: &str) -> impl Iterator<Item = String> {
    code.lines()
        .filter(|line| line.starts_with("pub") || line.starts_with("struct ") || line.starts_with("enum "))
        .filter_map(|line| {
            let rest = line.split_once("struct ").or_else(|| line.split_once("enum "))?.1;
            Some(rest.split(|c| !is_word(c)).next()?.to_owned())
        })
}

/// Who imports whom in a crate, with the `impl` blocks of all types but those in `spread`.
fn edges(source: &str, spread: &[&str]) -> Edges {
    let of_crate = |path: &String| path.starts_with(source) && !path.ends_with("_tests.rs");
    let names: Vec<String> = files("rs").iter().map(|path| short(path)).filter(of_crate).collect();
    let module = |name: &String| {
        let path = name[source.len() + 1..].trim_end_matches(".rs").trim_end_matches("/mod");
        path.replace('/', "::")
    };
    let modules: BTreeMap<String, &String> = names.iter().map(|name| (module(name), name)).collect();
    let codes: BTreeMap<&String, String> = names
        .iter()
        .map(|name| (name, code(&std::fs::read_to_string(super::root().join(name)).unwrap())))
        .collect();
    let mut defined: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for (name, code) in &codes {
        types(code).for_each(|of| _ = defined.entry(of).or_default().insert(name));
    }
    let mut all = Edges::new();
    for (&name, code) in &codes {
        for path in crate_paths(code) {
            let parts: Vec<&str> = path.split("::").collect();
            let file = (1..=parts.len()).rev().find_map(|n| modules.get(&parts[..n].join("::")));
            if let Some(&file) = file.filter(|&&file| file != name) {
                all.entry(name.clone()).or_default().insert(file.clone(), path);
            }
        }
        for of in code.lines().filter_map(impl_of).filter(|of| !spread.contains(&of.as_str())) {
            if let Some(home) = defined.get(&of).filter(|homes| homes.len() == 1 && !homes.contains(name)) {
                let home = (*home.first().unwrap()).clone();
                all.entry(name.clone()).or_default().insert(home.clone(), format!("impl {of}"));
                all.entry(home).or_default().insert(name.clone(), format!("impl {of}"));
            }
        }
    }
    all
}

/// The files that a file reaches.
fn reached(edges: &Edges, from: &str) -> BTreeSet<String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(file) = next.pop() {
        for to in edges.get(&file).into_iter().flatten().map(|(to, _)| to) {
            if seen.insert(to.clone()) {
                next.push(to.clone());
            }
        }
    }
    seen
}

/// The circles of more files than are allowed.
fn large_circles(edges: &Edges) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|file| (file, reached(edges, file))).collect();
    let circle = |file: &&String| -> BTreeSet<String> {
        let back = |to: &&String| reach.get(*to).is_some_and(|back| back.contains(*file));
        reach[*file].iter().filter(back).cloned().collect()
    };
    edges.keys().map(|file| circle(&file)).filter(|circle| circle.len() > CIRCLE_MAX).collect()
}

#[test]
fn circles_of_files_are_small() {
    for source in CRATES {
        let edges = edges(source, &SPREAD);
        assert!(edges.len() > 20, "{source}: the imports are not read");
        if let Some(circle) = large_circles(&edges).first() {
            let tied = |file: &String| {
                let inside = edges[file].iter().filter(|(to, _)| circle.contains(*to));
                inside.map(|(to, why)| format!("  {file} -> {to}: {why}")).collect::<Vec<_>>()
            };
            let ties: Vec<String> = circle.iter().flat_map(tied).collect();
            panic!(
                "{source}: {} files import each other, and {CIRCLE_MAX} may. Move what they share below them:\n{}",
                circle.len(),
                ties.join("\n")
            );
        }
    }
}

#[test]
fn exceptions_from_small_circles_are_needed() {
    for of in SPREAD {
        let others: Vec<&str> = SPREAD.into_iter().filter(|other| *other != of).collect();
        let is_large = CRATES.iter().any(|source| !large_circles(&edges(source, &others)).is_empty());
        assert!(is_large, "the blocks `impl {of}` make no large circle any more: take {of} off the list");
    }
}

#[test]
fn folders_have_few_files() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for path in files("rs").iter().filter(|path| CRATES.iter().any(|source| short(path).starts_with(source)))
    {
        *folders.entry(short(path.parent().unwrap())).or_default() += 1;
    }
    folders.retain(|_, files| *files > FOLDER_MAX);
    assert!(folders.is_empty(), "{folders:?}: a folder has at most {FOLDER_MAX} files; divide it by subject");
}
