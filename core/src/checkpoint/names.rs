//! The names of folders and files in a checkpoint directory.

/// The file that makes a folder a checkpoint.
pub(crate) const MANIFEST: &str = "MANIFEST";
/// Digits of a checkpoint's folder, with zeros in front.
const DIGITS: usize = 10;

/// The name of a checkpoint's folder.
pub(crate) fn folder_name(number: u64) -> String {
    format!("{number:0DIGITS$}")
}
