//! Control messages: rkyv archives of frozen V1 structs behind a version word. The receiver copies a message to aligned
//! memory, and validates it before it uses anything in it. A changed message is a new struct with a new version.

use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Error;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};

const VERSION: u32 = 1;

/// A worker with a token begins the greeting: it sends a random number.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct KnockV1 {
    pub nonce: [u8; 32],
}

/// The server's answer: a random number of its own.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct ChallengeV1 {
    pub nonce: [u8; 32],
}

/// A proof of having the token: the worker's, and then the server's.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct ProofV1 {
    pub proof: [u8; 32],
}

/// A worker says who it is and which thread of the server it wants.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct HelloV1 {
    pub pusher: u64,
    pub incarnation: u64,
    pub thread: u32,
}

/// A server thread answers a hello.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct WelcomeV1 {
    /// The server's incarnation.
    pub incarnation: u64,
    /// This session's number, part of its keysets' names.
    pub session: u32,
    pub threads: u32,
}

/// A worker asks what a server has of a table.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct IdentifyV2 {
    pub table: String,
    /// Whose part of the table it is about: server `server` of `servers`. 0 servers: what the server has as its own.
    pub server: u32,
    pub servers: u32,
}

/// A server answers what it has of a table.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct IdentityV1 {
    pub held: Option<HeldV1>,
}

/// A server's part of a table.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct HeldV1 {
    /// The table's id.
    pub uid: [u8; 16],
    /// Which of how many servers it is.
    pub server: u32,
    pub servers: u32,
    /// Shards of the whole table.
    pub shards: u32,
    /// All servers of the table have made their shards.
    pub confirmed: bool,
}

/// A worker opens a table, which the server has or makes now.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct OpenTableV2 {
    /// As `Schema::encode` of core.
    pub schema: Vec<u8>,
    /// The table's id. Zeros: the server draws one.
    pub uid: [u8; 16],
    pub server: u32,
    pub servers: u32,
    /// The incarnation of the server that answered that it has nothing, and that may make the shards. 0: the shards
    /// must exist.
    pub make_in: u64,
}

/// Who owns the part of one server in all tables: a value in the coordinator.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct PlaceV3 {
    /// Raised with each owner.
    pub epoch: u64,
    /// The generation of the job in which the rows were begun ([`GenerationV2`]).
    pub generation: u64,
    /// The owner's address, and its incarnation: a random number.
    pub owner: String,
    pub incarnation: u64,
    /// The owner serves. A backup that takes the place is not ready at first.
    pub ready: bool,
    /// The backups that have everything that was acknowledged: address and incarnation. A backup that was started
    /// again has another incarnation, and has nothing.
    pub backups: Vec<(String, u64)>,
    /// Everything that was acknowledged was told in this epoch or a later one. It is below `epoch` as long as the owner
    /// acknowledges nothing: then a backup may go on with what an earlier owner has told it.
    pub since: u64,
    /// Replication is asynchronous. All owners of a job do the same.
    pub is_async: bool,
}

/// What a coordinator knows of a job as a whole. When the rows of a place are gone and the job goes back to a
/// checkpoint, a new generation begins, and the rows of all earlier ones are given up.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
pub struct GenerationV2 {
    pub number: u64,
    /// The checkpoint whose rows all places of this generation begin with. `None`: they begin without rows.
    pub checkpoint: Option<u64>,
    /// At least so many changes of a shard were undone with the generation before, as the servers know that had rows.
    pub undone: u64,
    /// The lease of the keys of the job that say more than which servers live: the servers keep it alive. 0: they stay
    /// until somebody removes them, because a server has a data folder.
    pub lease: u64,
    /// Drawn when the job was founded. Servers keep it in their data folders, and know their job by it.
    pub birth: u64,
    /// The addresses of the job's servers, in the order of places, as one number. A server without a data folder knows
    /// its job by them.
    pub servers: u64,
}

/// A server asks another one to keep copies of its shards.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct CopyV1 {
    /// As `Schema::encode` of core.
    pub schema: Vec<u8>,
    /// The table's id, and which of its servers has the shards.
    pub uid: [u8; 16],
    pub server: u32,
    pub servers: u32,
    /// All servers of the table have made their shards.
    pub confirmed: bool,
    /// As in `TableOpenedV4`.
    pub all_births: u64,
    /// Each shard that the thread is to keep, in ascending order, and its birth.
    pub births: Vec<(u32, u64)>,
}

/// What the scheduler's server knows besides rows: one of the states that a checkpoint has too.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct StateV1 {
    /// As in a checkpoint: `tasks`, `runs` or `incarnations`.
    pub name: String,
    /// The run that it is of. Empty: it is of no run, or of the run without a name.
    pub run: String,
    /// The bytes that a checkpoint has. Empty: there is no such state any more.
    pub bytes: Vec<u8>,
}

/// A server thread has sent images, as files, over a link that can carry files.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct ImagesV1 {
    /// The incarnation of each requested shard, in order.
    pub incarnations: Vec<u64>,
}

/// The memory that a server thread has registered for READs.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct RegionsV1 {
    /// One entry for each requested shard, in order.
    pub shards: Vec<RegionV1>,
}

/// The memory of one shard that can be read.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct RegionV1 {
    pub incarnation: u64,
    pub header_addr: u64,
    pub header_rkey: u32,
    pub rows: Vec<ExtentV1>,
}

/// An extent of a shard's rows.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct ExtentV1 {
    pub offset: u64,
    pub bytes: u64,
    pub addr: u64,
    pub rkey: u32,
}

/// A server thread answers an open.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct TableOpenedV4 {
    /// The table's number on this thread.
    pub table: u32,
    /// The shards of this thread in runs: the first of each, and the one behind its last.
    pub shards: Vec<(u32, u32)>,
    /// The images' incarnation.
    pub incarnation: u64,
    /// The table's id.
    pub uid: [u8; 16],
    /// All servers of the table have made their shards.
    pub confirmed: bool,
    /// What the first confirmation said of the births of all shards. 0: there was none since the shards were made.
    pub all_births: u64,
    /// The random number of each shard here, drawn when the shard was made.
    pub births: Vec<u64>,
}

/// A worker tells a server thread that all servers of a table have made their shards.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct ConfirmV2 {
    /// The table's number on this thread, and its id.
    pub table: u32,
    pub uid: [u8; 16],
    /// The births of all shards of the table, as one number.
    pub all_births: u64,
}

/// A worker drops a table.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct DropTableV1 {
    pub table: String,
}

/// A worker joins those that keep step over a table.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct JoinV1 {
    pub rank: u32,
    pub workers: u32,
    /// 0: asp, 1: ssp, 2: bsp.
    pub mode: u32,
    /// The bound of ssp, or how many workers complete a step of bsp.
    pub bound: u32,
    /// Bsp applies the mean of the workers' rows instead of the sum.
    pub mean: bool,
    /// The group does not go on without a worker: the others end.
    pub strict: bool,
    /// How long the group waits for a silent worker.
    pub timeout_ms: u64,
    /// The worker's clock. 2^64 - 1: it begins where the others are.
    pub clock: u64,
    /// The workers that have left, as last reported to this one: a bit each for the first 64.
    pub left: u64,
}

/// A server thread answers a join.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct JoinedV1 {
    /// The clock that the worker has here.
    pub clock: u64,
}

/// A server thread names the worker for which a request waits.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct WaitsV2 {
    /// The table's number on this thread.
    pub table: u32,
    pub rank: u32,
    /// The clock of that worker.
    pub clock: u64,
    /// Its pusher and incarnation; 0 if it has not joined.
    pub pusher: u64,
    pub incarnation: u64,
    /// It has a session.
    pub here: bool,
}

/// Sizes of a thread's part of a table, and its pushers.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct StatusV2 {
    pub rows: u64,
    pub bytes: u64,
    pub shards: u32,
    pub pushers: Vec<PusherV1>,
    /// The last pushes of fixed shares, if this process took the table from a checkpoint: of those shares that have
    /// pushed nothing since.
    pub restored: Option<Vec<RestoredShareV1>>,
}

/// The last push of a fixed share that a checkpoint has.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
pub struct RestoredShareV1 {
    pub pusher: u64,
    pub incarnation: u64,
    pub seq: u64,
}

/// What a thread's shards remember of a pusher.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct PusherV1 {
    pub pusher: u64,
    pub incarnation: u64,
    pub seq: u64,
    /// The most rows of that push that one shard has.
    pub rows: u32,
    pub closed: bool,
}

/// A program on the columns of one shard of a table of vectors, named like a push.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct VectorV1 {
    pub shard: u32,
    pub seq: u64,
    pub pass: u64,
    pub free: Option<u64>,
    pub steps: Vec<StepV1>,
    /// Kind (0 dot, 1 norm; 2 more: without the free row; 4 + 8 * column: dot weighted by that column) and columns.
    pub sums: Vec<[u16; 3]>,
}

/// A step of a program.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct StepV1 {
    /// 0 combine, 1 slope, 2 align, 3 project, 4 multiply, 5 reciprocal.
    pub kind: u16,
    pub to: u16,
    pub columns: [u16; 3],
    pub number: f64,
    /// Each term's factor and column, and whether it leaves out the free row.
    pub terms: Vec<(f64, u16, bool)>,
}

/// The sums of a program over the shard.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct VectorDoneV1 {
    pub sums: Vec<f64>,
}

/// Why a request was refused; the code is in the head.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct RefusedV1 {
    pub text: String,
}

/// Why a payload is not a control message of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("a control message of {0} bytes is too short for its own length")]
    Short(usize),
    #[error("control message version {0}, ours is {1}: run the same gannet on both sides")]
    Version(u32, u32),
    #[error("a control message that does not validate: {0}")]
    Invalid(String),
}

/// The payload of a V1 message: version u32, archive length u32, archive.
pub fn seal<T>(message: &T) -> Vec<u8>
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, Error>>,
{
    seal_as(VERSION, message)
}

/// The payload of a message of a later version.
pub fn seal_as<T>(version: u32, message: &T) -> Vec<u8>
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, Error>>,
{
    let archive = rkyv::to_bytes::<Error>(message).expect("plain structs always archive");
    let mut payload = Vec::with_capacity(8 + archive.len());
    payload.extend(version.to_le_bytes());
    payload.extend((archive.len() as u32).to_le_bytes());
    payload.extend_from_slice(&archive);
    payload
}

/// The V1 message in a payload, validated.
pub fn open<T>(payload: &[u8]) -> Result<T, ControlError>
where
    T: Archive,
    T::Archived: for<'a> CheckBytes<HighValidator<'a, Error>> + Deserialize<T, HighDeserializer<Error>>,
{
    open_as(VERSION, payload)
}

/// The message of a later version in a payload, validated.
pub fn open_as<T>(ours: u32, payload: &[u8]) -> Result<T, ControlError>
where
    T: Archive,
    T::Archived: for<'a> CheckBytes<HighValidator<'a, Error>> + Deserialize<T, HighDeserializer<Error>>,
{
    let Some((&[a, b, c, d, e, f, g, h], rest)) = payload.split_first_chunk() else {
        return Err(ControlError::Short(payload.len()));
    };
    let version = u32::from_le_bytes([a, b, c, d]);
    if version != ours {
        return Err(ControlError::Version(version, ours));
    }
    let length = u32::from_le_bytes([e, f, g, h]) as usize;
    let archive = rest.get(..length).ok_or(ControlError::Short(payload.len()))?;
    let mut aligned = AlignedVec::<16>::with_capacity(length);
    aligned.extend_from_slice(archive);
    rkyv::from_bytes::<T, Error>(&aligned).map_err(|error| ControlError::Invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let hello = seal(&HelloV1 { pusher: 0x0102_0304_0506_0708, incarnation: 9, thread: 3 });
        let mut want = vec![1, 0, 0, 0, 24, 0, 0, 0];
        want.extend([8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(hello, want);
        for bytes in [
            seal(&KnockV1 { nonce: [5; 32] }),
            seal(&ChallengeV1 { nonce: [5; 32] }),
            seal(&ProofV1 { proof: [5; 32] }),
        ] {
            let mut want = vec![1, 0, 0, 0, 32, 0, 0, 0];
            want.extend([5; 32]);
            assert_eq!(bytes, want);
        }
        let join = JoinV1 {
            rank: 1,
            workers: 2,
            mode: 1,
            bound: 8,
            mean: true,
            strict: false,
            timeout_ms: 5,
            clock: u64::MAX,
            left: 6,
        };
        let mut want = vec![1, 0, 0, 0, 48, 0, 0, 0];
        want.extend([
            1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
        ]);
        want.extend([0xFF; 8]);
        want.extend([6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(seal(&join), want);
        assert_eq!(seal(&JoinedV1 { clock: 3 }), [1, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let waits = WaitsV2 { table: 1, rank: 2, clock: 3, pusher: 4, incarnation: 5, here: true };
        let mut want = vec![2, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        [3u64, 4, 5, 1].iter().for_each(|word| want.extend(word.to_le_bytes()));
        assert_eq!(seal_as(2, &waits), want);
        let (schema, uid) = (vec![7; 12], [5; 16]);
        let open_table =
            seal_as(2, &OpenTableV2 { schema, uid, server: 1, servers: 2, make_in: 0x0102_0304_0506_0708 });
        let mut want = vec![2, 0, 0, 0, 56, 0, 0, 0];
        want.extend([7; 12]);
        want.extend([0; 4]);
        want.extend([0xF0, 0xFF, 0xFF, 0xFF, 12, 0, 0, 0]);
        want.extend([5; 16]);
        want.extend([1, 0, 0, 0, 2, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(open_table, want);
        let identify = seal_as(2, &IdentifyV2 { table: "t".into(), server: 1, servers: 3 });
        let name = [2, 0, 0, 0, 16, 0, 0, 0, b't', 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(identify, [&name[..], &[1, 0, 0, 0, 3, 0, 0, 0]].concat());
        let held = HeldV1 { uid: [5; 16], server: 1, servers: 2, shards: 64, confirmed: true };
        let mut want = vec![1, 0, 0, 0, 36, 0, 0, 0, 1, 0, 0, 0];
        want.extend([5; 16]);
        want.extend([1, 0, 0, 0, 2, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(seal(&IdentityV1 { held: Some(held) }), want);
        let drop_table = seal(&DropTableV1 { table: "t".into() });
        assert_eq!(drop_table, [1, 0, 0, 0, 8, 0, 0, 0, b't', 255, 255, 255, 255, 255, 255, 255]);
        let mut want = vec![2, 0, 0, 0, 32, 0, 0, 0, 3, 0, 0, 0];
        want.extend([5; 16]);
        want.extend([0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(seal_as(2, &ConfirmV2 { table: 3, uid: [5; 16], all_births: 9 }), want);
    }

    #[test]
    fn messages_come_through() {
        let pusher = PusherV1 { pusher: 1, incarnation: 2, seq: 3, rows: 4, closed: true };
        let restored = Some(vec![RestoredShareV1 { pusher: 1, incarnation: 2, seq: 3 }]);
        let status = StatusV2 { rows: 5, bytes: 6, shards: 7, pushers: vec![pusher; 3], restored };
        assert_eq!(open_as::<StatusV2>(2, &seal_as(2, &status)), Ok(status));
        let mut other = seal(&RefusedV1 { text: "no".into() });
        other[0] = 2;
        assert_eq!(open::<RefusedV1>(&other), Err(ControlError::Version(2, 1)));
        assert_eq!(open::<RefusedV1>(&other[..5]), Err(ControlError::Short(5)));
    }

    proptest! {
        #[test]
        fn damaged_messages_are_refused_or_read_but_never_believed_blindly(at in 8usize..120, byte: u8) {
            let pusher = PusherV1 { pusher: 1, incarnation: 2, seq: 3, rows: 4, closed: true };
            let pushers = vec![pusher; 2];
            let mut bytes =
                seal_as(2, &StatusV2 { rows: 5, bytes: 6, shards: 7, pushers, restored: Some(Vec::new()) });
            let at = at.min(bytes.len() - 1);
            bytes[at] = byte;
            if let Ok(status) = open_as::<StatusV2>(2, &bytes) {
                prop_assert!(status.pushers.len() <= 2);
            }
        }
    }
}
