//! The checksums of images: whatever a table does, and however its lives end, no sound image counts as damaged; and
//! what has changed on the medium is found, as far as no killed life may have changed it.

use crate::error::OpenError;
use crate::image::checksums::{self, Checked};
use crate::image::files::store::Store;
use crate::image::layout::{CLEAN, COMMIT};
use crate::limits::CHUNK_BYTES;
use crate::push_name::PushName;
use crate::schema::table_schema::Schema;
use crate::table::owned::shards::Shards;
use crate::table::pushes::push_request::PushOptions;
use crate::table::pushes::read_write::Write;
use gannet_optim::{Add, Rule};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DIM: u32 = 120;

fn schema(shards: u32) -> Schema {
    Schema { dim: DIM, shards, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn push(shards: &mut Shards, seq: u64, keys: &[u64]) {
    let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
    let values = vec![seq as f32; keys.len() * DIM as usize];
    // A push has its keys in the order of shards.
    let mut sorted = keys.to_vec();
    sorted.sort_by_key(|key| (crate::hash::shard_of(crate::hash::hash(*key), shards.schema().shards), *key));
    shards.push(&name, Write::Gradient, &sorted, None, &values).unwrap();
}

fn images(folder: &Path) -> Vec<PathBuf> {
    let mut images: Vec<PathBuf> =
        std::fs::read_dir(folder.join("t")).unwrap().map(|entry| entry.unwrap().path()).collect();
    images.retain(|path| path.extension().is_some_and(|name| name == "image"));
    images.sort();
    images
}

/// Checks the images as they are now, also while they are open: that is what a start after a kill would find.
fn check(folder: &Path) -> Checked {
    let mut all = Checked::default();
    for image in images(folder) {
        let found = checksums::check_checksums(&image, &mut |_| true).unwrap();
        assert_eq!(found.damaged, None, "{}", image.display());
        all.good += found.good;
        all.unknown += found.unknown;
    }
    all
}

#[derive(Clone, Debug)]
enum Step {
    Push(u64, u64),
    Delete(u64, u64),
    Close,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = || (0..12_000u64, 1..3_000u64);
    let step = prop_oneof![
        4 => keys().prop_map(|(from, count)| Step::Push(from, count)),
        2 => keys().prop_map(|(from, count)| Step::Delete(from, count / 4)),
        2 => Just(Step::Close),
        2 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn no_sound_image_counts_as_damaged(steps in steps(), shards in prop_oneof![Just(1u32), Just(4)]) {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let store = Store::open_dir(folder.path()).unwrap();
            store.check_images(2, &|_, _| true).unwrap();
            Shards::open(&store, &schema(shards), 0..shards).unwrap()
        };
        let (mut table, mut seq) = (Some(open()), 0);
        for step in steps {
            let mut own = table.take().unwrap();
            match step {
                Step::Push(from, count) => {
                    seq += 1;
                    push(&mut own, seq, &(from..from + count).collect::<Vec<u64>>());
                }
                Step::Delete(from, count) => {
                    seq += 1;
                    let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
                    let mut keys: Vec<u64> = (from..from + count).collect();
                    keys.sort_by_key(|key| (crate::hash::shard_of(crate::hash::hash(*key), shards), *key));
                    own.delete(&name, PushOptions::default(), &keys).unwrap();
                }
                Step::Close => {
                    own.mark_clean().unwrap();
                    drop(own);
                    prop_assert_eq!(check(folder.path()).unknown, 0, "all is checked after an orderly end");
                    own = open();
                }
                Step::Kill => {
                    drop(own);
                    own = open();
                }
            }
            check(folder.path());
            table = Some(own);
        }
    }
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

/// A table of one shard with rows in several chunks, closed in order.
fn table(folder: &Path) -> PathBuf {
    let store = Store::open_dir(folder).unwrap();
    let mut shards = Shards::open(&store, &schema(1), 0..1).unwrap();
    push(&mut shards, 1, &(0..20_000).collect::<Vec<u64>>());
    shards.mark_clean().unwrap();
    images(folder).remove(0)
}

#[test]
fn a_bit_that_flipped_in_a_page_of_a_stopped_servers_image_was_served_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let image = table(folder.path());
    let bytes = std::fs::metadata(&image).unwrap().len();
    let mut at = 12_345;
    for _ in 0..200 {
        at = (at * 48_271 + 11) % bytes;
        let (state, chunk) = ((CLEAN as u64..COMMIT as u64).contains(&at), at / CHUNK_BYTES as u64);
        flip(&image, at);
        let found = checksums::check_checksums(&image, &mut |_| true).unwrap();
        assert_eq!(found.damaged, (!state).then_some(chunk), "byte {at}");
        flip(&image, at);
    }
    // What the server says: the file, the place, what to do.
    flip(&image, 3 * CHUNK_BYTES as u64 + 77);
    let store = Store::open_dir(folder.path()).unwrap();
    let error = store.check_images(2, &|_, _| true).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Damaged { at, .. } if at == 3 * CHUNK_BYTES as u64), "{text}");
    for word in ["shard-0000.image", "6291456", "--no-verify", "checkpoint"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // A page of zeros in place of one with rows, and a hole, as a filesystem leaves it after a repair.
    flip(&image, 3 * CHUNK_BYTES as u64 + 77);
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], 4 * CHUNK_BYTES as u64 + 8192).unwrap();
    assert_eq!(checksums::check_checksums(&image, &mut |_| true).unwrap().damaged, Some(4));
}

#[test]
fn after_a_kill_the_chunks_that_its_life_did_not_change_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let image = table(folder.path());
    let chunks = std::fs::metadata(&image).unwrap().len() / CHUNK_BYTES as u64;
    for life in 2..4 {
        // A life that changes one old row, and is killed.
        let store = Store::open_dir(folder.path()).unwrap();
        let mut shards = Shards::open(&store, &schema(1), 0..1).unwrap();
        push(&mut shards, life, &[7]);
        drop(shards);
        let found = checksums::check_checksums(&image, &mut |_| true).unwrap();
        let unknown = 2; // the header, and the chunk of the row
        assert_eq!(found, Checked { good: chunks - unknown, unknown, ..Checked::default() });
    }
    let mut found = 0;
    for chunk in 0..chunks {
        flip(&image, chunk * CHUNK_BYTES as u64 + 5000);
        found += u64::from(checksums::check_checksums(&image, &mut |_| true).unwrap().damaged == Some(chunk));
        flip(&image, chunk * CHUNK_BYTES as u64 + 5000);
    }
    assert_eq!(found, chunks - 2);
    // A new key changes the index, which is not checked any more. Its row takes the last chunk of rows.
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(1), 0..1).unwrap();
    push(&mut shards, 4, &[1 << 40]);
    drop(shards);
    let after = checksums::check_checksums(&image, &mut |_| true).unwrap();
    assert!(after.damaged.is_none() && after.unknown > 2 && after.good > 0, "{after:?}");
}

#[test]
fn checksums_of_another_life_or_image_check_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = table(folder.path());
    let (sums, kept) = (checksums::path_of(&image), folder.path().join("kept"));
    std::fs::copy(&sums, &kept).unwrap();
    let unknown = |what: &str| {
        let found = checksums::check_checksums(&image, &mut |_| true).unwrap();
        assert_eq!((found.good, found.damaged), (0, None), "{what}");
        found.is_without
    };
    // The checksums were removed.
    std::fs::remove_file(&sums).unwrap();
    assert!(unknown("there is no file"), "an image that was closed in order was not checked, without a word");
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(1), 0..1).unwrap();
    assert!(!unknown("there is no file"), "the image is open");
    push(&mut shards, 2, &(0..20_000).collect::<Vec<u64>>());
    drop((shards, store));
    std::fs::copy(&kept, &sums).unwrap();
    unknown("a later life");
    for at in [0, 9, 17, 40] {
        std::fs::copy(&kept, &sums).unwrap();
        flip(&sums, at);
        unknown("a torn file");
    }
    let whole = std::fs::read(&kept).unwrap();
    std::fs::write(&sums, &whole[..whole.len() - 1]).unwrap();
    unknown("a short file");
    // The next orderly end writes them anew.
    let store = Store::open_dir(folder.path()).unwrap();
    Shards::open(&store, &schema(1), 0..1).unwrap().mark_clean().unwrap();
    drop(store);
    assert!(checksums::check_checksums(&image, &mut |_| true).unwrap().unknown == 0);
}

#[test]
fn a_check_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path());
    let store = Store::open_dir(folder.path()).unwrap();
    let error = store.check_images(1, &|read, _| read < 2 * CHUNK_BYTES as u64).unwrap_err();
    assert!(
        matches!(error, OpenError::CheckGivenUp { read, .. } if read == 2 * CHUNK_BYTES as u64),
        "{error}"
    );
    let found = Store::memory().check_images(4, &|_, _| false).unwrap();
    assert_eq!(found.images, 0);
}

#[test]
fn a_chunk_that_a_kill_left_behind_the_others_counted_as_damaged_when_the_index_took_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = table(folder.path());
    let file = File::options().write(true).open(&image).unwrap();
    file.set_len(file.metadata().unwrap().len() + CHUNK_BYTES as u64).unwrap();
    let life = |from: u64, count: u64, seq: u64, closes: bool| {
        let store = Store::open_dir(folder.path()).unwrap();
        let mut shards = Shards::open(&store, &schema(1), 0..1).unwrap();
        // Few keys at a time: the first change of the index comes long before its next chunk.
        for (n, key) in (from..from + count).step_by(1000).enumerate() {
            push(&mut shards, seq + n as u64, &(key..key + 1000).collect::<Vec<u64>>());
        }
        if closes {
            shards.mark_clean().unwrap();
        }
    };
    life(20_000, 1000, 10, true);
    life(30_000, 400_000, 100, false);
    assert_eq!(checksums::check_checksums(&image, &mut |_| true).unwrap().damaged, None);
}

/// A power loss may take the name of the newest checksums: the ones before it have marks of the life that closed it.
#[test]
fn checksums_from_before_an_orderly_end_check_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = table(folder.path());
    let (sums, kept) = (checksums::path_of(&image), folder.path().join("kept"));
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(1), 0..1).unwrap();
    std::fs::copy(&sums, &kept).unwrap();
    push(&mut shards, 2, &(0..20_000).collect::<Vec<u64>>());
    shards.mark_clean().unwrap();
    drop((shards, store));
    std::fs::copy(&kept, &sums).unwrap();
    let found = checksums::check_checksums(&image, &mut |_| true).unwrap();
    assert_eq!((found.good, found.damaged), (0, None));
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(1), 0..1).unwrap();
    shards.mark_clean().unwrap();
    drop((shards, store));
    assert_eq!(checksums::check_checksums(&image, &mut |_| true).unwrap().unknown, 0);
}
