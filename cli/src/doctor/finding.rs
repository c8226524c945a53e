//! A finding of `gannet doctor`: what it checked, whether it works, and what to do if not.

use crate::failure;
use serde_json::{Value, json};

/// Whether it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It works.
    Ok,
    /// Gannet works without it. The remedy says how to get it.
    Note,
    /// Something should work and does not.
    Problem,
    /// A peer that cannot be reached.
    Unreachable,
}

/// The result of a check.
#[derive(Debug)]
pub struct Finding {
    /// The part of the machine: system, memory, io_uring, shm, rdma, or a peer's address.
    area: String,
    level: Level,
    /// What was found.
    text: String,
    /// What to do, when it does not work.
    remedy: Option<String>,
}

impl Finding {
    /// A finding that it works.
    pub fn ok(area: impl Into<String>, text: impl Into<String>) -> Finding {
        Finding { area: area.into(), level: Level::Ok, text: text.into(), remedy: None }
    }

    /// A finding that it does not work. `remedy` says what to do; it is empty when the text says so already.
    pub fn not(
        area: impl Into<String>,
        level: Level,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        let remedy = Some(remedy.into()).filter(|remedy| !remedy.is_empty());
        Finding { area: area.into(), level, text: text.into(), remedy }
    }

    /// [`Finding::not`] at the level of a note.
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

    /// Prints a line, and one for the remedy.
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

/// The number of notes and problems, and the exit code for them.
pub struct Summary {
    /// Findings of the level note.
    pub notes: usize,
    /// Findings of the levels problem and unreachable.
    pub problems: usize,
    /// 0, or the code of the worst finding.
    pub code: u8,
}

impl Summary {
    /// Counts these findings.
    pub fn of(findings: &[Finding]) -> Summary {
        let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
        let (broken, unreachable) = (count(Level::Problem), count(Level::Unreachable));
        let code = match (broken, unreachable) {
            (0, 0) => 0,
            (0, _) => failure::PEER,
            _ => failure::SYSTEM,
        };
        Summary { notes: count(Level::Note), problems: broken + unreachable, code }
    }
}
