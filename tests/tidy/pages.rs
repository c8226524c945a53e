//! Pages lead somewhere: links, their anchors and the tests that prove promises exist, and tables and charts of
//! measurements equal their data files.

use super::{files, root, short};
use std::path::Path;
use std::process::Command;

/// Targets of the links of a page: `](TARGET)`.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| !link.contains("://"))
}

/// The name by which a link reaches a heading: lower case, blanks as hyphens, and nothing else but letters and digits.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(page).unwrap();
    text.lines().any(|line| line.starts_with('#') && anchor(line) == wanted)
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for path in files("md") {
        let text = std::fs::read_to_string(&path).unwrap();
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            if !target.exists() || (!heading.is_empty() && !has_anchor(&target, heading)) {
                broken.push(format!("{} links to {link}", short(&path)));
            }
        }
    }
    assert!(broken.is_empty(), "{}\nNo such file or heading: correct the link.", broken.join("\n"));
}

#[test]
fn tables_and_charts_equal_the_data() {
    let done =
        Command::new("python3").arg(root().join("scripts/results.py")).arg("--check").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&[done.stdout, done.stderr].concat()));
}

#[test]
fn proofs_name_tests_that_exist() {
    let code: String = files("rs").iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let page = std::fs::read_to_string(root().join("docs/proofs.md")).unwrap();
    let names: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("- `")?.strip_suffix('`')).collect();
    assert!(!names.is_empty());
    let gone: Vec<&str> = names.into_iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(gone.is_empty(), "docs/proofs.md names tests that are gone: {}", gone.join(", "));
}

#[test]
fn nothing_names_a_place_outside_the_repository() {
    let outside = ["../shared", concat!("/wo", "rk/"), concat!("/ho", "me/"), "github.com/gannet"];
    let mut broken = Vec::new();
    for path in ["md", "toml", "sh", "py"].iter().flat_map(|extension| files(extension)) {
        let text = std::fs::read_to_string(&path).unwrap();
        broken.extend(
            outside.iter().filter(|o| text.contains(**o)).map(|o| format!("{} names {o}", short(&path))),
        );
    }
    assert!(broken.is_empty(), "{}\nA reader has this repository alone.", broken.join("\n"));
}
