//! Input that no real worker would send, made of any bytes: the entries of the fuzz targets, and the generator of
//! frames for the tests of hostile peers. Not a part of the interface.

pub(crate) mod frames;
pub(crate) mod job_clients;

pub use crate::hostile::frames::{Choices, KEY_BIT, PUSHERS, schema, script};
use crate::scripted::{greet, play};
use gannet_core::Schema;
use gannet_transport::Head;
use gannet_transport::limits::HEAD_BYTES;
use gannet_wire::frames::decode_as_all;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{
    ChallengeV1, ConfirmV2, HelloV1, IdentifyV2, IdentityV1, JoinV1, JoinedV1, KnockV1, OpenTableV2, ProofV1,
    PusherV1, RefusedV1, StatusV2, TableOpenedV4, WaitsV2, WelcomeV1,
};
use gannet_wire::messages::data::{DataRequest, OfferV1};
use gannet_wire::messages::jobs::JobTableV3;
use gannet_wire::messages::runs::RunRequestV1;

/// Reads these bytes as a head and as every control message. Each is read or refused, and a message that was read can
/// be written again.
///
/// # Panics
/// A message is read as something that it is not: a bug.
pub fn decode(bytes: &[u8]) {
    if let Some((first, rest)) = bytes.split_at_checked(HEAD_BYTES) {
        let mut sealed = first.to_vec();
        let crc = crc32c::crc32c(&sealed[..HEAD_BYTES - 4]);
        sealed[HEAD_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        // Tried as they are, and with a right checksum: otherwise almost nothing would pass.
        for head in [first, &sealed].into_iter().filter_map(|bytes| Head::decode(bytes).ok()) {
            let mut again = [0; HEAD_BYTES];
            head.encode(&mut again);
            assert_eq!(Head::decode(&again), Ok(head));
            decode_as_all(&head);
        }
        messages(rest);
    }
    messages(bytes);
    if let Some(schema) = Schema::decode(bytes) {
        // NaN does not equal itself, so bytes are compared.
        let again = schema.encode();
        assert_eq!(Schema::decode(&again).map(|schema| schema.encode()), Some(again));
    }
}

fn messages(bytes: &[u8]) {
    reads::<KnockV1>(bytes);
    reads::<ChallengeV1>(bytes);
    reads::<ProofV1>(bytes);
    reads::<HelloV1>(bytes);
    reads::<WelcomeV1>(bytes);
    reads::<OpenTableV2>(bytes);
    reads::<IdentifyV2>(bytes);
    reads::<IdentityV1>(bytes);
    reads::<ConfirmV2>(bytes);
    reads::<JobTableV3>(bytes);
    reads::<RunRequestV1>(bytes);
    reads::<TableOpenedV4>(bytes);
    reads::<StatusV2>(bytes);
    reads::<PusherV1>(bytes);
    reads::<RefusedV1>(bytes);
    reads::<JoinV1>(bytes);
    reads::<JoinedV1>(bytes);
    reads::<WaitsV2>(bytes);
    reads::<OfferV1>(bytes);
    if let Some(feed) = DataRequest::of(bytes) {
        assert_eq!(feed.payload(), bytes);
    }
}

/// Puts a right version and length before `bytes`. If they can be read as this message, it must come through again.
fn reads<T>(bytes: &[u8])
where
    T: rkyv::Archive + PartialEq + std::fmt::Debug,
    T: for<'a> rkyv::Serialize<
            rkyv::api::high::HighSerializer<
                rkyv::util::AlignedVec,
                rkyv::ser::allocator::ArenaHandle<'a>,
                rkyv::rancor::Error,
            >,
        >,
    T::Archived: for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rkyv::rancor::Error>>
        + rkyv::Deserialize<T, rkyv::api::high::HighDeserializer<rkyv::rancor::Error>>,
{
    let _ = control::open::<T>(bytes);
    let mut framed = 1u32.to_le_bytes().to_vec();
    framed.extend((bytes.len() as u32).to_le_bytes());
    framed.extend_from_slice(bytes);
    if let Ok(message) = control::open::<T>(&framed) {
        assert_eq!(control::open::<T>(&control::seal(&message)), Ok(message));
    }
}

/// Runs a server session over any bytes: as they are, or as a [`script`]. The first byte chooses.
///
/// # Panics
/// The server panics, stored rows have changed, or answers are no frames: a bug.
pub fn session(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let stream = if first < 64 { rest.to_vec() } else { script(&mut Choices(rest), 1) };
    play(stream, 1 + usize::from(first) * usize::from(first));
}

/// Sends a greeting of any bytes, or of greeting frames, to a server with or without a token. The first byte chooses.
///
/// # Panics
/// The server panics, lets in a peer without the token, or refuses a peer with it: a bug.
pub fn greeting(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let stream = if first < 64 { rest.to_vec() } else { frames::greetings(&mut Choices(rest)) };
    greet(stream, 1 + usize::from(first & 63) * usize::from(first), first % 2 == 0);
}

/// A peer over shared memory that writes and rewrites its rings as these bytes say.
///
/// # Panics
/// A bug was found.
pub fn rings(bytes: &[u8]) {
    gannet_transport::shm::rewritten(bytes);
}
