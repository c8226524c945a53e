//! Dispatch: hands each frame to the handler of its kind, and queues the answer. An answer goes out at once, or behind
//! the answers that wait for other workers.

use crate::peers::kinds::are_about;
use crate::peers::outcome::{BulkReply, RequestFailure, RequestOutcome, refuse};
use crate::replication::hold::HeldAcks;
use crate::requests::coordination::answer_coordinate;
use crate::requests::copies::answer_copies;
use crate::requests::cuts::absent::answer_forget_clients;
use crate::requests::cuts::follower::answer_read_cut;
use crate::requests::cuts::protocol::answer_cut;
use crate::requests::states::{must_be_asked, must_be_scheduler};
use crate::requests::steps::awaited::answer_await;
use crate::requests::steps::joins::{answer_join, fence, leave, tick};
use crate::requests::tables::{
    answer_close, answer_confirm, answer_drop, answer_identify, answer_open, answer_status,
};
use crate::requests::{bulk, images, incarnations, regions, runs, scheduler_rpc, vectors};
use crate::sessions::context::{RequestContext, WorkerState};
use crate::sessions::pending_replies;
use crate::sessions::pending_replies::PendingReply;
use crate::sessions::send::{answer_refused, send_reply};
use gannet_transport::{Frame, Head, Stream, Transmit};
use gannet_wire::frames::bulk::{PullFrame, PushFrame, ScanFrame};
use gannet_wire::frames::coordinator::CoordinateFrame;
use gannet_wire::frames::cuts::{CutFrame, ReadCutFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::read_paths::{ImagesFrame, RegionsFrame};
use gannet_wire::frames::runs::{AllocateFrame, RunFrame};
use gannet_wire::frames::scheduler::{BookFrame, FeedFrame, JobTableFrame};
use gannet_wire::frames::session::{PingFrame, PongFrame};
use gannet_wire::frames::subscriptions::SubscribeFrame;
use gannet_wire::frames::sync::{AwaitFrame, FenceFrame, JoinFrame, LeaveFrame, TickFrame};
use gannet_wire::frames::tables::{
    ClosePusherFrame, ConfirmFrame, DropTableFrame, ForgetClientsFrame, IdentifyFrame, OpenTableFrame,
    StatusFrame,
};
use gannet_wire::frames::vectors::VectorFrame;
use gannet_wire::refusal::Refusal;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The state that handles a frame, except the session's stream.
pub(crate) struct RequestHandler<'a, 'b> {
    pub(crate) context: &'a mut RequestContext<'b>,
    pub(crate) worker: &'a mut WorkerState,
    pub(crate) pending: &'a mut VecDeque<PendingReply>,
    pub(crate) now: Duration,
    pub(crate) transmit: &'a mut Transmit,
    /// The acknowledgements that wait for backups.
    pub(crate) acks: &'a mut HeldAcks,
}

impl RequestHandler<'_, '_> {
    /// Handles a frame: answers it at once, or queues its answer.
    pub(crate) fn dispatch<S: Stream>(&mut self, frame: &Frame<'_>, stream: &mut S) -> RequestOutcome {
        let RequestHandler {
            context: RequestContext { tables, scratch, scheduler, .. },
            worker: WorkerState { pusher, keysets, subscriptions },
            pending,
            now,
            ..
        } = self;
        let transmit = &mut *self.transmit;
        let (now, id) = (*now, frame.head.id);
        if let Some(table) = pending_replies::before(frame.head.kind, pending) {
            return Err(RequestFailure::Parked(table));
        }
        must_be_asked(tables, frame.head.kind)?;
        let answered = match frame.head.kind {
            PushFrame::KIND => bulk::answer_push(frame, tables, keysets, pusher, scratch, transmit),
            TickFrame::KIND => tick(tables, frame, pusher),
            FenceFrame::KIND => fence(tables, frame, now),
            LeaveFrame::KIND => leave(tables, frame, pusher),
            ForgetClientsFrame::KIND => answer_forget_clients(tables, frame, pusher, now),
            PingFrame::KIND => PingFrame::decode(&frame.head)
                .map(|PingFrame {}| BulkReply::Now(PongFrame {}.encode(id)))
                .map_err(RequestFailure::from),
            // Answers go out in the order of their requests, and an earlier answer waits for a step.
            _ if !pending.is_empty() => {
                return Err(pending_replies::pending_outcome(pending, tables, pusher));
            }
            PullFrame::KIND => {
                return bulk::answer_pull(frame, tables, keysets, pusher, scratch, transmit);
            }
            SubscribeFrame::KIND => return subscriptions.add(frame, tables, now, transmit),
            ScanFrame::KIND => return bulk::scan(frame, &mut tables.all, scratch, transmit),
            OpenTableFrame::KIND => return answer_open(tables, frame, pusher, transmit),
            IdentifyFrame::KIND => return answer_identify(tables, frame, transmit),
            ConfirmFrame::KIND => return answer_confirm(tables, frame, transmit),
            VectorFrame::KIND => return vectors::run_vector_program(frame, tables, pusher, transmit),
            ImagesFrame::KIND => return images::send_images(frame, tables, stream, transmit),
            RegionsFrame::KIND => return regions::answer_regions_request(frame, tables, stream, transmit),
            StatusFrame::KIND => return answer_status(tables, frame, transmit),
            ClosePusherFrame::KIND => return answer_close(tables, frame, pusher, transmit),
            BookFrame::KIND | JobTableFrame::KIND | RunFrame::KIND | AllocateFrame::KIND => {
                return self.answer_about_jobs(frame, now);
            }
            DropTableFrame::KIND => return answer_drop(tables, frame, pusher, transmit),
            FeedFrame::KIND => {
                return scheduler_rpc::serve_data(frame, scheduler.as_deref_mut(), pusher, transmit);
            }
            kind if are_about(kind) => return answer_copies(tables, frame, pusher.session, transmit),
            CutFrame::KIND => return self.cut(frame, now),
            ReadCutFrame::KIND => return answer_read_cut(tables, frame, pusher, now, transmit),
            CoordinateFrame::KIND => return answer_coordinate(tables, frame, transmit),
            AwaitFrame::KIND => return answer_await(tables, frame, now, transmit),
            JoinFrame::KIND => return answer_join(tables, frame, pusher, now, transmit),
            kind => refuse(Refusal::Malformed, format!("frame kind {kind} is not a request")),
        };
        self.reply(id, answered?)
    }

    /// Answers a request to the scheduler, the registry of runs, or the counter of incarnations.
    fn answer_about_jobs(&mut self, frame: &Frame<'_>, now: Duration) -> RequestOutcome {
        let RequestContext { tables, scheduler, runs, incarnations, .. } = &mut *self.context;
        let (session, transmit) = (self.worker.pusher.session, &mut *self.transmit);
        let (scheduler, runs) = (scheduler.as_deref_mut(), runs.as_deref_mut());
        match frame.head.kind {
            BookFrame::KIND => {
                scheduler_rpc::answer_scheduler_request(frame, scheduler, session, now, transmit)
            }
            JobTableFrame::KIND => scheduler_rpc::note_table(frame, scheduler, now, transmit),
            RunFrame::KIND => {
                runs::answer_run_request(frame, runs, scheduler, session, now, tables, transmit)
            }
            _ => {
                let (known, is_owner) = (incarnations.as_deref_mut(), must_be_scheduler(tables));
                let scheduler = scheduler.as_deref();
                incarnations::answer_incarnation_request(frame, known, scheduler, is_owner, transmit)
            }
        }
    }

    /// Takes a step of a checkpoint.
    fn cut(&mut self, frame: &Frame<'_>, now: Duration) -> RequestOutcome {
        let RequestContext { tables, scheduler, runs, incarnations, .. } = &mut *self.context;
        let of = (scheduler.as_deref(), runs.as_deref(), incarnations.as_deref());
        answer_cut(tables, frame, &self.worker.pusher, of, now, self.transmit)
    }

    /// Sends a reply at once, or queues it behind the replies that wait for a step.
    fn reply(&mut self, id: u64, reply: BulkReply) -> RequestOutcome {
        match reply {
            BulkReply::Now(head) if self.pending.is_empty() => {
                return Ok(send_reply(head, self.context.tables, self.transmit, self.acks)?);
            }
            BulkReply::Now(head) => self.pending.push_back(PendingReply::Ready(head)),
            BulkReply::Later { table, step, rows, dropped } => {
                self.pending.push_back(PendingReply::Push { id, table, step, rows, dropped });
            }
        }
        Ok(())
    }

    /// Copies a request that waits for other workers out of the receive buffer, so that the frames behind it can be
    /// read.
    pub(crate) fn put_aside(&mut self, frame: &Frame<'_>, stop: RequestFailure) -> RequestOutcome {
        let RequestFailure::Parked(table) = stop else { return Err(stop) };
        match PendingReply::request(frame, table, self.worker.keysets.share(), self.pending) {
            Some(request) => {
                self.pending.push_back(request);
                Ok(())
            }
            None => {
                Err(pending_replies::no_memory(self.context.tables, table, frame.head.kind).unwrap_or(stop))
            }
        }
    }

    /// Answers with a refusal. It queues behind the replies that wait.
    pub(crate) fn refuse(
        &mut self,
        peer: &Arc<str>,
        head: &Head,
        refusal: Refusal,
        text: String,
    ) -> RequestOutcome {
        let RequestHandler { context, pending, transmit, .. } = self;
        let now = (context.now)();
        if context.tables.is_news(&text, now)
            && let Some(kept_back) = context.log_limiter.allow(now)
        {
            // A user typed flags that do not fit the run: the worker shows the refusal to this user. Or another worker
            // has just made the table: the worker opens it again. Or somebody else cuts just now: who cuts tries again.
            // None of these is a problem of the server.
            let is_usual = matches!(
                (refusal, head.kind),
                (Refusal::Mismatch, RunFrame::KIND)
                    | (Refusal::Identity, OpenTableFrame::KIND)
                    | (Refusal::Cut, CutFrame::KIND)
            );
            let (kind, refusal) = (head.kind, refusal.name());
            match is_usual {
                true => tracing::info!(%peer, refusal, kind, text, kept_back, "a request was refused"),
                false => tracing::warn!(%peer, refusal, kind, text, kept_back, "a request was refused"),
            }
        }
        if !pending.is_empty() {
            context.counters.refused[refusal.place()].add(1);
            pending.push_back(PendingReply::Refused { head: *head, refusal, text });
            return Ok(());
        }
        let sent = answer_refused(head.kind, head.id, refusal, text, transmit);
        context.counters.refused[refusal.place()].add(u64::from(sent.is_ok()));
        sent
    }
}
