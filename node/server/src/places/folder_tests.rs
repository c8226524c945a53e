//! What a server with a data folder believes, for each order in which its writes and those to the coordinator happen.

use crate::config::MembershipConfig;
use crate::places::folder::*;
use gannet_core::{Origin, PushName, Schema, Shards, TableIdentity, TableUid, Write};
use gannet_jobs::coordinator::memory::MemoryCoordinator;
use gannet_optim::{Add, Rule};
use std::sync::Arc;
use std::time::Duration;

const HOME: (u32, u32) = (1, 3);

const OLD: Claim = Claim { epoch: 4, incarnation: 40 };

const NEW: Claim = Claim { epoch: 5, incarnation: 50 };

fn config(job: &str, place: (u32, u32)) -> MembershipConfig {
    MembershipConfig {
        coordinator: Arc::new(MemoryCoordinator::new(Arc::new(|| Duration::ZERO))),
        job: job.into(),
        place,
        addr: "here:1".into(),
        servers: Vec::new(),
        is_backup: false,
        backups: 1,
        lease: Duration::from_secs(2),
        kept: Duration::from_secs(60),
        on_server_loss: crate::config::OnServerLoss::Stop,
    }
}

fn store(path: &Path) -> Store {
    Store::open_dir(path).unwrap()
}

fn open(store: &Store) -> PlaceFolder {
    PlaceFolder::open(store, &config("job", HOME)).unwrap().unwrap()
}

/// Makes a table of place 1 of 3, with a row.
fn table(store: &Store, name: &str) {
    let schema = Schema { shards: 1, ..Schema::scalar(name, Rule::Add(Add)) };
    let identity = TableIdentity { uid: TableUid([7; 16]), server: HOME.0, servers: HOME.1 };
    let mut shards = Shards::open_as(store, &schema, 0..1, &Origin { identity, seed: 1 }).unwrap();
    let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    shards.push(&name, Write::Gradient, &[5], None, &[1.0]).unwrap();
}

/// What the coordinator has of a place whose owner serves.
fn place(of: Claim, generation: u64) -> PlaceV3 {
    PlaceV3 {
        epoch: of.epoch,
        generation,
        owner: "there:1".into(),
        incarnation: of.incarnation,
        ready: true,
        since: 1,
        backups: Vec::new(),
        is_async: false,
    }
}

/// A folder with rows of OLD.
fn with_rows(store: &Store) -> PlaceFolder {
    let folder = open(store);
    folder.claim_empty(OLD, 0).unwrap();
    table(store, "job.t");
    folder.note_rows(OLD).unwrap();
    folder
}

fn is_former(rows: &FolderRows) -> bool {
    matches!(rows, FolderRows::Former(_))
}

fn is_unknown(rows: &FolderRows) -> bool {
    matches!(rows, FolderRows::Unknown(_))
}

#[test]
fn rows_are_the_newest_as_long_as_nobody_else_has_had_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    drop(with_rows(&store));
    let folder = open(&store);
    assert_eq!(folder.rows(Some(&place(OLD, 0)), 0), FolderRows::Newest);
    let other = Claim { epoch: 5, incarnation: 41 };
    assert!(is_former(&folder.rows(Some(&place(other, 0)), 0)));
    // A server that has the same epoch, or an earlier one, comes from a coordinator that has forgotten.
    for epoch in [1, 4] {
        assert!(is_unknown(&folder.rows(Some(&place(Claim { epoch, incarnation: 41 }, 0)), 0)), "{epoch}");
    }
    let FolderRows::Unknown(why) = folder.rows(None, 0) else { panic!("the coordinator has forgotten") };
    assert!(why.contains("place 1 of 3 of job \"job\"") && why.contains("--data-dir"), "{why}");
    // The job has gone back to a checkpoint.
    assert!(is_former(&folder.rows(Some(&place(OLD, 0)), 1)));
    assert!(is_former(&folder.rows(Some(&place(Claim { epoch: 5, incarnation: 41 }, 1)), 1)));
}

#[test]
fn a_claim_is_known_whether_it_has_reached_the_coordinator_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let folder = with_rows(&store);
    folder.claim_with_rows(NEW, Some(&place(OLD, 0)), 0).unwrap();
    drop(folder);
    // Killed behind the claim. The write to the coordinator has not happened, or has, or another server was first.
    let folder = open(&store);
    assert_eq!(folder.rows(Some(&place(OLD, 0)), 0), FolderRows::Newest);
    assert_eq!(folder.rows(Some(&place(NEW, 0)), 0), FolderRows::Newest);
    assert!(is_former(&folder.rows(Some(&place(Claim { incarnation: 51, ..NEW }, 0)), 0)));
    // Another try of a later server, which is killed before its write: both may be there.
    let later = Claim { epoch: 5, incarnation: 60 };
    folder.claim_with_rows(later, Some(&place(OLD, 0)), 0).unwrap();
    let folder = open(&store);
    for claim in [OLD, NEW, later] {
        assert_eq!(folder.rows(Some(&place(claim, 0)), 0), FolderRows::Newest, "{claim:?}");
    }
    // Behind the next claim the earlier ones reach nobody.
    let last = Claim { epoch: 6, incarnation: 70 };
    folder.claim_with_rows(last, Some(&place(NEW, 0)), 0).unwrap();
    folder.note_rows(last).unwrap();
    let folder = open(&store);
    assert_eq!((folder.claim(), folder.rows(Some(&place(last, 0)), 0)), (Some(last), FolderRows::Newest));
    assert!(is_former(&folder.rows(Some(&place(Claim { epoch: 7, incarnation: 71 }, 0)), 0)));
}

#[test]
fn the_rows_stay_the_newest_while_the_next_owner_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let folder = with_rows(&store);
    let backup = Claim { epoch: 5, incarnation: 41 };
    let taken = PlaceV3 { ready: false, backups: vec![("here:1".into(), 40)], ..place(backup, 0) };
    assert_eq!(folder.rows(Some(&taken), 0), FolderRows::Newest);
    assert!(is_former(&folder.rows(Some(&PlaceV3 { ready: true, ..taken.clone() }), 0)));
    let others = vec![("else:1".into(), 41)];
    assert!(is_former(&folder.rows(Some(&PlaceV3 { backups: others, ..taken.clone() }), 0)));
    // This server has taken the place, opened its images, and a backup has taken it before it was ready.
    let again = Claim { epoch: 6, incarnation: 50 };
    folder.claim_with_rows(again, Some(&taken), 0).unwrap();
    folder.note_rows(again).unwrap();
    let next = PlaceV3 { epoch: 7, incarnation: 42, ..taken };
    assert_eq!(open(&store).rows(Some(&next), 0), FolderRows::Newest);
}

#[test]
fn rows_that_are_not_complete_are_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let folder = open(&store);
    folder.claim_empty(OLD, 0).unwrap();
    table(&store, "job.t");
    std::fs::write(dir.path().join("RUNS"), "GNTRUNS2 and more").unwrap();
    drop(folder);
    // Killed in the middle of a load, whether the claim has reached the coordinator or not.
    let folder = open(&store);
    assert!(!folder.has_rows());
    for known in [None, Some(&place(OLD, 0)), Some(&place(NEW, 0))] {
        assert_eq!(folder.rows(known, 0), FolderRows::None);
    }
    folder.claim_empty(NEW, 0).unwrap();
    assert!(!dir.path().join("job.t").exists() && !dir.path().join("RUNS").exists());
    folder.note_rows(NEW).unwrap();
    assert_eq!(open(&store).rows(Some(&place(NEW, 0)), 0), FolderRows::Newest);
}

#[test]
fn rows_of_a_job_without_coordinator_begin_a_place_that_nobody_has_had() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    table(&store, "job.t");
    std::fs::write(dir.path().join("RUNS"), "GNTRUNS2 and more").unwrap();
    let folder = open(&store);
    assert_eq!(folder.rows(None, 0), FolderRows::Newest);
    let FolderRows::Unknown(why) = folder.rows(Some(&place(OLD, 0)), 0) else { panic!("not its rows") };
    assert!(why.contains("without coordinator") && why.contains("there:1"), "{why}");
    // Killed behind the claim: the write to the coordinator has happened, or has not, or another server was first.
    let first = Claim { epoch: 1, incarnation: 10 };
    folder.claim_with_rows(first, None, 0).unwrap();
    let folder = open(&store);
    assert_eq!(folder.rows(None, 0), FolderRows::Newest);
    assert_eq!(folder.rows(Some(&place(first, 0)), 0), FolderRows::Newest);
    assert!(is_unknown(&folder.rows(Some(&place(Claim { incarnation: 11, ..first }, 0)), 0)));
    assert!(is_former(&folder.rows(Some(&place(first, 0)), 1)));
    folder.note_rows(first).unwrap();
    assert!(is_unknown(&open(&store).rows(None, 0)));
}

#[test]
fn former_rows_are_moved_whole_however_often_the_move_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    let store = store(dir.path());
    let folder = with_rows(&store);
    table(&store, "job.u");
    std::fs::write(at("scheduler.job.book"), "GNTBOOK4 and more").unwrap();
    std::fs::write(at("INCARNATIONS"), "x").unwrap();
    std::fs::create_dir_all(at("former/older")).unwrap();
    std::fs::write(at("former/older/shard-0000.image"), "GANNETIM and more").unwrap();
    std::fs::write(at("former/PLACE"), "GNTPLAC1 and more").unwrap();
    // Killed behind the first rename.
    std::fs::create_dir(at("former.new")).unwrap();
    std::fs::write(at("former.new/MOVING"), MARK_BEGINNING).unwrap();
    std::fs::rename(at("job.t"), at("former.new/job.t")).unwrap();
    drop(folder);
    let folder = open(&store);
    assert_eq!((folder.has_rows(), store.held("job.u").unwrap()), (false, None));
    for moved in ["job.t/shard-0000.image", "job.u/shard-0000.image", "scheduler.job.book", "PLACE"] {
        assert!(at("former").join(moved).is_file(), "{moved}");
    }
    assert!(!at("former/older").exists() && !at("former.new").exists() && !at("PLACE").exists());
    assert!(at("INCARNATIONS").exists(), "numbers that were handed out stay so");
    // Killed behind the last rename into former.new, before that has its name.
    std::fs::rename(at("former"), at("former.new")).unwrap();
    std::fs::write(at("former.new/MOVING"), MARK_BEGINNING).unwrap();
    open(&store);
    assert!(at("former/job.t").exists() && !at("former.new").exists());
}

/// Entries of the user in a data folder, with names of ours among them.
const OF_USER: [&str; 11] = [
    "photos/shard-1.jpg",
    "photos/shard-0001.image",
    "job.t/step-notes.txt",
    "job.t/shard-0001.new",
    "scheduler.mine.book",
    "RUNS.new",
    "letter.new",
    "former/letter",
    "former/photos/shard-0001.image",
    "former/RUNS",
    "former/job.t/shard-0002.image",
];

#[test]
fn a_folder_of_the_user_with_a_file_named_shard_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    for name in OF_USER {
        std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let check = |when: &str| {
        for name in OF_USER {
            assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap(), name, "{when}");
        }
    };
    let store = store(dir.path());
    let folder = with_rows(&store);
    check("a table was made");
    folder.claim_empty(NEW, 0).unwrap();
    assert!(!dir.path().join("job.t/shard-0000.image").exists());
    check("the place was begun anew");
    for _ in 0..2 {
        table(&store, "job.t");
        folder.note_rows(NEW).unwrap();
        folder.set_aside().unwrap();
        assert!(dir.path().join("former/job.t/shard-0000.image").exists());
        assert!(!dir.path().join("former.new").exists() && store.tables().is_empty());
        check("the rows were moved");
        folder.claim_empty(NEW, 0).unwrap();
    }
    table(&store, "job.t");
    assert!(store.drop_table("job.t").unwrap());
    check("the table was dropped");
}

#[test]
fn former_rows_that_were_moved_beside_files_of_the_user_went_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    std::fs::create_dir(at("former")).unwrap();
    std::fs::write(at("former/letter"), "text").unwrap();
    let store = store(dir.path());
    let folder = with_rows(&store);
    table(&store, "job.u");
    folder.set_aside().unwrap();
    // Killed in the middle of the second part: some is in former, and the rest in former.new.
    std::fs::create_dir_all(at("former.new/job.u")).unwrap();
    std::fs::rename(at("former/job.u/shard-0000.image"), at("former.new/job.u/shard-0000.image")).unwrap();
    for name in ["former/MOVING", "former.new/MOVING"] {
        std::fs::write(at(name), MARK_BEGINNING).unwrap();
    }
    drop((folder, store));
    let store = crate::places::folder::tests::store(dir.path());
    assert!(!open(&store).has_rows());
    for moved in ["job.t/shard-0000.image", "job.u/shard-0000.image", "TABLES", "PLACE", "letter"] {
        assert!(at("former").join(moved).is_file(), "{moved}");
    }
    assert!(!at("former.new").exists() && !at("former/MOVING").exists());
}

#[test]
fn a_folder_of_the_user_named_former_new_is_in_the_way_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("former.new")).unwrap();
    std::fs::write(dir.path().join("former.new/letter"), "text").unwrap();
    let store = store(dir.path());
    let folder = with_rows(&store);
    assert!(open(&store).has_rows(), "the rows were moved into a folder of the user");
    let why = folder.set_aside().unwrap_err().to_string();
    assert!(why.contains("former.new") && why.contains("move it away"), "{why}");
    assert_eq!(std::fs::read(dir.path().join("former.new/letter")).unwrap(), b"text");
    assert!(store.held("job.t").unwrap().is_some());
}

#[test]
fn the_folder_of_another_place_and_a_torn_record_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    drop(with_rows(&store));
    let refused = |job: &str, place| {
        let opened = PlaceFolder::open(&store, &config(job, place));
        opened.err().expect("it is another folder").to_string()
    };
    for (job, place) in [("other", HOME), ("job", (0, 3)), ("job", (1, 2))] {
        let why = refused(job, place);
        assert!(why.contains("--data-dir") && why.contains("place 1 of 3 of job \"job\""), "{why}");
    }
    let why = refuse_without_coordinator(&store).unwrap_err().to_string();
    assert!(why.contains("--coordinator") && why.contains("place 1 of 3"), "{why}");
    let path = dir.path().join(RECORD);
    let whole = std::fs::read(&path).unwrap();
    for at in [0, 8, 20, whole.len() - 1] {
        let mut torn = whole.clone();
        torn[at] ^= 1;
        std::fs::write(&path, &torn).unwrap();
        let why = refused("job", HOME);
        assert!(why.contains("PLACE") && why.contains("put the file back"), "byte {at}: {why}");
    }
    // Without a record the images say whose they are.
    std::fs::remove_file(&path).unwrap();
    let why = refused("job", (0, 3));
    assert!(why.contains("without coordinator") && why.contains("job.t"), "{why}");
    assert!(PlaceFolder::open(&store, &config("job", HOME)).unwrap().unwrap().has_rows());
    let spare = MembershipConfig { is_backup: true, ..config("job", HOME) };
    assert!(PlaceFolder::open(&store, &spare).unwrap().is_none());
}

#[test]
fn a_kill_before_the_mark_of_a_move_has_its_name_blocks_no_later_move() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("former.new")).unwrap();
    std::fs::write(dir.path().join("former.new/MOVING.new"), &MARK_BEGINNING[..9]).unwrap();
    let store = store(dir.path());
    let folder = with_rows(&store);
    folder.set_aside().unwrap();
    assert!(
        dir.path().join("former/job.t/shard-0000.image").exists() && !dir.path().join("former.new").exists()
    );
}
