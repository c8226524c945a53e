//! How a connection becomes a peer's link (the cold part): proofs of the token, hello, then the tables are opened
//! again. Nothing here waits: each step is taken when its answer has come, while the other links go on.

use crate::error::WorkerError;
use crate::limits::ATTEMPT_TIME;
use crate::links::attempts::see_all_pushes;
use crate::links::layout::lay_out;
use crate::links::opening::{Opening, OpeningStep};
use crate::links::owners::is_owner;
use crate::links::peer::Peer;
use crate::links::refused::refusal_error;
use crate::links::state::{Arrived, Links};
use crate::requests::request_queue::Credit;
use crate::tables::table::Tables;
use gannet_transport::{Head, Link, LinkError, Net, NetError, Poll, Stream};
use gannet_wire::frames;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::{HelloFrame, KnockFrame, ProveFrame, RefusedFrame, WelcomeFrame};
use gannet_wire::frames::sync::JoinFrame;
use gannet_wire::frames::tables::OpenTableFrame;
use gannet_wire::limits::THREADS_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{
    ChallengeV1, HelloV1, JoinedV1, KnockV1, ProofV1, TableOpenedV4, WelcomeV1,
};
use gannet_wire::random::draw;
use gannet_wire::refusal::Refusal;
use gannet_wire::token::{Nonce, Nonces, ProofSide};
use std::sync::Arc;
use std::time::Duration;

/// Begins to connect.
pub(crate) fn begin_opening<N: Net>(links: &mut Links<N>, number: usize) -> Result<(), WorkerError> {
    let begun = links.net.now();
    let peer = &mut links.peers[number];
    let attempt = peer.health.attempts;
    peer.health.attempts += 1;
    let link = Link::new(links.net.begin_connect(&peer.addr, attempt)?);
    links.poll.add(link.stream(), number as u64)?;
    let mut opening = Opening { link, step: OpeningStep::Hello, begun, welcome: None, tables: Vec::new() };
    match links.config.token {
        Some(_) => {
            let nonce = draw().ok_or_else(|| WorkerError::Call("the system gives no random bytes".into()))?;
            opening.ask(OpeningStep::Knock(nonce), KnockFrame {}, &control::seal(&KnockV1 { nonce }))?;
        }
        None => greet_server(links, number, &mut opening)?,
    }
    links.peers[number].opening = Some(opening);
    Ok(())
}

fn greet_server<N: Net>(
    links: &Links<N>,
    number: usize,
    opening: &mut Opening<N::Stream>,
) -> Result<(), WorkerError> {
    let (pusher, incarnation) = (links.config.pusher, links.config.incarnation);
    let hello = HelloV1 { pusher, incarnation, thread: links.peers[number].thread };
    opening.ask(OpeningStep::Hello, HelloFrame {}, &control::seal(&hello))
}

/// Takes the steps whose answers have come. An error ends the attempt.
pub(crate) fn advance_opening<N: Net>(
    links: &mut Links<N>,
    tables: &mut Tables,
    number: usize,
) -> Result<(), WorkerError> {
    let Some(mut opening) = links.peers[number].opening.take() else { return Ok(()) };
    match proceed(links, tables, number, &mut opening) {
        Ok(true) => install(links, tables, number, opening),
        Ok(false) => {
            links.peers[number].opening = Some(opening);
            Ok(())
        }
        // Any process of this host may offer shared memory at the server's address. Before it has proved
        // that it has the token, neither what it says nor its silence counts as the server's.
        Err(error) if is_unproved(links, &opening) && is_doubted(links, number, &opening, &error) => {
            drop(opening);
            begin_opening(links, number)
        }
        Err(error) if is_unproved(links, &opening) => Err(unproved(links, error, &opening)),
        Err(error) => Err(error),
    }
}

/// The error of a peer that has not proved that it is the server. It names the process, if that may be another one.
fn unproved<N: Net>(links: &Links<N>, error: WorkerError, opening: &Opening<N::Stream>) -> WorkerError {
    match links.net.who_answers(opening.link.stream()) {
        Some(who) => WorkerError::Unproved { source: Box::new(error), who },
        None => error,
    }
}

/// The peer must prove that it has the token, and has not done so yet.
fn is_unproved<N: Net>(links: &Links<N>, opening: &Opening<N::Stream>) -> bool {
    links.config.token.is_some() && matches!(opening.step, OpeningStep::Knock(_) | OpeningStep::Prove(_))
}

fn is_doubted<N: Net>(
    links: &Links<N>,
    number: usize,
    opening: &Opening<N::Stream>,
    error: &WorkerError,
) -> bool {
    links.net.doubt(&links.peers[number].addr, opening.link.stream(), &error.to_string())
}

/// How long an attempt may take. While the peer may turn out not to be the server, that is at most half the peer
/// timeout, so that time for the server is left.
fn attempt_time<N: Net>(links: &Links<N>, opening: &Opening<N::Stream>) -> Duration {
    let timeout = links.config.peer_timeout;
    ATTEMPT_TIME.min(if is_unproved(links, opening) { timeout / 2 } else { timeout })
}

/// Takes the steps whose answers have come. Returns `true` when no request is left to send.
fn proceed<N: Net>(
    links: &mut Links<N>,
    tables: &mut Tables,
    number: usize,
    opening: &mut Opening<N::Stream>,
) -> Result<bool, WorkerError> {
    loop {
        let (step, sent) = (opening.step, opening.link.transmit().is_empty());
        let received =
            opening.receive_answer().map_err(|error| not_connected(links, number, step, sent, error))?;
        let Some((head, answer)) = received else { break };
        if opening_step(links, tables, number, opening, &head, &answer)? {
            return Ok(true);
        }
    }
    let limit = attempt_time(links, opening);
    if links.net.now() >= opening.begun + limit {
        let (peer, limit) = (&links.peers[number], limit.as_secs_f64());
        if opening.step.is_first(links.config.token.is_some()) && !opening.link.transmit().is_empty() {
            let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(NetError::Connect { addr: peer.addr.clone(), source }.into());
        }
        let what = format!("no answer to the greeting for {limit:.1} s");
        return Err(WorkerError::Protocol { peer: peer.name.clone(), what });
    }
    Ok(false)
}

/// The error of a connection that ended. Before its hello has been sent, that counts as a failure to connect.
fn not_connected<N: Net>(
    links: &Links<N>,
    number: usize,
    step: OpeningStep,
    sent: bool,
    error: LinkError,
) -> WorkerError {
    match error {
        LinkError::Io { source, .. } if step.is_first(links.config.token.is_some()) && !sent => {
            NetError::Connect { addr: links.peers[number].addr.clone(), source }.into()
        }
        error => error.into(),
    }
}

/// Handles an answer and sends the next request. Returns `true` when no request is left to send.
fn opening_step<N: Net>(
    links: &mut Links<N>,
    tables: &mut Tables,
    number: usize,
    opening: &mut Opening<N::Stream>,
    head: &Head,
    answer: &[u8],
) -> Result<bool, WorkerError> {
    let Peer { name, server, .. } = &links.peers[number];
    let (name, server) = (name.clone(), *server);
    let nonsense = |what: String| WorkerError::Protocol { peer: name.clone(), what };
    check_greeting_kind(links, tables, number, opening, head, answer)?;
    let next = match opening.step {
        OpeningStep::Knock(worker) => {
            prove(links, &name, opening, worker, answer)?;
            return Ok(false);
        }
        OpeningStep::Prove(nonces) => {
            let ProofV1 { proof } = control::open(answer).map_err(|error| nonsense(error.to_string()))?;
            if !links
                .config
                .token
                .as_ref()
                .is_some_and(|token| token.check(ProofSide::Server, &nonces, &proof))
            {
                return Err(WorkerError::Impostor { peer: name.clone() });
            }
            greet_server(links, number, opening)?;
            return Ok(false);
        }
        OpeningStep::Hello => {
            welcomed(links, tables, number, opening, head, answer)?;
            0
        }
        OpeningStep::Table(table) => {
            let opened: TableOpenedV4 =
                control::open_as(4, answer).map_err(|error| nonsense(error.to_string()))?;
            let before = &tables[table];
            before.opened.check(&before.schema.name, &name, &opened)?;
            opening.tables.push(opened.table);
            table + 1
        }
        OpeningStep::Join(table) => {
            control::open::<JoinedV1>(answer).map_err(|error| nonsense(error.to_string()))?;
            return join_next(links, tables, number, opening, table + 1);
        }
    };
    // Tables that this worker has dropped keep their places.
    let next = (next..tables.len()).find(|&table| !tables[table].is_dropped());
    opening.tables.resize(next.unwrap_or(tables.len()), u32::MAX);
    let Some(next) = next else { return join_next(links, tables, number, opening, 0) };
    let table = &tables[next];
    let request = table.opened.request(&table.schema, server);
    opening.ask(OpeningStep::Table(next), OpenTableFrame::evicting(table.eviction.as_ref()), &request)?;
    Ok(false)
}

/// Checks that an answer has the kind that the step waits for. A refusal is an error.
fn check_greeting_kind<N: Net>(
    links: &Links<N>,
    tables: &Tables,
    number: usize,
    opening: &Opening<N::Stream>,
    head: &Head,
    answer: &[u8],
) -> Result<(), WorkerError> {
    let (peer, kind) = (&links.peers[number], opening.kind());
    let nonsense = |what: String| WorkerError::Protocol { peer: peer.name.clone(), what };
    if head.kind == RefusedFrame::KIND {
        let code = RefusedFrame::decode(head).map_err(|error| nonsense(error.to_string()))?.code;
        return Err(match opening.step {
            // The worker asks again who the owner is.
            OpeningStep::Table(_) if Refusal::of(code) == Refusal::Moved => {
                nonsense("another server owns the shards now".into())
            }
            // The server refuses the identity that the table had when the worker first opened it.
            OpeningStep::Table(table) if Refusal::of(code) == Refusal::Identity => {
                let table = &tables[table];
                table.opened.gone(&table.schema.name, &peer.name, peer.server)
            }
            _ => refusal_error(&peer.name, kind, head, answer),
        });
    }
    if head.kind != frames::answer_to(kind) {
        return Err(nonsense(format!("kind {} in answer to kind {kind}", head.kind)));
    }
    Ok(())
}

/// Answers the server's challenge with the proof that this worker has the token.
fn prove<N: Net>(
    links: &Links<N>,
    name: &Arc<str>,
    opening: &mut Opening<N::Stream>,
    worker: Nonce,
    answer: &[u8],
) -> Result<(), WorkerError> {
    let nonsense = |what: String| WorkerError::Protocol { peer: name.clone(), what };
    let ChallengeV1 { nonce: server } = control::open(answer).map_err(|error| nonsense(error.to_string()))?;
    let nonces = Nonces { worker, server };
    let token = links.config.token.as_ref().ok_or_else(|| nonsense("a challenge without a knock".into()))?;
    let proof = control::seal(&ProofV1 { proof: token.prove(ProofSide::Worker, &nonces) });
    opening.ask(OpeningStep::Prove(nonces), ProveFrame {}, &proof)
}

/// Reads the welcome: the session's credit, and how many threads the server has now.
fn welcomed<N: Net>(
    links: &mut Links<N>,
    tables: &mut Tables,
    number: usize,
    opening: &mut Opening<N::Stream>,
    head: &Head,
    answer: &[u8],
) -> Result<(), WorkerError> {
    let Peer { name, thread, threads, server, .. } = &links.peers[number];
    let (name, thread, threads, server) = (name.clone(), *thread, *threads, *server);
    let nonsense = |what: String| WorkerError::Protocol { peer: name.clone(), what };
    let welcome: WelcomeV1 = control::open(answer).map_err(|error| nonsense(error.to_string()))?;
    if welcome.threads == 0 || welcome.threads as usize > THREADS_MAX || thread >= welcome.threads {
        return Err(nonsense(format!("{} threads", welcome.threads)));
    }
    if !is_owner(links, number, welcome.incarnation) {
        return Err(nonsense("another server than the owner of the shards listens here now".into()));
    }
    let now = welcome.threads;
    let grant = WelcomeFrame::decode(head).map_err(|error| nonsense(error.to_string()))?;
    opening.welcome = Some((welcome, Credit::of(grant)));
    if threads != now && !links.config.one_thread {
        lay_out(links, tables, server, now)?;
    }
    Ok(())
}

/// Joins again, from this table on, each table over which this worker keeps step. Each request names the clock that
/// the peer acknowledged last, because the worker resends everything after that. Returns `true` when all tables are
/// joined.
fn join_next<N: Net>(
    links: &Links<N>,
    tables: &Tables,
    number: usize,
    opening: &mut Opening<N::Stream>,
    from: usize,
) -> Result<bool, WorkerError> {
    let sync_of = |table: &usize| tables[*table].group.as_ref().map(|group| (*table, group.sync));
    let Some((table, sync)) = (from..opening.tables.len()).find_map(|table| sync_of(&table)) else {
        return Ok(true);
    };
    let (clock, left) = links.peers[number].steps.clocks.get(table).copied().unwrap_or((0, 0));
    let join = JoinFrame { table: opening.tables[table] };
    let request = control::seal(&sync.request(clock, left));
    opening.ask(OpeningStep::Join(table), join, &request)?;
    Ok(false)
}

/// Makes the connection the peer's link, and sends the requests that wait.
fn install<N: Net>(
    links: &mut Links<N>,
    known: &Tables,
    number: usize,
    opening: Opening<N::Stream>,
) -> Result<(), WorkerError> {
    let Opening { link, welcome: Some((welcome, credit)), tables, .. } = opening else {
        return Err(WorkerError::Call("a link without a welcome".into()));
    };
    let peer = &mut links.peers[number];
    (peer.session.number, peer.threads, peer.session.tables) = (welcome.session, welcome.threads, tables);
    peer.session.incarnation = welcome.incarnation;
    (peer.requests.credit, peer.health.attempts) = (credit, 0);
    peer.near.begin(credit.lease);
    peer.session.epoch += 1;
    links.counters.links.add(1);
    if peer.session.epoch > 1 {
        links.counters.reconnects.add(1);
        let resends = peer.requests.queue.len();
        let in_vain = resends > 0 && peer.health.answered_nothing();
        let is_back = !peer.health.refused_for_now && !in_vain;
        let peer = &*peer.name;
        match is_back {
            true => tracing::warn!(
                peer,
                resends,
                "the peer is back; the worker resends its unacknowledged requests"
            ),
            false => tracing::debug!(peer, resends, "the worker asks again a peer that did not answer"),
        }
    }
    peer.session.transport = link.stream().transport();
    peer.link = Some(link);
    peer.health.linked_at = links.net.now();
    peer.requests.reorder(&links.flights);
    see_all_pushes(links, known, number);
    let peer = &mut links.peers[number];
    peer.recount_step(known, &mut links.flights)?;
    peer.post(&mut links.flights, &links.counters)?;
    links.arrived.push_back(Arrived::Opened { link: number });
    Ok(())
}
