//! The immutable head of an image: format, shard, schema, and table identity. docs/image.md has the bytes.
//!
//! A table has a random id. Every image stores it, with the number of the server that made the image, the
//! number of servers, and the image's birth, which is a random number. So a folder says which images belong
//! there, and lost rows are not mistaken for initial rows.

use crate::image::layout::*;
use crate::image::owned_image::Image;
use crate::schema::identity::{ImageOrigin, TableIdentity, TableUid};
use crate::schema::table_schema::Schema;

fn image_word(head: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default())
}

/// The table identity in a head.
pub(crate) fn identity_of(head: &[u8]) -> TableIdentity {
    let uid = head[HEAD_UID..HEAD_UID + 16].try_into().unwrap_or_default();
    TableIdentity {
        uid: TableUid(uid),
        server: image_word(head, HEAD_SERVER),
        servers: image_word(head, HEAD_SERVER + 4),
    }
}

/// The birth in a head.
pub(crate) fn birth_of(head: &[u8]) -> u64 {
    u64::from_le_bytes(head[HEAD_BIRTH..HEAD_BIRTH + 8].try_into().unwrap_or_default())
}

/// Writes the head of a new image.
pub(crate) fn write_head(image: &mut Image, schema: &Schema, number: u32, origin: ImageOrigin) {
    let ImageOrigin { identity: TableIdentity { uid, server, servers }, birth } = origin;
    let schema = schema.encode();
    let head = image.head_mut();
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..16].copy_from_slice(&number.to_le_bytes());
    head[16..20].copy_from_slice(&(schema.len() as u32).to_le_bytes());
    head[HEAD_UID..HEAD_UID + 16].copy_from_slice(&uid.0);
    head[HEAD_SERVER..HEAD_SERVER + 4].copy_from_slice(&server.to_le_bytes());
    head[HEAD_SERVER + 4..HEAD_SERVER + 8].copy_from_slice(&servers.to_le_bytes());
    head[HEAD_BIRTH..HEAD_BIRTH + 8].copy_from_slice(&birth.to_le_bytes());
    head[HEAD_SCHEMA..HEAD_SCHEMA + schema.len()].copy_from_slice(&schema);
    let crc = crc32c::crc32c(&head[8..HEAD_BYTES - 4]);
    head[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    // The magic is written last: a file without it was never a complete image.
    head[..8].copy_from_slice(&MAGIC.to_le_bytes());
}

/// Why a head does not fit this shard.
pub(crate) enum OtherHead {
    Foreign(String),
    Torn(String),
    /// The schema that was found and the expected one, in words.
    Schema(String),
}

/// Checks that these bytes are a head of this program, and returns its schema.
pub(crate) fn check_bytes(head: &[u8]) -> Result<Schema, OtherHead> {
    if head[..8] == [0; 8] {
        return Err(OtherHead::Torn("it was never written whole: its head is empty".into()));
    }
    if head[..8] != MAGIC.to_le_bytes() {
        return Err(OtherHead::Foreign("its first bytes are not GANNETIM".into()));
    }
    if image_word(head, 8) != FORMAT {
        let format = image_word(head, 8);
        return Err(OtherHead::Foreign(format!(
            "its format is {format}, but this version of gannet reads format {FORMAT}"
        )));
    }
    if image_word(head, HEAD_BYTES - 4) != crc32c::crc32c(&head[8..HEAD_BYTES - 4]) {
        return Err(OtherHead::Torn("the checksum of its head is wrong".into()));
    }
    let length = (image_word(head, 16) as usize).min(HEAD_BYTES - 4 - HEAD_SCHEMA);
    let schema = Schema::decode(&head[HEAD_SCHEMA..HEAD_SCHEMA + length]);
    schema.ok_or_else(|| OtherHead::Schema("its schema cannot be read".into()))
}

/// Checks the head of an image of this shard.
pub(crate) fn check_head(head: &[u8], schema: &Schema, number: u32) -> Result<(), OtherHead> {
    let found = check_bytes(head)?;
    if found != *schema || image_word(head, 12) != number {
        let shard = || format!("it holds shard {}, but shard {number} was requested", image_word(head, 12));
        let shard = (image_word(head, 12) != number).then(shard);
        let differences = found.differences(schema);
        let all = shard.into_iter().chain(Some(differences).filter(|text| !text.is_empty()));
        return Err(OtherHead::Schema(all.collect::<Vec<_>>().join("; ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::OpenError;
    use crate::image::files::held_table::image_name;
    use crate::image::files::store::Store;
    use crate::schema::identity::Origin;
    use crate::table::owned::shards::Shards;
    use gannet_optim::{Add, Rule};

    const UID: TableUid = TableUid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

    fn schema() -> Schema {
        Schema { shards: 4, ..Schema::scalar("t", Rule::Add(Add)) }
    }

    fn origin(server: u32, seed: u64) -> Origin {
        Origin { identity: TableIdentity { uid: UID, server, servers: 3 }, seed }
    }

    #[test]
    fn golden_bytes_of_a_head() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let shards = Shards::open_as(&store, &schema(), 1..3, &origin(2, 77)).unwrap();
        let bytes = std::fs::read(folder.path().join("t/shard-0002.image")).unwrap();
        assert_eq!(bytes[..8], *b"GANNETIM");
        assert_eq!(bytes[8..16], [5, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[24..40], UID.0);
        assert_eq!(bytes[40..48], [2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes[48..56], shards.births()[1].to_le_bytes());
        assert_eq!(bytes[56..64], [0; 8]);
        assert_eq!(bytes[64..64 + schema().encode().len()], schema().encode());
        assert_eq!(bytes[764..768], crc32c::crc32c(&bytes[8..764]).to_le_bytes());
        assert_eq!(bytes[0x340..0x348], [0; 8]);
        shards.confirm();
        let bytes = std::fs::read(folder.path().join("t/shard-0002.image")).unwrap();
        assert_eq!(bytes[0x340..0x348], [1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_folder_says_what_it_holds_and_what_is_gone_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let open = |range, of: &Origin| Shards::open_as(&store, &schema(), range, of);
        let image = |number| folder.path().join("t").join(image_name(number));
        assert_eq!(store.held("t").unwrap(), None);
        let first = open(0..2, &origin(0, 7)).unwrap().births();
        let held = store.held("t").unwrap().unwrap();
        assert_eq!((held.identity, held.shards, held.confirmed), (origin(0, 7).identity, 4, false));
        assert_eq!(held.births.into_iter().collect::<Vec<_>>(), [(0, first[0]), (1, first[1])]);
        // An interrupted creation continues. A new image gets a new birth; an existing image keeps its birth.
        std::fs::remove_file(image(1)).unwrap();
        let again = open(0..3, &origin(0, 8)).unwrap();
        assert!(again.births()[0] == first[0] && again.births()[1] != first[1]);
        again.confirm();
        drop(again);
        let other = open(0..3, &origin(1, 8)).err().unwrap().to_string();
        assert!(other.contains("shard-0000.image") && other.contains("server 0 of 3"), "{other}");
        std::fs::remove_file(image(1)).unwrap();
        let gone = open(0..3, &origin(0, 9)).err().unwrap();
        assert!(matches!(gone, OpenError::Gone { shard: 1, .. }), "{gone}");
        assert!(!image(1).exists());
        // Another range of the table's shards is whole.
        assert!(open(2..3, &origin(0, 9)).is_ok());
        // Images of two tables in one folder.
        let strange = tempfile::tempdir().unwrap();
        let of =
            Origin { identity: TableIdentity { uid: TableUid([9; 16]), server: 0, servers: 3 }, seed: 1 };
        let strangers = Store::open_dir(strange.path()).unwrap();
        drop(Shards::open_as(&strangers, &schema(), 1..2, &of).unwrap());
        std::fs::copy(strange.path().join("t/shard-0001.image"), image(1)).unwrap();
        let mixed = store.held("t").unwrap_err().to_string();
        assert!(mixed.contains("shard-0001.image") && mixed.contains("another table"), "{mixed}");
    }

    #[test]
    fn births_differ_by_shard_table_and_incarnation() {
        let of = |uid: u8, seed| Origin {
            identity: TableIdentity { uid: TableUid([uid; 16]), server: 0, servers: 1 },
            seed,
        };
        let mut births: Vec<u64> = (0..4)
            .flat_map(|uid| (0..4).flat_map(move |seed| (0..64).map(move |shard| of(uid, seed).birth(shard))))
            .collect();
        births.sort_unstable();
        births.dedup();
        assert_eq!(births.len(), 4 * 4 * 64);
    }
}
