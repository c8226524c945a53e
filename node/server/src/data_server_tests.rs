//! A worker gets the bytes of a split that it holds, and nothing else.

use crate::config::ServerConfig;
use crate::local::LocalServer;
use gannet_jobs::scheduler::data_server::{DataServerConfig, DataSource, FeedStatus};
use gannet_jobs::scheduler::requests::Scheduler;
use gannet_sim::{Faults, Sim, SimStream};
use gannet_transport::{Link, Net, NoOwner};
use gannet_wire::frames::any_head;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::scheduler::{BookFrame, DataBytes, FedFrame, FeedFrame};
use gannet_wire::frames::session::{HelloFrame, RefusedFrame};
use gannet_wire::limits::{FEED_BYTES_MAX, READING_BYTES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::control::HelloV1;
use gannet_wire::messages::data::DataRequest;
use gannet_wire::messages::job_plan::{JobPlan, PlanFile, Split};
use gannet_wire::messages::jobs::{SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV3};
use gannet_wire::messages::member::{Activity, Progress, WorkerIncarnation};
use gannet_wire::refusal::Refusal;
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A file in memory. Its texts are as if each line were a byte.
struct MemorySource {
    bytes: Vec<u8>,
    changed: AtomicBool,
}

impl DataSource for MemorySource {
    fn text(&self, task: &Split) -> Result<Range<u64>, String> {
        Ok(task.start..task.end)
    }

    fn read(&self, _: u32, at: u64, out: &mut [u8]) -> Result<(), String> {
        if self.changed.load(Relaxed) {
            return Err("data: has changed".into());
        }
        out.copy_from_slice(&self.bytes[at as usize..at as usize + out.len()]);
        Ok(())
    }
}

fn plan() -> JobPlan {
    let file = PlanFile { name: "data".into(), bytes: 1000, print: 1, whole: false };
    let settings = vec!["--alpha 0.1".into()];
    JobPlan {
        workers: 2,
        files: vec![file],
        task_bytes: 100,
        batch: 4,
        epochs: 1,
        worker_timeout_ms: 1000,
        settings,
    }
}

fn config() -> (DataServerConfig, Arc<MemorySource>) {
    let bytes = (0..1000u32).map(|i| (i % 251) as u8).collect();
    let source = Arc::new(MemorySource { bytes, changed: AtomicBool::new(false) });
    let (reading, status) = ("by columns".to_owned(), Arc::<FeedStatus>::default());
    (DataServerConfig { plan: plan(), reading, source: source.clone(), status }, source)
}

fn incarnation(rank: u32) -> WorkerIncarnation {
    WorkerIncarnation { rank, incarnation: 1 }
}

struct DataServerModel(Scheduler);

impl DataServerModel {
    fn ask(
        &mut self,
        of: WorkerIncarnation,
        what: SchedulerActionV1,
    ) -> Result<SchedulerReplyV1, (Refusal, String)> {
        self.0.answer(SchedulerRequestV3::of_no_run(of, what), of.rank, Duration::ZERO)
    }

    fn feed(
        &mut self,
        of: WorkerIncarnation,
        request: DataRequest,
    ) -> Result<(FedFrame, Vec<u8>), (Refusal, String)> {
        let mut out = vec![0; request.bytes()];
        let frame = self.0.feed(of, request, &mut out)?;
        out.truncate(frame.bytes.0);
        Ok((frame, out))
    }
}

fn text(index: u64, from: u64, bytes: usize) -> DataRequest {
    DataRequest::Text { index, from, bytes }
}

#[test]
fn a_task_is_fed_to_who_holds_it_and_to_nobody_else() {
    let (config, source) = config();
    let status = config.status.clone();
    let mut model = DataServerModel(Scheduler::open(None, "", Some(config), Duration::ZERO).unwrap());
    // No worker is in the job.
    assert_eq!(model.feed(incarnation(0), text(0, 0, 10)).unwrap_err().0, Refusal::Unknown);
    assert_eq!(
        model.feed(incarnation(0), DataRequest::Head { file: 0, bytes: 10 }).unwrap_err().0,
        Refusal::Unknown
    );
    for rank in 0..2 {
        model.ask(incarnation(rank), SchedulerActionV1::Register { plan: plan() }).unwrap();
    }
    assert_eq!(
        model.ask(incarnation(0), SchedulerActionV1::Take { holding: vec![] }),
        Ok(SchedulerReplyV1::Task { index: 0, from: 0 })
    );
    assert_eq!(
        model.ask(incarnation(1), SchedulerActionV1::Take { holding: vec![] }),
        Ok(SchedulerReplyV1::Task { index: 1, from: 0 })
    );
    let (frame, bytes) = model.feed(incarnation(1), text(1, 30, 50)).unwrap();
    assert_eq!((frame.start, frame.whole, frame.bytes.0), (100, 100, 50));
    assert_eq!((&bytes[..], frame.crc), (&source.bytes[130..180], crc32c::crc32c(&bytes)));
    // The end of a text, and what is beyond it.
    assert_eq!(model.feed(incarnation(1), text(1, 90, 50)).unwrap().1, source.bytes[190..200]);
    for from in [100, 101, u64::MAX] {
        let (frame, bytes) = model.feed(incarnation(1), text(1, from, FEED_BYTES_MAX)).unwrap();
        assert_eq!((frame.whole, bytes.len()), (100, 0), "from {from}");
    }
    // Another worker's split, one that no worker holds, one that does not exist, another incarnation.
    for index in [0, 2, 1000, u64::MAX] {
        assert_eq!(
            model.feed(incarnation(1), text(index, 0, 10)).unwrap_err().0,
            Refusal::Mismatch,
            "{index}"
        );
    }
    let other = WorkerIncarnation { rank: 1, incarnation: 0 };
    assert_eq!(model.feed(other, text(1, 0, 10)).unwrap_err().0, Refusal::Fenced);
    let done = model.ask(incarnation(1), SchedulerActionV1::Done { index: 1, examples: 9 });
    assert_eq!(done, Ok(SchedulerReplyV1::Noted));
    assert_eq!(model.feed(incarnation(1), text(1, 0, 10)).unwrap_err().0, Refusal::Mismatch);
    assert_eq!(
        model.feed(incarnation(1), DataRequest::Head { file: 0, bytes: 5 }).unwrap().1,
        source.bytes[..5]
    );
    assert_eq!(
        model.feed(incarnation(1), DataRequest::Head { file: 1, bytes: 5 }).unwrap_err().0,
        Refusal::Malformed
    );
    model.0.publish();
    assert_eq!((status.served().requests, status.served().bytes, status.job().unwrap().examples), (6, 65, 9));
}

/// One request over a session, and its reply.
fn over(sim: &Sim, link: &mut Link<SimStream>, kind: u16, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
    link.transmit().send_copy(any_head(kind, 0, 9, [0; 4]), payload).unwrap();
    for _ in 0..1000 {
        link.flush(&mut NoOwner).unwrap();
        sim.run(Duration::from_millis(1));
        link.fill(&mut NoOwner).unwrap();
        if let Some(frame) = link.receive().peek(&mut NoOwner).unwrap() {
            let answer = match frame.head.kind {
                RefusedFrame::KIND => Err(Refusal::of(RefusedFrame::decode(&frame.head).unwrap().code)),
                _ => Ok(frame.payload.to_vec()),
            };
            link.receive().consume();
            return answer;
        }
    }
    panic!("no answer to kind {kind}");
}

/// A peer that speaks to the data server by hand gets what the incarnation of its hello holds, whatever else it
/// requests. The session stays open.
#[test]
fn a_hostile_session_gets_nothing_that_it_does_not_hold() {
    let (config, source) = config();
    let sim = Sim::new(1, Faults::none());
    let config = ServerConfig {
        threads: 1,
        data_server: Some(config),
        scheduler_only: true,
        ..ServerConfig::new("sim:0")
    };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    sim.add_actor(move || server.run().unwrap());
    let greet = |pusher, incarnation| {
        let mut link = Link::new(sim.connect(&addr, Duration::from_secs(1)).unwrap());
        let hello = control::seal(&HelloV1 { pusher, incarnation, thread: 0 });
        over(&sim, &mut link, HelloFrame::KIND, &hello).unwrap();
        link
    };
    let (mut own, mut hostile) = (greet(1, 1), greet(2, 1));
    let request_as = |link: &mut Link<SimStream>, of: WorkerIncarnation, what| {
        let ask = SchedulerRequestV3::of_no_run(of, what);
        let ask = control::seal_as(3, &ask);
        control::open::<SchedulerReplyV1>(&over(&sim, link, BookFrame::KIND, &ask).unwrap()).unwrap()
    };
    request_as(&mut own, incarnation(0), SchedulerActionV1::Register { plan: plan() });
    assert_eq!(
        request_as(&mut own, incarnation(0), SchedulerActionV1::Take { holding: vec![] }),
        SchedulerReplyV1::Task { index: 0, from: 0 }
    );
    let bytes_of = |link: &mut Link<SimStream>, request: DataRequest| {
        over(&sim, link, FeedFrame::KIND, &request.payload())
    };
    assert_eq!(bytes_of(&mut own, text(0, 0, 96)), Ok(source.bytes[..96].to_vec()));
    for request in [text(0, 0, 96), text(1, 0, 96), DataRequest::Head { file: 0, bytes: 8 }] {
        assert_eq!(bytes_of(&mut hostile, request), Err(Refusal::Unknown), "{request:?}");
    }
    for bytes in [FEED_BYTES_MAX + 1, usize::MAX] {
        assert_eq!(bytes_of(&mut own, text(0, 0, bytes)), Err(Refusal::Limit));
        assert_eq!(bytes_of(&mut own, DataRequest::Head { file: 0, bytes }), Err(Refusal::Limit));
    }
    assert_eq!(bytes_of(&mut own, text(1, 0, 96)), Err(Refusal::Mismatch));
    for pusher in [0, 1 << 33] {
        assert_eq!(bytes_of(&mut greet(pusher, 1), text(0, 0, 96)), Err(Refusal::Unknown));
    }
    for payload in [&[][..], &[0; 24], &[0xFF; 32], &[0; 40]] {
        assert_eq!(over(&sim, &mut own, FeedFrame::KIND, payload), Err(Refusal::Malformed), "{payload:?}");
    }
    let offer = over(&sim, &mut hostile, FeedFrame::KIND, &DataRequest::Offer.payload()).unwrap();
    assert_eq!(control::open::<gannet_wire::messages::data::OfferV1>(&offer).unwrap().plan, plan());
    assert_eq!(
        over(&sim, &mut own, FeedFrame::KIND, &text(0, 96, 96).payload()),
        Ok([&source.bytes[96..100], &[0; 4]].concat())
    );
}

#[test]
fn data_that_changed_is_one_reason_for_all() {
    let (config, source) = config();
    let status = config.status.clone();
    let mut model = DataServerModel(Scheduler::open(None, "", Some(config), Duration::ZERO).unwrap());
    for rank in 0..2 {
        model.ask(incarnation(rank), SchedulerActionV1::Register { plan: plan() }).unwrap();
    }
    model.ask(incarnation(0), SchedulerActionV1::Take { holding: vec![] }).unwrap();
    source.changed.store(true, Relaxed);
    let refused = model.feed(incarnation(0), text(0, 0, 10)).unwrap_err();
    assert_eq!(refused, (Refusal::Mismatch, "data: has changed".into()));
    let SchedulerReplyV1::OrdersV3 { failed, .. } = model
        .ask(
            incarnation(1),
            SchedulerActionV1::ReportV3 { progress: Progress::default(), work: Activity::default() },
        )
        .unwrap()
    else {
        panic!("no reply")
    };
    assert_eq!(
        (failed.as_deref(), status.job().unwrap().failed.as_deref()),
        (Some("data: has changed"), Some("data: has changed"))
    );
}

#[test]
fn one_job_is_fed_and_goes_on_from_its_book_only() {
    let folder = tempfile::tempdir().unwrap();
    let open = |config| Scheduler::open(Some(folder.path()), "", Some(config), Duration::ZERO);
    let mut model = DataServerModel(open(config().0).unwrap());
    let other = JobPlan { settings: vec!["--alpha 0.2".into()], ..plan() };
    let refused = model.ask(incarnation(0), SchedulerActionV1::Register { plan: other.clone() }).unwrap_err();
    assert!(refused.1.contains("--alpha 0.1 in this job, --alpha 0.2 was given"), "{refused:?}");
    model.ask(incarnation(0), SchedulerActionV1::Register { plan: plan() }).unwrap();
    model.ask(incarnation(0), SchedulerActionV1::Take { holding: vec![] }).unwrap();
    drop(model);
    // The same data server again: a worker that held a split goes on.
    let mut again = DataServerModel(open(config().0).unwrap());
    assert_eq!(again.feed(incarnation(0), text(0, 0, 10)).unwrap().1.len(), 10);
    let wrong = open(DataServerConfig { plan: other, ..config().0 }).unwrap_err().to_string();
    assert!(wrong.contains("of another job") && wrong.contains("--data-dir"), "{wrong}");
    // A text that ends the job comes with the reply to the next heartbeat, and is saved.
    let (config_again, _) = config();
    let status = config_again.status.clone();
    let mut ended = DataServerModel(open(config_again).unwrap());
    status.end("enough");
    assert!(status.is_ending());
    ended.0.tick(Duration::from_millis(1));
    assert!(!status.is_ending());
    let SchedulerReplyV1::OrdersV3 { failed, .. } = ended
        .ask(
            incarnation(0),
            SchedulerActionV1::ReportV3 { progress: Progress::default(), work: Activity::default() },
        )
        .unwrap()
    else {
        panic!("no reply")
    };
    assert_eq!(failed.as_deref(), Some("enough"));
    ended.ask(incarnation(0), SchedulerActionV1::Leave).unwrap();
    let failed = open(config().0).unwrap_err().to_string();
    assert!(failed.contains("has failed before (enough)"), "{failed}");
}

#[test]
fn what_cannot_be_offered_is_named() {
    let (config, _) = config();
    assert_eq!(config.check(), Ok(()));
    let long = DataServerConfig { reading: "x".repeat(READING_BYTES_MAX + 1), ..config.clone() };
    assert!(long.check().unwrap_err().contains("fewer columns"));
    let mut many = plan();
    many.files = vec![PlanFile { name: "x".repeat(300), ..many.files[0].clone() }; 500];
    assert!(DataServerConfig { plan: many, ..config }.check().unwrap_err().contains("names of 500 files"));
    let offer = DataServerModel(Scheduler::default());
    assert_eq!(offer.0.feeder().unwrap_err().0, Refusal::Unknown);
}

#[test]
fn golden_bytes() {
    let mut want = vec![0; 32];
    (want[8], want[16], want[25]) = (7, 9, 4);
    assert_eq!(text(7, 9, 1024).payload(), want);
    let frame = FedFrame { start: 1, whole: 2, bytes: DataBytes(3), crc: 4 };
    let head = any_head(FedFrame::KIND, 0, 9, [1, 2, 3, 4]);
    assert_eq!((frame.encode(9), FedFrame::decode(&head)), (head, Ok(frame)));
    let too_much = any_head(FedFrame::KIND, 0, 9, [0, 0, FEED_BYTES_MAX as u64 + 1, 0]);
    assert!(FedFrame::decode(&too_much).is_err());
    let offer = control::seal(&gannet_wire::messages::data::OfferV1 { plan: plan(), reading: "r".into() });
    assert_eq!(control::open::<gannet_wire::messages::data::OfferV1>(&offer).unwrap().reading, "r");
}

proptest! {
    #[test]
    fn requests_come_through_and_others_are_none(words in prop::array::uniform4(any::<u64>()), few in 0u64..4, cut in 0usize..48) {
        let words = [if words[0] % 2 == 0 { few } else { words[0] }, words[1], words[2], words[3]];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if let Some(feed) = DataRequest::of(&bytes) {
            prop_assert_eq!(feed.payload(), bytes.clone());
        }
        let mut other = bytes;
        other.resize(cut, 1);
        prop_assert!(cut == 32 || DataRequest::of(&other).is_none());
    }
}
