//! The runs and the job: with a coordinator at whichever server has the first place, otherwise at the servers named.

use crate::failure::Failure;
use crate::flags::DEFAULT_RUN;
use crate::job::servers;
use crate::status::answers::Answers;
use crate::status::asking::{Asking, Question, Round, Trouble, answered};
use gannet::backups::Places;
use gannet::job::{JobClient, JobStatus};
use gannet::runs::{Run, TableUse, known_runs, known_tables};
use gannet::{Transports, WorkerConfig};

/// What is known of runs and of a job.
pub struct JobAnswers {
    /// The runs that the servers report. `None`: no server was named.
    pub runs: Option<Result<Vec<Run>, Trouble>>,
    /// How full the tables of the servers are, as far as these say so.
    pub tables: Vec<TableUse>,
    /// The run to print.
    pub run: String,
    pub scheduler: String,
    pub job: Result<Option<JobStatus>, Trouble>,
}

/// A job whose places the coordinator knows.
pub struct JobByPlaces {
    scheduler: String,
    question: Question<Result<JobAnswers, Failure>>,
}

impl JobByPlaces {
    /// Asks the owner of the first place, also if another server takes the place meanwhile.
    pub fn ask(
        asking: &Asking<'_>,
        places: Places,
        owners: Vec<String>,
        round: Round,
    ) -> Result<JobByPlaces, Failure> {
        let (net, named, scheduler) =
            (asking.secured.net.clone(), asking.args.run.clone(), owners[0].clone());
        let config = WorkerConfig { servers: owners, places: Some(places), ..asking.config(&scheduler, "") };
        let question = Question::ask(move |say| drop(say.send(answers(&net, &config, named, round))))?;
        Ok(JobByPlaces { scheduler, question })
    }

    pub fn answer(self, round: Round, run: Option<&str>, seconds: u64) -> Result<JobAnswers, Failure> {
        self.question.answer(round).unwrap_or_else(|| {
            let why = format!("has said nothing within {seconds} s (--peer-timeout)");
            let trouble = Trouble { why, silent: true };
            let (runs, job) = (Some(Err(trouble.clone())), Err(trouble));
            let (run, scheduler) = (choose(run, None), self.scheduler);
            Ok(JobAnswers { runs, tables: Vec::new(), run, scheduler, job })
        })
    }
}

fn answers(
    net: &Transports,
    config: &WorkerConfig,
    named: Option<String>,
    round: Round,
) -> Result<JobAnswers, Failure> {
    let left = || WorkerConfig { peer_timeout: round.left(), ..config.clone() };
    let scheduler = config.servers[0].clone();
    let runs = answered(known_runs(net.clone(), &left()))?;
    let run = choose(named.as_deref(), runs.as_deref().ok());
    let (tables, job) = match &runs {
        Err(trouble) => (Vec::new(), Err(trouble.clone())),
        Ok(_) => {
            let of_run = config.run.clone().map(|id| gannet::runs::RunId { name: run.clone(), ..id });
            let servers = vec![scheduler.clone()];
            let tables = answered(known_tables(net.clone(), &left()))?.unwrap_or_default();
            (
                tables,
                answered(JobClient::status_of(net.clone(), WorkerConfig { servers, run: of_run, ..left() }))?,
            )
        }
    };
    Ok(JobAnswers { runs: Some(runs), tables, run, scheduler, job })
}

impl Asking<'_> {
    /// What these servers have answered about runs. Any of them may have a run's registry. Then asks the scheduler for
    /// the job.
    pub fn job_of_servers(
        &self,
        answers: &Answers,
        hosts: &[String],
        round: Round,
    ) -> Result<JobAnswers, Failure> {
        let (runs, tables) = (answers.runs(hosts), answers.tables(hosts));
        let run = choose(self.args.run.as_deref(), runs.as_ref().and_then(|runs| runs.as_deref().ok()));
        let scheduler = self.args.scheduler.clone().or_else(|| answers.registry(hosts, &run));
        let scheduler = scheduler.unwrap_or_else(|| servers::first_server(hosts).to_owned());
        let job = self.job((answers, &scheduler), &run, round)?;
        Ok(JobAnswers { runs, tables, run, scheduler, job })
    }

    /// Asks the scheduler, if it has answered before, for the job of a run.
    fn job(
        &self,
        (answers, scheduler): (&Answers, &str),
        run: &str,
        round: Round,
    ) -> Result<Result<Option<JobStatus>, Trouble>, Failure> {
        if let Some(trouble) = answers.trouble(scheduler) {
            return Ok(Err(trouble.clone()));
        }
        let net = self.secured.net.clone();
        let config = WorkerConfig { peer_timeout: round.left(), ..self.config(scheduler, run) };
        let asked = Question::ask(move |say| drop(say.send(answered(JobClient::status_of(net, config)))))?;
        asked.answer(round).unwrap_or_else(|| {
            let why = "has greeted, and not said what its job does (--peer-timeout)".to_owned();
            Ok(Err(Trouble { why, silent: true }))
        })
    }
}

/// The run to print: the named one, the default one, or the only one that exists.
pub fn choose(named: Option<&str>, runs: Option<&[Run]>) -> String {
    let only = match runs {
        Some([only]) => Some(only.name.as_str()),
        _ => None,
    };
    named.or(only).unwrap_or(DEFAULT_RUN).to_owned()
}
