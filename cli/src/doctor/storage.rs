//! The filesystem where a server would keep its images.

use crate::doctor::finding::{Finding, Level};
use gannet::storage::Filesystem;
use std::io;
use std::path::Path;

/// Checks the filesystem of a data folder, or of its nearest parent that exists.
pub fn finding(data_dir: &Path) -> Finding {
    let there = data_dir.ancestors().find(|at| at.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    described(data_dir, Filesystem::of(there))
}

fn described(data_dir: &Path, found: io::Result<Filesystem>) -> Finding {
    let folder = data_dir.display();
    let filesystem = match found {
        Ok(filesystem) => filesystem,
        Err(error) => {
            let text = format!("{folder}: its filesystem cannot be looked at: {error}");
            return Finding::not(
                "storage",
                Level::Problem,
                text,
                "give a folder that this user may enter (--data-dir)",
            );
        }
    };
    let name = filesystem.name();
    match filesystem.trouble() {
        Some((what, remedy)) => Finding::note("storage", format!("{folder} is on {name}: {what}"), remedy),
        None if filesystem.is_memory() => {
            let survives = "images survive the server there, and not the machine";
            Finding::ok("storage", format!("{folder} is on {name}: {survives}"))
        }
        None => Finding::ok("storage", format!("{folder} is on {name}: rows are overwritten in place")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_where_overwriting_allocates_is_a_note_with_a_remedy() {
        let of = |magic| described(Path::new("ps"), Ok(Filesystem::of_magic(magic))).json();
        let btrfs = of(0x9123_683E);
        assert_eq!((&btrfs["area"], &btrfs["level"]), (&"storage".into(), &"note".into()));
        assert!(btrfs["text"].as_str().unwrap().starts_with("ps is on btrfs: overwriting"), "{btrfs}");
        assert!(btrfs["remedy"].as_str().unwrap().contains("chattr +C"), "{btrfs}");
        for (magic, says) in
            [(0xEF53, "ps is on ext4: rows"), (0x0102_1994, "ps is on tmpfs: images survive")]
        {
            let well = of(magic);
            assert_eq!((&well["level"], &well["remedy"]), (&"ok".into(), &serde_json::Value::Null));
            assert!(well["text"].as_str().unwrap().starts_with(says), "{well}");
        }
        let refused = described(Path::new("ps"), Err(io::Error::from_raw_os_error(13))).json();
        assert_eq!(refused["level"], "problem");
    }

    #[test]
    fn a_folder_that_is_not_there_is_on_the_filesystem_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let there = finding(folder.path()).json()["text"].to_string();
        let below = folder.path().join("a/b");
        let not_there = finding(&below).json()["text"].to_string();
        let name = |path: &Path| path.display().to_string();
        assert_eq!(not_there.replace(&name(&below), ""), there.replace(&name(folder.path()), ""));
    }
}
