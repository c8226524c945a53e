//! What can go wrong in the roles, by family. Every error names the peer, the limit and the remedy where there is one.

use gannet_core::{PullError, PushError};

/// Why a server refused a request: the code on the wire. The link stays open.
///
/// ```
/// use gannet_core::Schema;
/// use gannet_wire::Refusal;
/// use gannet_worker::WorkerError;
/// use gannet_optim::{Add, Rule};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
///
/// let schema = Schema::scalar("clicks", Rule::Add(Add));
/// worker.open_table(&schema)?;
/// let other = worker.open_table(&Schema { dim: 2, ..schema });
/// assert!(matches!(other, Err(WorkerError::Refused { refusal: Refusal::Mismatch, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Not a request, or one whose lengths do not fit.
    Malformed = 1,
    /// No such table or thread.
    Unknown = 2,
    /// The table was opened with another schema, number of servers or position among them.
    Mismatch = 3,
    /// A key of a shard that this server does not own.
    WrongShard = 4,
    /// A newer incarnation of the pusher exists.
    Fenced = 5,
    /// No memory or disk for new rows: resend when there is some.
    NoSpace = 6,
    /// The server does not keep this keyset: send the keys. It also refuses later pushes of the session, to preserve
    /// their order.
    NoKeyset = 7,
    /// An earlier push of the session was refused: resend everything from there on, over a new session.
    Blocked = 8,
    /// A limit of the server.
    Limit = 9,
    /// The images cannot be opened.
    Images = 10,
    /// The push does not follow the last one that the shard remembers of its pusher.
    Name = 11,
    /// The connection did not prove that it has the server's token, or the server has none to prove.
    Token = 12,
    /// The connection does not use TLS as it should. Only counted: no refusal could be sent.
    Tls = 13,
    /// The server holds nothing of the table, or another table than requested: ask what it holds.
    Identity = 14,
    /// A cut was given up, or cannot begin now: begin it again.
    Cut = 15,
    /// Another server owns the shards: ask the coordinator which, and go there.
    Moved = 16,
}

impl Refusal {
    /// All refusals with their names in metrics. The code on the wire is the position plus 1.
    const NAMED: [(Refusal, &str); 16] = [
        (Refusal::Malformed, "malformed"),
        (Refusal::Unknown, "unknown"),
        (Refusal::Mismatch, "mismatch"),
        (Refusal::WrongShard, "wrong_shard"),
        (Refusal::Fenced, "fenced"),
        (Refusal::NoSpace, "no_space"),
        (Refusal::NoKeyset, "no_keyset"),
        (Refusal::Blocked, "blocked"),
        (Refusal::Limit, "limit"),
        (Refusal::Images, "images"),
        (Refusal::Name, "name"),
        (Refusal::Token, "token"),
        (Refusal::Tls, "tls"),
        (Refusal::Identity, "identity"),
        (Refusal::Cut, "cut"),
        (Refusal::Moved, "moved"),
    ];
    /// Number of refusals.
    pub const COUNT: usize = Refusal::NAMED.len();

    pub fn of(code: u16) -> Refusal {
        let named = Refusal::NAMED.into_iter().find(|(refusal, _)| *refusal as u16 == code);
        named.map_or(Refusal::Malformed, |(refusal, _)| refusal)
    }

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        Refusal::NAMED[self.place()].1
    }

    /// All names, by [`place`](Self::place).
    pub fn names() -> impl Iterator<Item = &'static str> {
        Refusal::NAMED.into_iter().map(|(_, name)| name)
    }

    /// The position of this refusal's counter.
    pub fn place(self) -> usize {
        self as usize - 1
    }

    pub fn of_pull(error: &PullError) -> Refusal {
        match error {
            PullError::WrongShard { .. } => Refusal::WrongShard,
            _ => Refusal::Malformed,
        }
    }

    pub fn of_push(error: &PushError) -> Refusal {
        match error {
            PushError::Keys(error) => Refusal::of_pull(error),
            PushError::Fenced { .. } | PushError::Forgotten { .. } => Refusal::Fenced,
            PushError::Program { .. } | PushError::NoCount(_) => Refusal::Malformed,
            PushError::TooManyPushers { .. } | PushError::Limit { .. } => Refusal::Limit,
            PushError::NoSpace { .. } => Refusal::NoSpace,
            PushError::Unfinished { .. } | PushError::Gap { .. } => Refusal::Name,
            _ => Refusal::Malformed,
        }
    }

    /// Whether the worker must resend everything from the refused push on, over a new session.
    pub fn asks_for_resend(self) -> bool {
        matches!(self, Refusal::NoSpace | Refusal::NoKeyset | Refusal::Blocked)
    }
}

/// The text for a worker that was replaced by a newer incarnation, or given up.
pub const REPLACED: &str = "a newer incarnation of this worker is there, or the others went on without it (--worker-timeout): if two \
    processes have one --task-index, give each its own; if not, start it again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_stands_at_its_place() {
        for (place, (refusal, _)) in Refusal::NAMED.into_iter().enumerate() {
            assert_eq!((refusal.place(), Refusal::of(refusal as u16)), (place, refusal));
        }
    }
}
