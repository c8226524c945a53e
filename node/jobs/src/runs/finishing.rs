//! The end of a run, as its workers report it.

use crate::runs::registry::{Registry, RunEnd, RunRefusal};
use gannet_wire::messages::runs::RunReplyV1;
use std::time::Duration;

impl Registry {
    pub fn finish(
        &mut self,
        name: &str,
        generation: u32,
        by: u32,
        finished: RunEnd,
        now: Duration,
    ) -> Result<RunReplyV1, RunRefusal> {
        let is_news =
            self.runs.get(name).is_some_and(|run| run.generation == generation && run.finished.is_none());
        if is_news {
            self.change(name, |run| {
                run.finished = Some(finished);
                // The worker that reports the end has trained its share. If it comes again, it is not late.
                if let Some(member) = run.members.get_mut(&by) {
                    member.done = true;
                }
            })?;
            self.finished.insert(name.to_owned(), now);
            self.heard.insert(name.to_owned(), self.detector.clock(now));
        }
        Ok(RunReplyV1::Noted)
    }
}
