//! The names of folders and files in a checkpoint directory.

/// The file that makes a folder a checkpoint.
pub(crate) const MANIFEST: &str = "MANIFEST";
/// What manifests of all versions begin with.
pub(crate) const MANIFEST_BEGINNING: &[u8; 8] = b"GANNETJM";
/// The manifest of a checkpoint that is being removed. It lists the files that go, but makes no checkpoint.
pub(crate) const REMOVED: &str = "REMOVED";
/// The file of a draft that names who writes it.
pub(crate) const SAVER: &str = "SAVER";
pub(crate) const SAVER_BEGINNING: &[u8] = b"gannet saver\n";
/// The file of a draft that lists its states, a name on each line.
pub(crate) const STATES: &str = "STATES";
pub(crate) const STATES_BEGINNING: &[u8] = b"gannet states\n";
/// Digits of a checkpoint's folder, with zeros in front.
const DIGITS: usize = 10;

/// The name of a checkpoint's folder.
pub(crate) fn folder_name(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

/// The name of a state's file.
pub(crate) fn state_file(state: &str) -> String {
    format!("{state}.state")
}
