//! A finding: what was looked at, whether it is well, and what to do if not.

use super::super::failure;
use serde_json::{Value, json};

/// Whether it is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It works.
    Ok,
    /// Gannet works without it; the remedy says how to have it.
    Note,
    /// What should work does not.
    Problem,
    /// A peer that cannot be reached.
    Unreachable,
}

/// What was found.
#[derive(Debug)]
pub struct Finding {
    /// The part of the machine: system, memory, io_uring, shm, rdma, or a peer's address.
    area: String,
    level: Level,
    /// What is so.
    text: String,
    /// What to do about it, when it is not well.
    remedy: Option<String>,
}

impl Finding {
    /// It works.
    pub fn ok(area: impl Into<String>, text: impl Into<String>) -> Finding {
        Finding { area: area.into(), level: Level::Ok, text: text.into(), remedy: None }
    }

    /// It does not, and `remedy` says what to do. (A text that has the remedy already comes with an empty one.)
    pub fn not(
        area: impl Into<String>,
        level: Level,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        let remedy = Some(remedy.into()).filter(|remedy| !remedy.is_empty());
        Finding { area: area.into(), level, text: text.into(), remedy }
    }

    /// As [`Finding::not`], at the level of a note.
    pub fn note(area: impl Into<String>, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding::not(area, Level::Note, text, remedy)
    }

    fn level(&self) -> &'static str {
        match self.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem | Level::Unreachable => "problem",
        }
    }

    /// A line, and one for the remedy.
    pub fn say(&self) {
        say!("{:<8} {:<9} {}", self.level(), self.area, self.text);
        if let Some(remedy) = &self.remedy {
            say!("{:<18} -> {remedy}", "");
        }
    }

    /// The finding as JSON.
    pub fn json(&self) -> Value {
        json!({ "area": self.area, "level": self.level(), "text": self.text, "remedy": self.remedy })
    }
}

/// How many are not well, and the exit code that says so.
pub struct Tally {
    /// What Gannet works without.
    pub notes: usize,
    /// What should work and does not.
    pub problems: usize,
    /// 0, or the code of the worst.
    pub code: u8,
}

impl Tally {
    /// Of these findings.
    pub fn of(findings: &[Finding]) -> Tally {
        let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
        let (broken, unreachable) = (count(Level::Problem), count(Level::Unreachable));
        let code = match (broken, unreachable) {
            (0, 0) => 0,
            (0, _) => failure::PEER,
            _ => failure::SYSTEM,
        };
        Tally { notes: count(Level::Note), problems: broken + unreachable, code }
    }
}
