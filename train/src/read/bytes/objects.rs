//! Turns URLs, with patterns or of folders, into the list of objects to read: as for files on a disk.

use crate::read::error::ReadError;
use gannet_buckets::{ListedObjects, list_objects, see_object};
use glob::{MatchOptions, Pattern};
use std::io::ErrorKind::{NotFound, PermissionDenied};

/// Adds the objects that a URL names: one, those of a folder, or those of a pattern.
///
/// # Errors
/// There are none, or the store cannot be asked.
pub(crate) fn expand(url: &str, found: &mut Vec<String>) -> Result<(), ReadError> {
    let web = url.starts_with("http://") || url.starts_with("https://");
    let wildcards: &[char] = if web { &['*', '['] } else { &['*', '?', '['] };
    // Behind the question mark of a web address is what its server is asked, such as a signature.
    let path = if web { url.split('?').next().unwrap_or(url) } else { url };
    if path.contains(wildcards) {
        if web {
            let what = "a web server cannot list its files, so it takes no pattern: name each one".to_owned();
            return Err(ReadError::NoFiles { named: url.to_owned(), what });
        }
        let bucket = url.split_once("://").and_then(|(_, rest)| rest.split('/').next());
        if bucket.is_some_and(|bucket| bucket.contains(wildcards)) {
            return matches(url, found);
        }
        // A name that exists is never a pattern.
        return match see_object(url) {
            Ok(_) => {
                found.push(url.to_owned());
                Ok(())
            }
            Err(error) if !matches!(error.kind(), NotFound | PermissionDenied) => {
                Err(ReadError::io(url, error))
            }
            Err(_) if is_folder(url)? => folder(url, found),
            Err(_) => matches(url.trim_end_matches('/'), found),
        };
    }
    let is_bucket = !web && url.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
    if is_bucket || (!web && url.ends_with('/')) {
        return folder(url, found);
    }
    match see_object(url) {
        Ok(_) => found.push(url.to_owned()),
        // As on a disk, the name of a folder means its files.
        Err(error) if !web && error.kind() == NotFound && is_folder(url)? => {
            return folder(url, found);
        }
        Err(error) => return Err(ReadError::io(url, error)),
    }
    Ok(())
}

fn list(folder: &str) -> Result<ListedObjects, ReadError> {
    list_objects(folder).map_err(|error| ReadError::io(folder, error))
}

fn is_folder(url: &str) -> Result<bool, ReadError> {
    let listed = list(url)?;
    Ok(!listed.objects.is_empty() || !listed.folders.is_empty())
}

/// Adds the objects of a folder.
fn folder(url: &str, found: &mut Vec<String>) -> Result<(), ReadError> {
    let url = url.trim_end_matches('/');
    let none = |what: String| ReadError::NoFiles { named: url.to_owned(), what };
    let is_data = |name: &String| !name.starts_with(['.', '_']);
    let ListedObjects { folders, objects } = list(url)?;
    if let Some(inner) = folders.iter().find(|name| is_data(name)) {
        return Err(none(format!("has a folder in it ({url}/{inner}), and only its files are read")));
    }
    let mut names: Vec<String> =
        objects.iter().filter(|name| is_data(name)).map(|name| format!("{url}/{name}")).collect();
    if names.is_empty() {
        return Err(none("a folder without data files".into()));
    }
    names.sort_unstable();
    found.append(&mut names);
    Ok(())
}

/// As in a shell, wildcards match no slash, and no dot at the start of a name.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// Adds the objects whose names match. It lists only the folders that the pattern can reach.
fn matches(url: &str, found: &mut Vec<String>) -> Result<(), ReadError> {
    let none = |what: String| ReadError::NoFiles { named: url.to_owned(), what };
    let no_pattern = |error: glob::PatternError| none(format!("not a pattern ({})", error.msg));
    let wild = |part: &str| part.contains(['*', '?', '[']);
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let mut parts = rest.split('/');
    let bucket = parts.next().unwrap_or_default();
    if wild(bucket) {
        return Err(none("a bucket must be named without a pattern".into()));
    }
    let parts: Vec<&str> = parts.collect();
    let root = format!("{scheme}://{bucket}");
    let whole = Pattern::new(&parts.join("/")).map_err(no_pattern)?;
    let mut each = Vec::with_capacity(parts.len());
    for part in &parts {
        each.push(if wild(part) { Some(Pattern::new(part).map_err(no_pattern)?) } else { None });
    }
    let (mut names, mut left) = (Vec::new(), vec![(root.clone(), 0)]);
    while let Some((at, depth)) = left.pop() {
        let last = depth + 1 == parts.len();
        // Behind `**` a folder may be of any depth.
        let deep = parts[..parts.len().min(depth + 1)].contains(&"**");
        if let (false, false, Some(None)) = (last, deep, each.get(depth)) {
            left.push((format!("{at}/{}", parts[depth]), depth + 1));
            continue;
        }
        let ListedObjects { folders, objects } = list(&at)?;
        let key = |name: &str| format!("{at}/{name}")[root.len() + 1..].to_owned();
        let is_named = |key: &String| whole.matches_with(key, OPTIONS);
        let matched = objects.iter().map(|name| key(name)).filter(is_named);
        names.extend(matched.map(|key| format!("{root}/{key}")));
        // As on a disk, a folder that matches means its files. Those of folders of any depth match by themselves.
        for named in folders.iter().map(|name| key(name)).filter(|key| !deep && is_named(key)) {
            folder(&format!("{root}/{named}"), &mut names)?;
        }
        let reaches = |name: &String| {
            let fits = |part: &Pattern| part.matches_with(name, OPTIONS);
            (deep && !name.starts_with('.'))
                || (!last && each.get(depth).and_then(Option::as_ref).is_some_and(fits))
        };
        left.extend(
            folders.iter().filter(|name| reaches(name)).map(|name| (format!("{at}/{name}"), depth + 1)),
        );
    }
    if names.is_empty() {
        return Err(none("no object has a name like this".into()));
    }
    names.sort_unstable();
    found.append(&mut names);
    Ok(())
}
