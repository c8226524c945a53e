//! What the servers have answered, and what that says about runs.

use crate::failure::Failure;
use crate::status::asking::{AskedServer, Round, ServerAnswer, Trouble};
use gannet::runs::{Run, TableUse};
use std::collections::BTreeMap;

/// The answers of servers, by their addresses.
pub struct Answers(BTreeMap<String, ServerAnswer>);

impl Answers {
    /// Waits for all of these. `are_enough`: greetings are.
    pub fn of(
        asked: Vec<AskedServer>,
        (round, seconds): (Round, u64),
        are_enough: bool,
    ) -> Result<Answers, Failure> {
        let answer = |asked: AskedServer| asked.answer((round, seconds), are_enough);
        asked.into_iter().map(answer).collect::<Result<_, _>>().map(Answers)
    }

    /// Why a server has not answered, if it was asked and has not.
    pub fn trouble(&self, addr: &str) -> Option<&Trouble> {
        self.0.get(addr).and_then(|known| known.transport.as_ref().err())
    }

    /// The transport over which a server answers.
    pub fn transport(&self, addr: &str) -> Result<String, Trouble> {
        let not_asked = || Err(Trouble { why: "was not asked".into(), silent: true });
        self.0.get(addr).map_or_else(not_asked, |known| known.transport.clone())
    }

    fn of_all<'a>(&'a self, servers: &'a [String]) -> impl Iterator<Item = &'a ServerAnswer> {
        servers.iter().filter_map(|addr| self.0.get(addr))
    }

    /// The runs that these servers know. `None`: there is no server.
    pub fn runs(&self, servers: &[String]) -> Option<Result<Vec<Run>, Trouble>> {
        let (mut all, mut silent) = (Vec::new(), None);
        for known in self.of_all(servers) {
            match &known.runs {
                Ok(runs) => all.extend(runs.iter().cloned()),
                Err(trouble) => silent = silent.or(Some(trouble.clone())),
            }
        }
        all.sort_by(|one: &Run, other| one.name.cmp(&other.name));
        // A server that has not answered may have runs that the others do not know.
        match silent {
            Some(trouble) if all.is_empty() => Some(Err(trouble)),
            _ => (!servers.is_empty()).then_some(Ok(all)),
        }
    }

    /// How full the tables of these servers are.
    pub fn tables(&self, servers: &[String]) -> Vec<TableUse> {
        let mut all: BTreeMap<&str, TableUse> = BTreeMap::new();
        for table in self.of_all(servers).flat_map(|known| &known.tables) {
            let known = all.entry(&table.name).or_insert_with(|| table.clone());
            known.pushers = known.pushers.max(table.pushers);
            known.clients_gone = known.clients_gone.max(table.clients_gone);
        }
        all.into_values().collect()
    }

    /// The one server of these that knows a run. It is the scheduler of the run, at whatever address it is.
    pub fn registry(&self, servers: &[String], run: &str) -> Option<String> {
        let knows = |addr: &&String| {
            let runs = self.0.get(*addr).and_then(|known| known.runs.as_ref().ok());
            runs.is_some_and(|runs| runs.iter().any(|known| known.name == run))
        };
        let mut knowing = servers.iter().filter(knows);
        knowing.next().filter(|_| knowing.next().is_none()).cloned()
    }
}
