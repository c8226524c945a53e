//! A checkpoint directory as a flag names it: a folder, or the URL of a bucket.

use crate::failure::Failure;
use gannet::storage::CheckpointDir;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};

/// Divides `DIR@N`. A folder whose own name ends like that is taken whole.
pub fn directory_and_number(named: &Path) -> (PathBuf, Option<u64>) {
    let divided = named.to_str().and_then(|text| text.rsplit_once('@')).filter(|_| !named.is_dir());
    let divided = divided.and_then(|(directory, number)| Some((directory, number.parse().ok()?)));
    divided.map_or((named.into(), None), |(directory, number)| (directory.into(), Some(number)))
}

/// Opens a directory that exists.
pub fn open_checkpoints(place: &Path) -> Result<CheckpointDir, Failure> {
    match url(place) {
        Some(url) => bucket(url),
        None => Ok(CheckpointDir::open(place)?),
    }
}

/// Opens a directory that checkpoints are saved in. A folder is made if it does not exist; a bucket must exist.
pub fn create_checkpoints(place: &Path) -> Result<CheckpointDir, Failure> {
    let Some(url) = url(place) else { return folder(place) };
    bucket(url)
}

/// Makes a folder, and checks that checkpoints can be saved in it. Otherwise only the first save would fail.
fn folder(place: &Path) -> Result<CheckpointDir, Failure> {
    if place.exists() && !place.is_dir() {
        return Err(Failure::input(format!(
            "{}: is a file, and checkpoints are saved in a folder; name another",
            place.display()
        )));
    }
    let directory = CheckpointDir::create(place)?;
    match access(place, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(directory),
        Err(error) => Err(Failure::input(format!(
            "{}: checkpoints cannot be saved here: {error}; name a folder that this process may write, or change who \
             may write this one",
            place.display()
        ))),
    }
}

/// Whether a flag names a bucket.
pub fn is_url(place: &Path) -> bool {
    url(place).is_some()
}

/// The URL that a flag names, unless it names a folder.
fn url(place: &Path) -> Option<&str> {
    place.to_str().filter(|text| text.contains("://"))
}

#[cfg(feature = "cloud")]
fn bucket(url: &str) -> Result<CheckpointDir, Failure> {
    gannet::storage::open_bucket(url).map_err(|error| Failure::input(error.to_string()))
}

#[cfg(not(feature = "cloud"))]
fn bucket(url: &str) -> Result<CheckpointDir, Failure> {
    Err(Failure::input(no_object_stores(url)))
}

/// Why a build without object stores refuses a URL.
#[cfg(any(test, not(feature = "cloud")))]
fn no_object_stores(url: &str) -> String {
    format!(
        "{url}: this gannet was built without object stores; `cargo install --locked --path cli` \
         builds one that has them, or name a folder"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_from_a_folder() {
        assert_eq!(url(Path::new("s3://bucket/job")), Some("s3://bucket/job"));
        assert_eq!(url(Path::new("folder/s3:")), None);
        let unknown = open_checkpoints(Path::new("ftp://bucket/job")).unwrap_err().to_string();
        assert!(unknown.starts_with("ftp://bucket/job: "), "{unknown}");
    }

    #[test]
    fn a_build_without_object_stores_names_the_command_that_builds_one_with_them() {
        let refused = no_object_stores("s3://bucket/job");
        assert!(refused.starts_with("s3://bucket/job: "), "{refused}");
        assert!(refused.contains("`cargo install --locked --path cli`"), "{refused}");
    }

    #[test]
    fn a_number_behind_the_folder_names_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a@7");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(directory_and_number(&odd), (odd.clone(), None));
        let numbered = PathBuf::from(format!("{}@12", odd.display()));
        assert_eq!(directory_and_number(&numbered), (odd, Some(12)));
        assert_eq!(directory_and_number(Path::new("x")), ("x".into(), None));
        assert_eq!(directory_and_number(Path::new("x@y")), ("x@y".into(), None));
    }
}
