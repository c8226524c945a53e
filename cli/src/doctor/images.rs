//! The images in a data folder that no server uses now: whether their bytes are as they were written.

use crate::doctor::finding::{Finding, Level};
use crate::report::words::counted;
use crate::server::image_check;
use bytesize::ByteSize;
use gannet::server::check_held_tables;
use gannet::storage::{OpenError, Store, is_data_folder};
use std::path::Path;

/// Checks the images of a data folder. `None`: it is no data folder.
pub fn finding(data_dir: &Path) -> Option<Finding> {
    if !is_data_folder(data_dir) {
        return None;
    }
    let folder = data_dir.display();
    let store = match Store::open_dir(data_dir) {
        Ok(store) => store,
        Err(OpenError::Locked(_)) => {
            let text = format!("{folder}: a server uses it, so its images are not checked");
            return Some(Finding::note("images", text, "stop the server and run this again"));
        }
        Err(error) => return Some(Finding::not("images", Level::Problem, error.to_string(), "")),
    };
    if let Err(error) = check_held_tables(&store) {
        return Some(Finding::not("images", Level::Problem, error.to_string(), ""));
    }
    Some(match image_check::check_images(&store) {
        Ok(found) if found.without > 0 => {
            let without = counted(found.without, "image was", "images were");
            let text = format!("{folder}: {without} closed in order, and the checksums are gone or damaged");
            Finding::note("images", text, "start and stop the server once: it writes them anew")
        }
        Ok(found) => {
            let (good, unknown) = (ByteSize(found.good), ByteSize(found.unknown));
            let why = match found.unknown {
                0 => "",
                _ => " (changed before a server was killed, or their checksums were removed)",
            };
            let images = found.images;
            Finding::ok(
                "images",
                format!("{folder}: {images} images; {good} have their checksum, {unknown} have none{why}"),
            )
        }
        Err(failure) => Finding::not("images", Level::Problem, failure.to_string(), ""),
    })
}
