//! The questions of `gannet status`: to all peers at once, and all within the time of one flag.

use crate::failure::{Failure, INPUT, SYSTEM};
use crate::flags::{DEFAULT_RUN, StatusArgs};
use crate::job::backups;
use crate::security::Secured;
use gannet::backups::Places;
use gannet::runs::{Run, RunId, TableUse, known_runs, known_tables};
use gannet::worker::WorkerError;
use gannet::{Transports, Worker, WorkerConfig};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Until when a round of questions waits.
#[derive(Clone, Copy)]
pub struct Round {
    /// The threads that ask give up then, and say why.
    asked: Instant,
    /// A thread that has not said anything by then is waited for no more.
    heard: Instant,
}

impl Round {
    /// The two rounds of a command that takes at most so many seconds: all peers are asked at once, and then those that
    /// have answered may be asked again.
    pub fn both(seconds: u64) -> (Round, Round) {
        let (now, all) = (Instant::now(), Duration::from_secs(seconds));
        let after = |sixteenths: u32| now + all * sixteenths / 16;
        (Round { asked: after(10), heard: after(13) }, Round { asked: after(14), heard: after(16) })
    }

    /// Whether those who ask are to give up.
    pub fn is_over(self) -> bool {
        Instant::now() >= self.asked
    }

    /// How long a peer may still take.
    pub fn left(self) -> Duration {
        self.asked.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }
}

/// A question that a thread of its own asks. The thread may say what it knows so far, and more later.
pub struct Question<T>(Receiver<T>);

impl<T: Send + 'static> Question<T> {
    pub fn ask(ask: impl FnOnce(&Sender<T>) + Send + 'static) -> Result<Question<T>, Failure> {
        let (say, said) = channel();
        let thread = std::thread::Builder::new().name("gannet-status".into()).spawn(move || ask(&say));
        match thread {
            Ok(_) => Ok(Question(said)),
            Err(error) => {
                let text = format!(
                    "a thread that asks a peer: {error}; end other processes, or raise the limit (ulimit -u)"
                );
                Err(Failure::new(SYSTEM, text))
            }
        }
    }

    /// The first that the thread says in this round. `None`: nothing.
    pub fn first_answer(self, round: Round) -> Option<T> {
        self.0.recv_timeout(round.heard.saturating_duration_since(Instant::now())).ok()
    }

    /// The last that the thread said in this round. `None`: nothing.
    pub fn answer(self, round: Round) -> Option<T> {
        let left = || round.heard.saturating_duration_since(Instant::now());
        std::iter::from_fn(|| self.0.recv_timeout(left()).ok()).last()
    }
}

/// What a server answers.
pub struct ServerAnswer {
    /// The transport over which it does.
    pub transport: Result<String, Trouble>,
    /// The runs in its registry.
    pub runs: Result<Vec<Run>, Trouble>,
    /// How full its tables are.
    pub tables: Vec<TableUse>,
}

impl ServerAnswer {
    fn of_silent(trouble: Trouble) -> ServerAnswer {
        ServerAnswer { transport: Err(trouble.clone()), runs: Err(trouble), tables: Vec::new() }
    }
}

/// A server that is asked.
pub struct AskedServer {
    pub addr: String,
    question: Question<Result<ServerAnswer, Failure>>,
}

impl AskedServer {
    /// Asks the one server of `config`.
    pub fn ask(net: &Transports, config: WorkerConfig, round: Round) -> Result<AskedServer, Failure> {
        let addr = config.servers.first().cloned().unwrap_or_default();
        let net = net.clone();
        let question = Question::ask(move |say: &Sender<Result<ServerAnswer, Failure>>| {
            if let Err(failure) = ask_server(&net, &config, round, say) {
                let _ = say.send(Err(failure));
            }
        })?;
        Ok(AskedServer { addr, question })
    }

    /// Its answer. `is_enough`: that it has greeted is, and nobody waits for what it knows of runs.
    pub fn answer(
        self,
        (round, seconds): (Round, u64),
        is_enough: bool,
    ) -> Result<(String, ServerAnswer), Failure> {
        let silent = || {
            let why = format!("has said nothing within {seconds} s (--peer-timeout)");
            Ok(ServerAnswer::of_silent(Trouble { why, silent: true }))
        };
        let answer = match is_enough {
            true => self.question.first_answer(round),
            false => self.question.answer(round),
        };
        Ok((self.addr, answer.unwrap_or_else(silent)?))
    }
}

/// Asks a server for everything, and says what it has answered so far.
fn ask_server(
    net: &Transports,
    config: &WorkerConfig,
    round: Round,
    say: &Sender<Result<ServerAnswer, Failure>>,
) -> Result<(), Failure> {
    let config = || WorkerConfig { peer_timeout: round.left(), ..config.clone() };
    let transport = match answered(Worker::<Transports>::connect(net.clone(), config()))? {
        Ok(worker) => worker.transport(),
        Err(trouble) => {
            let _ = say.send(Ok(ServerAnswer::of_silent(trouble)));
            return Ok(());
        }
    };
    let says = |runs, tables| say.send(Ok(ServerAnswer { transport: Ok(transport.clone()), runs, tables }));
    let why = "has greeted, and not said which runs it knows (--peer-timeout)".to_owned();
    let _ = says(Err(Trouble { why, silent: true }), Vec::new());
    let runs = answered(known_runs(net.clone(), &config()))?;
    let tables = match runs {
        Ok(_) => answered(known_tables(net.clone(), &config()))?.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let _ = says(runs, tables);
    Ok(())
}

/// The answer of a peer, or why there is none. A wrong request is an error of the command.
pub fn answered<T>(answer: Result<T, WorkerError>) -> Result<Result<T, Trouble>, Failure> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(WorkerError::PeerLost { waited, why, .. }) => {
            let seconds = waited.as_secs_f64();
            let why = format!("has not answered for {seconds:.1} s (--peer-timeout): {why}");
            Ok(Err(Trouble { why, silent: true }))
        }
        Err(error) => {
            let why = error.to_string();
            let failure = Failure::from(error);
            if failure.code == INPUT { Err(failure) } else { Ok(Err(Trouble { why, silent: false })) }
        }
    }
}

/// Why a peer gave no answer.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The reason, in words that follow the peer's address.
    pub why: String,
    /// Whether it gave no answer at all.
    pub silent: bool,
}

/// How the command asks.
pub struct Asking<'a> {
    pub args: &'a StatusArgs,
    pub secured: Secured,
}

impl Asking<'_> {
    pub fn config(&self, addr: &str, run: &str) -> WorkerConfig {
        WorkerConfig {
            token: self.secured.token.clone(),
            one_thread: true,
            run: Some(RunId { name: run.to_owned(), generation: 0, rows_since: 0, birth: 0 }),
            ..WorkerConfig::reader([addr.to_owned()])
        }
    }

    pub fn server(&self, addr: &str, round: Round) -> Result<AskedServer, Failure> {
        AskedServer::ask(&self.secured.net, self.config(addr, DEFAULT_RUN), round)
    }

    /// The places of the job, if a coordinator is named.
    pub fn places(&self) -> Result<Option<Places>, Failure> {
        let Some(addr) = &self.args.coordinator else { return Ok(None) };
        let (args, net) = (self.args, (&self.secured.net, self.secured.token.as_ref()));
        let run = args.run.as_deref().unwrap_or(DEFAULT_RUN);
        backups::places_of(addr, run, net, (&args.security, &args.tls_client)).map(Some)
    }
}
