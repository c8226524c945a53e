//! A server without disk space, scripted in the simulation: what a worker does when its push is refused and must be
//! resent.

use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::worker::Worker;
use gannet_core::{Applied, Schema, Write};
use gannet_optim::{Add, Rule};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Link, Listener, Net, NoOwner};
use gannet_wire::frames;
use gannet_wire::frames::bulk::{AckFrame, PushFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::{HelloFrame, RefusedFrame, WelcomeFrame};
use gannet_wire::frames::tables::{IdentifyFrame, IdentityFrame, OpenTableFrame, TableOpenedFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{HeldV1, IdentityV1, RefusedV1, TableOpenedV4, WelcomeV1};
use gannet_wire::refusal::Refusal;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Answers on each link; refuses push 2, and with it all later ones of the session, on the first `refusals` links
/// that bring it. Writes down the pushes that it takes.
fn play(sim: &Sim, refusals: usize) -> (String, Rc<RefCell<Vec<u64>>>) {
    let mut listener = sim.listen("sim:0").unwrap();
    let addr = listener.addr().to_owned();
    let taken: Rc<RefCell<Vec<u64>>> = Rc::default();
    let (log, mut links, mut refused) = (taken.clone(), Vec::new(), 0);
    sim.add_actor(move || {
        while let Some(stream) = listener.accept().unwrap() {
            links.push((Link::new(stream), false));
        }
        links.retain_mut(|(link, blocked)| {
            if link.fill(&mut NoOwner).is_err() {
                return false;
            }
            let (receive, transmit) = link.halves();
            while let Some(frame) = receive.peek(&mut NoOwner).unwrap() {
                let id = frame.head.id;
                let push = PushFrame::decode(&frame.head).ok();
                if push.is_some_and(|push| push.seq == 2 && refused < refusals) {
                    (*blocked, refused) = (true, refused + 1);
                }
                let (head, payload) = match frame.head.kind {
                    HelloFrame::KIND => (
                        WelcomeFrame::default().encode(id),
                        control::seal(&WelcomeV1 { incarnation: 1, session: 1, threads: 1 }),
                    ),
                    IdentifyFrame::KIND => {
                        let (uid, server, servers, shards, confirmed) = ([3; 16], 0, 1, 1, true);
                        let held = Some(HeldV1 { uid, server, servers, shards, confirmed });
                        (IdentityFrame {}.encode(id), control::seal(&IdentityV1 { held }))
                    }
                    OpenTableFrame::KIND => {
                        let (table, shards, incarnation) = (0, vec![(0, 1)], 1);
                        let (uid, confirmed, all_births, births) = ([3; 16], true, 0, vec![5]);
                        let opened =
                            TableOpenedV4 { table, shards, incarnation, uid, confirmed, all_births, births };
                        (TableOpenedFrame {}.encode(id), control::seal_as(4, &opened))
                    }
                    kind if *blocked && push.is_some() => {
                        let refused = RefusedFrame { code: Refusal::NoSpace as u16, kind };
                        (refused.encode(id), control::seal(&RefusedV1 { text: "no space here".into() }))
                    }
                    PushFrame::KIND => {
                        log.borrow_mut().extend(push.map(|push| push.seq));
                        let applied = Applied { applied: 1, ..Applied::default() };
                        (AckFrame::new(applied, 0).encode(id), Vec::new())
                    }
                    kind => (frames::any_head(frames::answer_to(kind), 0, id, [0; 4]), Vec::new()),
                };
                transmit.send_copy(head, &payload).unwrap();
                receive.consume();
            }
            link.flush(&mut NoOwner).is_ok()
        });
    });
    (addr, taken)
}

fn push_five(sim: &Sim, addr: String) -> Result<(), WorkerError> {
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([addr], 1, 1))?;
    let table = worker.open_table(&Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) })?;
    for seq in 1..=5 {
        let cut = Arc::new(worker.cut(table, &[seq]));
        worker.begin_push(table, cut, Write::Gradient, vec![1.0], None, seq)?;
    }
    worker.drain()
}

#[test]
fn a_refused_push_goes_again_before_all_later_ones() {
    let sim = Sim::new(1, Faults::none());
    let (addr, taken) = play(&sim, 4);
    push_five(&sim, addr).unwrap();
    assert_eq!(*taken.borrow(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_disk_that_stays_full_is_named_in_time() {
    let sim = Sim::new(1, Faults::none());
    let (addr, taken) = play(&sim, usize::MAX);
    let before = sim.now();
    let error = push_five(&sim, addr.clone()).unwrap_err();
    let waited = sim.now() - before;
    assert!(waited > Duration::from_secs(59) && waited < Duration::from_secs(70), "{waited:?}");
    let text = error.to_string();
    assert!(text.starts_with(&addr) && text.contains("no space here"), "{text}");
    assert_eq!(*taken.borrow(), [1]);
}
