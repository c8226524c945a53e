//! How a worker gets to read a server's rows itself (the cold part). It asks in the background for the images of each
//! table, or for their registrations for READs. Until that is answered it requests rows.

use crate::config::worker_config::OneSided;
use crate::error::WorkerError;
use crate::limits::{IMAGES_MAPPED_MAX, REGIONS_EVERY};
use crate::links::control::post_on;
use crate::links::peer::Peer;
use crate::links::state::Links;
use crate::reads::one_sided::ReadPath;
use crate::reads::path_choice::{ALL_QUARTERS, PathChoices};
use crate::reads::query::{ReadPathQuery, ReadPathReplies};
use crate::reads::rdma_reads::RdmaTable;
use crate::requests::in_flight::ControlInFlight;
use crate::tables::table::Tables;
use gannet_core::MappedShards;
use gannet_transport::{Net, Stream};
use std::time::Duration;

/// Requests the read path of the next table that this link's server may let the worker read, if any.
pub(crate) fn request_read_path<N: Net>(
    links: &mut Links<N>,
    tables: &Tables,
    number: usize,
) -> Result<(), WorkerError> {
    let peer = &mut links.peers[number];
    let Some(link) = &mut peer.link else { return Ok(()) };
    let how = links.config.one_sided;
    let near = link.stream().is_near() && how != OneSided::Never;
    let by_device = link.stream_mut().reader().map(|reader| reader.by_device());
    let rdma = match how {
        OneSided::Auto => by_device == Some(true),
        OneSided::Always => by_device.is_some(),
        OneSided::Never => false,
    };
    if how == OneSided::Auto && by_device == Some(false) && !peer.near.refused {
        let why = "the RDMA device is software, so requests are faster";
        tracing::info!(peer = %peer.name, why, "the worker requests rows");
        peer.near.refused = true;
    }
    // In the middle of a synchronous step the worker may send nothing else.
    let in_step = peer.steps.pushed.0 > 0;
    if !(near || rdma) || peer.near.refused || peer.near.query.is_some() || in_step {
        return Ok(());
    }
    let next = (0..tables.len().min(peer.session.tables.len()))
        .filter(|&table| peer.near.tables.get(table).is_none_or(Option::is_none))
        .filter(|&table| !tables[table].is_dropped())
        .map(|table| (table, tables[table].opened.shards(peer.thread())))
        .find(|(_, shards)| !shards.is_empty());
    let Some((table, shards)) = next else { return Ok(()) };
    if near && mapped_images(links) + shards.len() > IMAGES_MAPPED_MAX {
        return Ok(());
    }
    let peer = &mut links.peers[number];
    let replies = match near {
        true => ReadPathReplies::Images(Vec::new()),
        false => ReadPathReplies::Regions(Box::new(RdmaTable::new(&tables[table].schema, &shards))),
    };
    peer.near.query = Some(ReadPathQuery { table, shards, replies });
    request_more_shards(links, number)
}

/// The images that are mapped over all links, and those that are asked for.
fn mapped_images<N: Net>(links: &Links<N>) -> usize {
    let near = || links.peers.iter().map(|peer| &peer.near);
    let mapped = near().flat_map(|near| &near.tables).flatten().map(|path| match path {
        ReadPath::Images(images) => images.set().len(),
        ReadPath::Rdma(_) => 0,
    });
    let asked = near().filter_map(|near| near.query.as_ref()).map(|query| match query.replies {
        ReadPathReplies::Images(_) => query.shards.len(),
        ReadPathReplies::Regions(_) => 0,
    });
    mapped.sum::<usize>() + asked.sum::<usize>()
}

/// From time to time asks again what the server has registered, for tables with rows beyond the known regions.
pub(crate) fn refresh_read_paths<N: Net>(
    links: &mut Links<N>,
    tables: &Tables,
    now: Duration,
) -> Result<(), WorkerError> {
    for number in 0..links.peers.len() {
        let Peer { link: Some(_), near, .. } = &mut links.peers[number] else { continue };
        if near.query.is_some() || now.saturating_sub(near.last_asked) < REGIONS_EVERY {
            continue;
        }
        let outgrown = |path: &Option<ReadPath>| matches!(path, Some(ReadPath::Rdma(rdma)) if rdma.outgrown);
        let Some(table) = near.tables.iter().position(outgrown) else { continue };
        let Some(ReadPath::Rdma(mut rdma)) = near.tables[table].take() else { continue };
        near.last_asked = now;
        rdma.restart();
        let shards = tables[table].opened.shards(links.peers[number].thread());
        let replies = ReadPathReplies::Regions(rdma);
        links.peers[number].near.query = Some(ReadPathQuery { table, shards, replies });
        request_more_shards(links, number)?;
    }
    Ok(())
}

fn request_more_shards<N: Net>(links: &mut Links<N>, number: usize) -> Result<(), WorkerError> {
    let Some(ReadPathQuery { table, shards, replies }) = &links.peers[number].near.query else {
        return Ok(());
    };
    let first = replies.shards() as u32;
    let software = links.config.one_sided == OneSided::Always;
    let (frame, now) = (replies.request(first, shards.len() as u32 - first, software), links.net.now());
    let control = ControlInFlight { frame, table: Some(*table), ..ControlInFlight::default() };
    post_on(links, number, control, 0, now).map(drop)
}

/// Takes images or regions from an answer. The worker reads a table once it knows all of its shards.
pub(crate) fn take_read_path<N: Net>(
    links: &mut Links<N>,
    tables: &Tables,
    choices: &mut PathChoices,
    number: usize,
    control: &ControlInFlight,
) -> Result<(), WorkerError> {
    let peer = &mut links.peers[number];
    let (Some(link), Some(Some(answer))) = (&mut peer.link, control.answers.first()) else {
        return Ok(());
    };
    let Some(query) = &mut peer.near.query else { return Ok(()) };
    let nonsense = |what: String| WorkerError::Protocol { peer: peer.name.clone(), what };
    let before = query.replies.shards();
    query.replies.add(&answer.head, &answer.payload, link.stream_mut()).map_err(nonsense)?;
    let (known, all) = (query.replies.shards(), query.shards.len());
    if known == before || known > all {
        return Err(nonsense(format!("{known} of {all} shards, and there were already {before}")));
    }
    if known < all {
        return request_more_shards(links, number);
    }
    let Some(ReadPathQuery { table, shards, replies }) = peer.near.query.take() else { return Ok(()) };
    let (name, how) = (&tables[table].schema.name, link.stream().transport());
    let path = match replies {
        ReadPathReplies::Images(files) => MappedShards::open(&tables[table].schema, shards.clone(), files)
            .map(|images| ReadPath::Images(Box::new(images))),
        ReadPathReplies::Regions(rdma) => Ok(ReadPath::Rdma(rdma)),
    };
    match path {
        Ok(path) => {
            tracing::debug!(peer = %peer.name, table = name, %shards, how, "the worker reads rows itself");
            let tables = peer.near.tables.len().max(table + 1);
            peer.near.tables.resize_with(tables, || None);
            // The server's core writes rows that are pushed back, and their lines then move between cores.
            let kept = if matches!(path, ReadPath::Images(_)) { 0 } else { ALL_QUARTERS };
            choices.begin(table, kept);
            peer.near.tables[table] = Some(path);
        }
        Err(error) => {
            tracing::warn!(peer = %peer.name, table = name, %error, "images cannot be mapped: the worker requests rows");
            peer.near.refused = true;
        }
    }
    request_read_path(links, tables, number)
}

/// The server does not let the worker read over this link.
pub(crate) fn read_path_refused<N: Net>(links: &mut Links<N>, number: usize, why: &str) {
    let peer = &mut links.peers[number];
    tracing::info!(peer = %peer.name, why, "the worker requests rows: the server does not let it read them");
    (peer.near.refused, peer.near.query) = (true, None);
}
