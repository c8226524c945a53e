//! Sends a worker on this host the images of a table's shards, so that it reads rows in place.

use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse, send_answer};
use crate::server_tables::ServerTables;
use gannet_core::{ShardSet, Shards};
use gannet_transport::{Frame, Full, Stream, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::read_paths::{ImagesFrame, ImagesGivenFrame};
use gannet_wire::limits::IMAGES_PER_REQUEST;
use gannet_wire::messages::control;
use gannet_wire::messages::control::ImagesV1;
use gannet_wire::refusal::Refusal;
use std::io::ErrorKind;
use std::os::fd::AsFd;

/// Sends the images of `count` of this thread's shards, from the `first`-th on. The files are open for reading only.
pub(crate) fn send_images<S: Stream>(
    frame: &Frame<'_>,
    tables: &ServerTables,
    stream: &mut S,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let ImagesFrame { table: number, first, shards: count } = ImagesFrame::decode(&frame.head)?;
    let Some(table) = tables.all.get(number as usize) else {
        return refuse(Refusal::Unknown, format!("no table {number} has been opened on this thread"));
    };
    let Some(shards) = &table.shards else {
        return refuse(Refusal::WrongShard, "this thread owns no shard of the table");
    };
    let of = match asked_for(shards, first, count, IMAGES_PER_REQUEST) {
        Ok(of) => of,
        Err(text) => return refuse(Refusal::WrongShard, format!("images of {text}")),
    };
    // Space for the answer comes first: the worker must learn of each file that it gets.
    transmit.reserve(64 + 8 * count as usize).ok_or(Full)?;
    let images = shards.images(&of);
    let images = images.map_err(|error| RequestFailure::Refused(Refusal::Images, error.to_string()))?;
    let mut incarnations = Vec::with_capacity(count as usize);
    for (_, file, incarnation) in &images {
        match stream.give(file.as_fd()) {
            Ok(()) => incarnations.push(*incarnation),
            // The worker asks for the rest once it has taken these.
            Err(error) if error.kind() == ErrorKind::WouldBlock && !incarnations.is_empty() => break,
            Err(error) => {
                return refuse(Refusal::Images, format!("images cannot be given on this link: {error}"));
            }
        }
    }
    send_answer(frame, ImagesGivenFrame {}, &control::seal(&ImagesV1 { incarnations }), transmit)
}

/// The shards of a request for `count` of this thread's shards, from the `first`-th on. The error says what is wrong.
pub(crate) fn asked_for(shards: &Shards, first: u32, count: u32, most: u32) -> Result<ShardSet, String> {
    let (all, from) = (shards.set(), first as usize);
    let of = all.numbers().get(from..from.saturating_add(count as usize));
    match of.filter(|of| !of.is_empty() && count <= most) {
        Some(of) => Ok(ShardSet::of(of.iter().copied())),
        None => {
            let own = all.len();
            Err(format!("{count} shards from position {first} on: at most {most} of this thread's {own}"))
        }
    }
}
