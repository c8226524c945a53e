//! Which file of a crate needs which other, item by item. A re-export leads to the file that defines the item. An
//! `impl` block away from the file of its type counts in both directions: callers of its methods name only the type.

use super::items::{Items, Path, items};
use std::collections::{BTreeMap, BTreeSet};

/// For each file, the files that it needs, each with the names on which that rests.
pub type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

#[derive(Default)]
struct Module {
    file: String,
    defined: BTreeSet<String>,
    /// Imports by the name that they have here.
    aliases: BTreeMap<String, Vec<(Path, bool)>>,
    globs: Vec<Path>,
}

struct Crate {
    modules: BTreeMap<Path, Module>,
    /// Macros by name: they are found without a path.
    macros: BTreeMap<String, String>,
}

/// Where a path leads.
enum Found {
    Module(Path),
    /// The files that define the item: more than one if a feature chooses.
    Item(BTreeSet<String>),
    /// A module of this file, which has no such name: perhaps a macro defines it.
    Unknown(String),
    /// Another crate.
    Elsewhere,
}

/// The module of a file of `src`: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module_of(file: &str) -> Path {
    let name = file.trim_end_matches(".rs");
    let name = if name == "lib" || name == "main" { "" } else { name.trim_end_matches("/mod") };
    name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The edges between the files of a crate: each with its name below `src` and its text.
pub fn edges(files: &BTreeMap<String, String>) -> Edges {
    let mut read: BTreeMap<&String, Items> =
        files.iter().map(|(file, text)| (file, items(text, &module_of(file)))).collect();
    let tests: Vec<Path> = read.values().flat_map(|items| items.test_modules.clone()).collect();
    read.retain(|file, _| {
        let module = module_of(file);
        !file.ends_with("_tests.rs") && !tests.iter().any(|test| module.starts_with(test))
    });
    let whole = Crate::new(&read);
    let mut edges: Edges = read.keys().map(|file| ((*file).clone(), BTreeMap::new())).collect();
    for (file, items) in &read {
        whole.add_edges(file, items, &mut edges);
    }
    edges
}

impl Crate {
    fn new(read: &BTreeMap<&String, Items>) -> Crate {
        let mut whole = Crate { modules: BTreeMap::new(), macros: BTreeMap::new() };
        for (file, items) in read {
            for module in &items.modules {
                whole.modules.entry(module.clone()).or_default().file = (*file).clone();
            }
            for (module, name) in &items.defined {
                whole.modules.get_mut(module).unwrap().defined.insert(name.clone());
            }
            for name in &items.macros {
                whole.macros.insert(name.clone(), (*file).clone());
            }
            for import in &items.imports {
                let module = whole.modules.get_mut(&import.module).unwrap();
                match &import.alias {
                    Some(alias) => {
                        let paths = module.aliases.entry(alias.clone()).or_default();
                        paths.push((import.path.clone(), import.is_public));
                    }
                    None => module.globs.push(import.path.clone()),
                }
            }
        }
        whole
    }

    fn add_edges(&self, file: &str, items: &Items, edges: &mut Edges) {
        let mut add = |from: &str, found: Found, name: &str| {
            let targets = match found {
                Found::Item(targets) => targets,
                Found::Unknown(target) => [target].into(),
                Found::Module(_) | Found::Elsewhere => return,
            };
            for to in targets.into_iter().filter(|to| to != from) {
                let names = edges.entry(from.to_owned()).or_default().entry(to).or_default();
                names.insert(name.to_owned());
            }
        };
        let last = |path: &Path| path.last().cloned().unwrap_or_default();
        for import in items.imports.iter().filter(|import| !import.is_public && import.alias.is_some()) {
            add(file, self.find(&import.module, &import.path, 0), &last(&import.path));
        }
        for (module, path) in &items.named {
            let home = &self.modules[module];
            let is_private = |paths: &Vec<(Path, bool)>| paths.iter().all(|(_, is_public)| !is_public);
            // A private import has counted.
            if path.len() == 1
                && (home.defined.contains(&path[0]) || home.aliases.get(&path[0]).is_some_and(is_private))
            {
                continue;
            }
            add(file, self.find(module, path, 0), &last(path));
        }
        for name in items.macro_calls.iter().filter(|name| !items.macros.contains(name)) {
            let target = self.macros.get(name).into_iter().cloned().collect();
            add(file, Found::Item(target), &format!("{name}!"));
        }
        for (module, own) in &items.impls {
            if let Found::Item(targets) = self.find(module, own, 0) {
                for target in targets {
                    let name = format!("impl {}", last(own));
                    add(file, Found::Item([target.clone()].into()), &name);
                    add(&target, Found::Item([file.to_owned()].into()), &name);
                }
            }
        }
    }

    /// Follows a path that stands in a module.
    fn find(&self, module: &[String], path: &[String], depth: usize) -> Found {
        if depth > 20 {
            return Found::Elsewhere;
        }
        let Some(first) = path.first() else { return Found::Module(module.to_vec()) };
        match first.as_str() {
            "crate" => self.find(&[], &path[1..], depth + 1),
            "self" => self.find(module, &path[1..], depth + 1),
            "super" => self.find(&module[..module.len().saturating_sub(1)], &path[1..], depth + 1),
            _ => self.find_in(module, path, depth + 1),
        }
    }

    /// Follows a path that begins with a name of a module.
    fn find_in(&self, module: &[String], path: &[String], depth: usize) -> Found {
        let Some(home) = self.modules.get(module) else { return Found::Elsewhere };
        let name = &path[0];
        let child: Path = module.iter().chain([name]).cloned().collect();
        if let Some(inner) = self.modules.get(&child) {
            match self.find(&child, &path[1..], depth) {
                Found::Elsewhere => return Found::Unknown(inner.file.clone()),
                Found::Module(_) if home.defined.contains(name) => {}
                found => return found,
            }
        }
        if home.defined.contains(name) {
            return Found::Item([home.file.clone()].into());
        }
        // `use name::other as name` is of another crate.
        let outside = |paths: &&Vec<(Path, bool)>| paths.iter().all(|(path, _)| path[0] != *name);
        if let Some(paths) = home.aliases.get(name).filter(outside) {
            let whole =
                paths.iter().map(|(alias, _)| alias.iter().chain(&path[1..]).cloned().collect::<Path>());
            return self.all(module, whole, depth);
        }
        if module.is_empty() && self.macros.contains_key(name) {
            return Found::Item([self.macros[name].clone()].into());
        }
        let globs = home.globs.iter().filter(|glob| self.is_of_this_crate(module, home, &glob[0]));
        self.all(module, globs.map(|glob| glob.iter().chain(path).cloned().collect()), depth)
    }

    fn is_of_this_crate(&self, module: &[String], home: &Module, first: &String) -> bool {
        let child: Path = module.iter().chain([first]).cloned().collect();
        ["crate", "self", "super"].contains(&first.as_str())
            || self.modules.contains_key(&child)
            || home.defined.contains(first)
            || home.aliases.contains_key(first)
    }

    fn all(&self, module: &[String], paths: impl Iterator<Item = Path>, depth: usize) -> Found {
        let mut files = BTreeSet::new();
        for path in paths {
            match self.find(module, &path, depth) {
                Found::Module(path) => return Found::Module(path),
                Found::Item(more) => files.extend(more),
                Found::Unknown(_) | Found::Elsewhere => {}
            }
        }
        if files.is_empty() { Found::Elsewhere } else { Found::Item(files) }
    }
}
