//! How a worker asks for read paths, and takes the answers.

use crate::config::worker_config::OneSided;
use crate::error::WorkerError;
use crate::limits::{IMAGES_MAPPED_MAX, REGIONS_EVERY};
use crate::links::peer::Peer;
use crate::reads::one_sided::ReadPath;
use crate::reads::path_choice::ALL_QUARTERS;
use crate::reads::query::{ReadPathQuery, ReadPathReplies};
use crate::reads::rdma_reads::RdmaTable;
use crate::requests::ids::Request;
use crate::requests::in_flight::{ControlInFlight, RequestWork};
use crate::worker::Worker;
use gannet_core::MappedShards;
use gannet_transport::{Net, Stream};
use std::time::Duration;

impl<N: Net> Worker<N> {
    /// Requests the read path of the next table that this link's server may let the worker read, if any.
    pub(crate) fn request_read_path(&mut self, number: usize) -> Result<(), WorkerError> {
        let peer = &mut self.peers[number];
        let Some(link) = &mut peer.link else { return Ok(()) };
        let how = self.config.one_sided;
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
        let next = (0..self.tables.len().min(peer.session.tables.len()))
            .filter(|&table| peer.near.tables.get(table).is_none_or(Option::is_none))
            .filter(|&table| !self.tables[table].is_dropped())
            .map(|table| (table, self.tables[table].opened.shards(peer)))
            .find(|(_, shards)| !shards.is_empty());
        let Some((table, shards)) = next else { return Ok(()) };
        if near && self.mapped_images() + shards.len() > IMAGES_MAPPED_MAX {
            return Ok(());
        }
        let peer = &mut self.peers[number];
        let replies = match near {
            true => ReadPathReplies::Images(Vec::new()),
            false => ReadPathReplies::Regions(Box::new(RdmaTable::new(&self.tables[table].schema, &shards))),
        };
        peer.near.query = Some(ReadPathQuery { table, shards, replies });
        self.request_more_shards(number)
    }

    /// The images that are mapped over all links, and those that are asked for.
    fn mapped_images(&self) -> usize {
        let near = || self.peers.iter().map(|peer| &peer.near);
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
    pub(crate) fn refresh_read_paths(&mut self, now: Duration) -> Result<(), WorkerError> {
        for number in 0..self.peers.len() {
            let Peer { link: Some(_), near, .. } = &mut self.peers[number] else { continue };
            if near.query.is_some() || now.saturating_sub(near.last_asked) < REGIONS_EVERY {
                continue;
            }
            let outgrown =
                |path: &Option<ReadPath>| matches!(path, Some(ReadPath::Rdma(rdma)) if rdma.outgrown);
            let Some(table) = near.tables.iter().position(outgrown) else { continue };
            let Some(ReadPath::Rdma(mut rdma)) = near.tables[table].take() else { continue };
            near.last_asked = now;
            rdma.restart();
            let shards = self.tables[table].opened.shards(&self.peers[number]);
            let replies = ReadPathReplies::Regions(rdma);
            self.peers[number].near.query = Some(ReadPathQuery { table, shards, replies });
            self.request_more_shards(number)?;
        }
        Ok(())
    }

    fn request_more_shards(&mut self, number: usize) -> Result<(), WorkerError> {
        let Some(ReadPathQuery { table, shards, replies }) = &self.peers[number].near.query else {
            return Ok(());
        };
        let first = replies.shards() as u32;
        let software = self.config.one_sided == OneSided::Always;
        let (frame, now) = (replies.request(first, shards.len() as u32 - first, software), self.net.now());
        let (table, answers) = (Some(*table), vec![None]);
        let control = ControlInFlight { frame, table, answers, ..ControlInFlight::default() };
        let id = self.flights.add(RequestWork::Control(control), 1, 0, now);
        self.peers[number].enqueue(Request { index: id.index, chunk: 0, push: false, bytes: 0 }, now);
        self.send(number)
    }

    /// Takes images or regions from an answer. The worker reads a table once it knows all of its shards.
    pub(crate) fn take_read_path(
        &mut self,
        number: usize,
        control: &ControlInFlight,
    ) -> Result<(), WorkerError> {
        let peer = &mut self.peers[number];
        let (Some(link), Some(Some((head, answer)))) = (&mut peer.link, control.answers.first()) else {
            return Ok(());
        };
        let Some(query) = &mut peer.near.query else { return Ok(()) };
        let nonsense = |what: String| WorkerError::Protocol { peer: peer.name.clone(), what };
        let before = query.replies.shards();
        query.replies.add(head, answer, link.stream_mut()).map_err(nonsense)?;
        let (known, all) = (query.replies.shards(), query.shards.len());
        if known == before || known > all {
            return Err(nonsense(format!("{known} of {all} shards, and there were already {before}")));
        }
        if known < all {
            return self.request_more_shards(number);
        }
        let Some(ReadPathQuery { table, shards, replies }) = peer.near.query.take() else { return Ok(()) };
        let (name, how) = (&self.tables[table].schema.name, link.stream().transport());
        let path = match replies {
            ReadPathReplies::Images(files) => {
                MappedShards::open(&self.tables[table].schema, shards.clone(), files)
                    .map(|images| ReadPath::Images(Box::new(images)))
            }
            ReadPathReplies::Regions(rdma) => Ok(ReadPath::Rdma(rdma)),
        };
        match path {
            Ok(path) => {
                tracing::debug!(peer = %peer.name, table = name, %shards, how, "the worker reads rows itself");
                let tables = peer.near.tables.len().max(table + 1);
                peer.near.tables.resize_with(tables, || None);
                // The server's core writes rows that are pushed back, and their lines then move between cores.
                let kept = if matches!(path, ReadPath::Images(_)) { 0 } else { ALL_QUARTERS };
                self.paths.begin(table, kept);
                peer.near.tables[table] = Some(path);
            }
            Err(error) => {
                tracing::warn!(peer = %peer.name, table = name, %error, "images cannot be mapped: the worker requests rows");
                peer.near.refused = true;
            }
        }
        self.request_read_path(number)
    }

    /// The server does not let the worker read over this link.
    pub(crate) fn read_path_refused(&mut self, number: usize, text: &str) {
        let peer = &mut self.peers[number];
        tracing::info!(peer = %peer.name, why = text, "the worker requests rows: the server does not let it read them");
        (peer.near.refused, peer.near.query) = (true, None);
    }
}
