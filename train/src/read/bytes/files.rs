//! Turns paths, folders and patterns into the list of files to read, in an order that is the same on every machine.

use crate::limits::FILES_MAX;
use crate::read::bytes::data_file::is_url;
#[cfg(feature = "cloud")]
use crate::read::bytes::objects::expand as objects;
use crate::read::error::ReadError;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The files of each name, in the order of `named`. A name is a file, a folder, or a pattern (`*`, `?`, `[..]`, and
/// `**` for folders of any depth). A folder means its files, except those whose names begin with `.` or `_`. The
/// files of a folder or pattern are in the byte order of their names. A name that exists is never a pattern. `-` is
/// standard input. The URL of a bucket (`s3://`, `gs://`, `az://`) means objects, with the same rules; that of a web
/// server (`http://`, `https://`) means one. From here on these objects must not change.
///
/// # Errors
/// A pattern or a folder has no files, a folder contains a folder, a file is named twice (by any path), or the system
/// refuses to read something.
pub fn files(named: &[String]) -> Result<Vec<String>, ReadError> {
    let mut found = Vec::new();
    for name in named {
        if is_url(name) {
            objects(name, &mut found)?;
            limited(&found)?;
            continue;
        }
        let pattern = name != "-" && name.contains(['*', '?', '[']) && fs::symlink_metadata(name).is_err();
        if pattern {
            matches(name, &mut found)?;
        } else {
            add(name.clone(), &mut found)?;
        }
    }
    let mut seen: HashMap<(u64, u64), &str> = HashMap::new();
    let mut urls = HashSet::new();
    for file in &found {
        if is_url(file) {
            if !urls.insert(file) {
                return Err(ReadError::Twice { file: file.clone(), before: file.clone() });
            }
            continue;
        }
        let id = match fs::metadata(file) {
            Ok(meta) if file != "-" => (meta.dev(), meta.ino()),
            // Opening the file later gives the error. No file is (0, 0).
            _ if file != "-" => continue,
            _ => (0, 0),
        };
        if let Some(before) = seen.insert(id, file) {
            return Err(ReadError::Twice { file: file.clone(), before: before.to_owned() });
        }
    }
    Ok(found)
}

#[cfg(not(feature = "cloud"))]
fn objects(url: &str, _found: &mut Vec<String>) -> Result<(), ReadError> {
    Err(ReadError::io(url, crate::read::bytes::data_file::no_objects()))
}

/// Adds the matches of a pattern, as if each had been named.
fn matches(pattern: &str, found: &mut Vec<String>) -> Result<(), ReadError> {
    let none = |what: String| ReadError::NoFiles { named: pattern.to_owned(), what };
    // As in a shell, wildcards do not match a dot at the start of a name.
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let paths = glob::glob_with(pattern, options).map_err(|e| none(format!("not a pattern ({})", e.msg)))?;
    let mut names = Vec::new();
    for path in paths {
        let path = path.map_err(|e| {
            let file = e.path().display().to_string();
            ReadError::Io { file, source: e.into() }
        })?;
        names.push(text(&path)?);
    }
    if names.is_empty() {
        return Err(none("no file has a name like this".into()));
    }
    names.sort_unstable();
    names.into_iter().try_for_each(|name| add(name, found))
}

/// Adds a file, or the files of a folder.
fn add(name: String, found: &mut Vec<String>) -> Result<(), ReadError> {
    if name == "-" || !fs::metadata(&name).is_ok_and(|meta| meta.is_dir()) {
        found.push(name);
        return limited(found);
    }
    let io = |source: io::Error| ReadError::Io { file: name.clone(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(&name).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".")
            || entry.file_name().as_encoded_bytes().starts_with(b"_")
        {
            continue;
        }
        let path = text(&entry.path())?;
        if fs::metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            let what = format!("has a folder in it ({path}), and only its files are read");
            return Err(ReadError::NoFiles { named: name.clone(), what });
        }
        names.push(path);
    }
    if names.is_empty() {
        return Err(ReadError::NoFiles { named: name.clone(), what: "a folder without data files".into() });
    }
    names.sort_unstable();
    found.append(&mut names);
    limited(found)
}

fn limited(found: &[String]) -> Result<(), ReadError> {
    if found.len() <= FILES_MAX {
        return Ok(());
    }
    let (value, max) = (found.len() as u64, FILES_MAX as u64);
    Err(ReadError::Limit { what: "the number of files", value, max })
}

fn text(path: &Path) -> Result<String, ReadError> {
    path.to_str().map(str::to_owned).ok_or_else(|| ReadError::Io {
        file: path.display().to_string(),
        source: io::Error::new(io::ErrorKind::InvalidFilename, "the name is not UTF-8"),
    })
}
