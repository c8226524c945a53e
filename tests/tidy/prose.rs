//! Text that people read: comments and pages fit a line, functions fit a screen, names have one meaning, and
//! pages name files that exist.

use super::{files, short};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const COLUMNS_MAX: usize = 120;
const FUNCTION_LINES_MAX: usize = 70;
const SENTENCE_WORDS_MAX: usize = 30;
/// How many types of product code may share a name, each in a crate or module of its own.
const NAMESAKES_MAX: usize = 2;

/// Ends the test with everything that breaks a rule, and with what to do instead.
fn assert_none(broken: &[String], remedy: &str) {
    assert!(broken.is_empty(), "{}\n{} in all. {remedy}", broken.join("\n"), broken.len());
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn comments_fit_a_line() {
    let mut broken = Vec::new();
    for path in files("rs") {
        for (at, line) in text(&path).lines().enumerate() {
            let comment = line.trim_start().starts_with("//");
            if comment && line.chars().count() > COLUMNS_MAX {
                broken.push(format!(
                    "{}:{}: a comment of more than {COLUMNS_MAX} columns",
                    short(&path),
                    at + 1
                ));
            }
        }
    }
    assert_none(&broken, "Break the line, or say it in fewer words.");
}

#[test]
fn pages_fit_a_line() {
    let mut broken = Vec::new();
    for path in files("md") {
        for (at, line) in text(&path).lines().enumerate() {
            let table = line.trim_start().starts_with('|');
            if !table && line.chars().count() > COLUMNS_MAX {
                broken.push(format!(
                    "{}:{}: a line of more than {COLUMNS_MAX} columns",
                    short(&path),
                    at + 1
                ));
            }
        }
    }
    assert_none(&broken, "Break the line; only tables may be wider.");
}

/// The prose of a page: paragraphs and items of lists, without code, tables and headings.
fn paragraphs(page: &str) -> Vec<String> {
    let (mut found, mut open, mut code) = (Vec::new(), String::new(), false);
    for line in page.lines() {
        let bare = line.trim_start();
        let fence = bare.starts_with("```");
        let item =
            bare.starts_with("- ") || bare.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
        let ends = fence || bare.is_empty() || bare.starts_with(['|', '#']) || item;
        if ends && !open.is_empty() {
            found.push(std::mem::take(&mut open));
        }
        code ^= fence;
        if !code && !fence && !bare.starts_with(['|', '#']) {
            open.push_str(bare);
            open.push(' ');
        }
    }
    found.push(open);
    found
}

/// The number of words of the longest sentence. A list of names of tests is not a sentence.
fn longest_sentence(paragraph: &str) -> usize {
    let ends = |word: &str| word.trim_end_matches(['*', ')', '`', '"']).ends_with(['.', '?', '!', ':', ';']);
    let (mut longest, mut words) = (0, 0);
    for word in paragraph.split_whitespace() {
        words += usize::from(!word.starts_with('`') || !word.trim_end_matches(['.', ',']).ends_with('`'));
        longest = longest.max(words);
        if ends(word) {
            words = 0;
        }
    }
    longest
}

#[test]
fn sentences_are_short() {
    let mut broken = Vec::new();
    for path in files("md") {
        for paragraph in paragraphs(&text(&path)) {
            let words = longest_sentence(&paragraph);
            if words > SENTENCE_WORDS_MAX {
                let begin: String = paragraph.chars().take(80).collect();
                broken.push(format!("{}: a sentence of {words} words in: {begin}", short(&path)));
            }
        }
    }
    assert_none(&broken, "Make two sentences of it: the subject first, one thought each.");
}

/// Where a function begins and its name, if a line declares one.
fn function(line: &str) -> Option<(usize, &str)> {
    let indent = line.len() - line.trim_start().len();
    let (before, after) = line.split_once("fn ")?;
    let qualifier = |word: &str| {
        ["pub", "const", "unsafe", "async", "extern", "\"C\""].contains(&word) || word.starts_with("pub(")
    };
    let declared =
        before.replace("in crate::", "in_").split_whitespace().all(|w| qualifier(w) || w.ends_with(')'));
    let name = after.split(['(', '<']).next()?;
    (declared && !name.is_empty() && !name.contains(' ')).then_some((indent, name))
}

#[test]
fn functions_fit_a_screen() {
    let mut broken = Vec::new();
    for path in files("rs") {
        let text = text(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((indent, name)) = function(line) else { continue };
            let end = format!("{}}}", " ".repeat(indent));
            let Some(length) = lines[at..].iter().position(|l| *l == end) else { continue };
            if length + 1 > FUNCTION_LINES_MAX && !line.ends_with(';') && !line.ends_with('}') {
                broken.push(format!("{}:{}: {name} has {} lines", short(&path), at + 1, length + 1));
            }
        }
    }
    assert_none(&broken, "Give a part that has a name of its own a function of its own.");
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files("rs") {
        let name = short(&path);
        let tests = name.ends_with("_tests.rs") || !name.contains("src/");
        if tests {
            continue;
        }
        let text = text(&path);
        for line in text.split("#[cfg(test)]\nmod").next().unwrap().lines() {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            let kind = words.next().unwrap_or("");
            let global = kind != "type" || !line.starts_with(' ');
            if ["struct", "enum", "union", "trait", "type"].contains(&kind) && global {
                let word = words.next().unwrap_or("");
                let end = word.find(|c: char| !c.is_alphanumeric()).unwrap_or(word.len());
                defined.entry(word[..end].to_string()).or_default().push(name.clone());
            }
        }
    }
    let broken: Vec<String> = defined
        .iter()
        .filter(|(word, places)| places.len() > NAMESAKES_MAX && word.starts_with(|c: char| c.is_uppercase()))
        .map(|(word, places)| format!("{word}: {}", places.join(", ")))
        .collect();
    assert_none(&broken, "Say in the name which one it is: a noun of the field, not of this file.");
}

/// The paths that a page names: in backticks or as the target of a link, with an ending that a source file has.
fn named_paths(page: &str) -> BTreeSet<String> {
    let endings = [".rs", ".md", ".toml", ".sh", ".py"];
    let mut found = BTreeSet::new();
    for word in page.split(['`', '(', ')', ' ', '\n', ',', '"']) {
        let path = word.split('#').next().unwrap().trim_end_matches([':', '.', ';']);
        let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        if plain && path.len() > 3 && endings.iter().any(|end| path.ends_with(end)) {
            found.insert(path.to_string());
        }
    }
    found
}

/// A path is relative to the page, to the repository, or (in a crate's code map) to some folder of it.
#[test]
fn pages_name_files_that_exist() {
    let known: Vec<String> =
        ["rs", "md", "toml", "sh", "py"].iter().flat_map(|e| files(e)).map(|p| short(&p)).collect();
    // Files that a user or cargo makes.
    let made = ["Cargo.toml"];
    let mut broken = Vec::new();
    for page in files("md") {
        for path in named_paths(&text(&page)) {
            let tail = format!("/{}", path.trim_start_matches("../").trim_start_matches("./"));
            let found = known.iter().any(|file| format!("/{file}").ends_with(&tail));
            if !found && !made.contains(&path.as_str()) {
                broken.push(format!("{} names {path}", short(&page)));
            }
        }
    }
    assert_none(&broken, "Name the file by its path today, or leave it out.");
}

/// Sentences that say nothing to whoever has not read the code.
#[test]
fn nothing_is_said_in_riddles() {
    let riddles = ["The same.", "The other way round.", "the other way round."];
    let mut broken = Vec::new();
    for path in ["rs", "md", "sh", "py"].iter().flat_map(|e| files(e)) {
        let name = short(&path);
        if name.starts_with("tests/tidy") {
            continue;
        }
        for (at, line) in text(&path).lines().enumerate() {
            for riddle in riddles.iter().filter(|riddle| line.contains(**riddle)) {
                broken.push(format!("{name}:{}: \"{riddle}\"", at + 1));
            }
        }
    }
    assert_none(&broken, "Say what is the same, or what happens instead.");
}
