//! `gannet train --model lda`: topics of documents, and their words.

use crate::failure::Failure;
use crate::flags::{JobArgs, ModelArgs, StoreArgs};
use crate::metrics::Metrics;
use crate::metrics::training::Training;
use crate::model::folder::{may_write, save_model};
use crate::report::account::Account;
use crate::report::numbers::Numbers;
use crate::report::progress::ProgressDisplay;
use crate::report::steps::put_staleness;
use crate::report::warnings::warn_of_bad_lines;
use crate::runs::begin::AGAIN_ALONE;
use crate::runs::in_run::InRun;
use crate::signals;
use crate::train::ending::{Learned, Results, Validated};
use crate::train::in_store::train_in_store;
use crate::train::models::plan::keep_step;
use crate::train::tasks::InJob;
use crate::train::trained::{Summary, Trained};
use crate::train::worker::{JobWorker, Learner};
use gannet::job::PlanFile;
use gannet::runs::RunSetting;
use gannet::table::TableId;
use gannet::train::models::{Lda, Sampled, Topics};
use gannet::train::{Data, Labels, LocalTables, Options, Progress, Reader, RemoteTables, Tables};
use gannet::{Schema, Transports, Worker};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The number of words that are printed of a topic.
const WORDS_SHOWN: usize = 10;

/// The model, and the names of its words by id.
pub struct TopicModel {
    model: Lda,
    names: Vec<String>,
}

/// The model that the flags choose.
pub fn topic_model(of: &ModelArgs) -> Result<TopicModel, Failure> {
    let (document_prior, word_prior) = (of.document_prior.unwrap_or(0.1), of.word_prior.unwrap_or(0.01));
    for (flag, prior) in [("--document-prior", document_prior), ("--word-prior", word_prior)] {
        if !(prior.is_finite() && prior > 0.0) {
            return Err(Failure::input(format!("{flag} {prior}: a finite number above 0 is needed")));
        }
    }
    let (topics, seed) = (of.topics.unwrap_or(20) as usize, of.seed.unwrap_or(1));
    let names = match &of.vocabulary {
        None => Vec::new(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Failure::input(format!("--vocabulary {}: cannot read: {e}", path.display())))?
            .lines()
            .map(str::to_owned)
            .collect(),
    };
    Ok(TopicModel { model: Lda { topics, document_prior, word_prior, seed }, names })
}

/// The options to read documents: labels may be anything, and no word is in all documents.
pub fn documents(mut options: Options) -> Result<Options, Failure> {
    (options.data.labels, options.data.intercept, options.data.unlabelled) = (Labels::Numbers, false, true);
    options
        .data
        .must_be_files("sampling, which reads all documents in each worker,")
        .map_err(|e| Failure::input(e.to_string()))?;
    Reader::check(&options.data).map_err(|e| Failure::input(e.to_string()))?;
    Ok(options)
}

/// Samples in this process.
pub fn sample_alone(
    own: (&JobArgs, &StoreArgs),
    mut options: Options,
    settings: impl FnOnce(&[PlanFile], &Options) -> Vec<RunSetting>,
    of: &TopicModel,
    results: Results<'_>,
    (display, metrics): (ProgressDisplay, &Metrics),
) -> Result<(), Failure> {
    let (model, stop) = (&of.model, signals::stop_flag()?);
    options.stop_on(&stop);
    let schemas = model.schemas();
    let names = schemas.each_ref().map(|schema| schema.name.as_str());
    train_in_store(own, metrics, options, settings, (&names, AGAIN_ALONE), |store, options, run, account| {
        let mut tables = LocalTables::of_run(store, run.cloned(), 1);
        let sampled = sample(options, model, &mut tables, &stop, (display, metrics))?;
        let rows = tables.stats(0)?.rows;
        finish(results, of, &mut tables, (&sampled, account), 1)?;
        tables.close()?;
        Ok((sampled, rows))
    })
}

impl Trained for (Sampled, u64) {
    fn summary(&self) -> Summary<'_> {
        Summary {
            examples: self.0.documents,
            seconds: self.0.seconds,
            loss: None,
            // A batch is pushed when it is read and again in each sweep, so the number of missing batches is not known.
            batches: None,
            rows: self.1,
            stopped: self.0.stopped,
            bad_lines: None,
        }
    }

    fn set_stopped(&mut self, stopped: bool) {
        self.0.stopped = stopped;
    }
}

impl Learner for TopicModel {
    const BATCHES_PUSH_TO_ALL: bool = false;
    type Tables = RemoteTables<Transports>;
    /// The results, and the rows of the words.
    type Trained = (Sampled, u64);

    fn schemas(&self) -> Vec<Schema> {
        self.model.schemas().to_vec()
    }

    fn open(
        &self,
        own: &JobWorker<'_>,
        worker: Worker<Transports>,
        _: Option<&InRun>,
    ) -> Result<RemoteTables<Transports>, Failure> {
        let mut tables = RemoteTables::new(worker);
        keep_step(&mut tables, own.sync);
        Ok(tables)
    }

    fn train(
        &mut self,
        own: &JobWorker<'_>,
        tables: &mut RemoteTables<Transports>,
        _: &InRun,
        _: Option<&InJob>,
    ) -> Result<((Sampled, u64), Validated), Failure> {
        let sampled = sample(&own.options, &self.model, tables, &own.stop, (own.display(), &own.metrics))?;
        Ok(((sampled, 0), Validated::default()))
    }

    fn close<'t>(
        &self,
        tables: &'t mut RemoteTables<Transports>,
    ) -> Result<(&'t mut Worker<Transports>, TableId), Failure> {
        tables.close_pusher()?;
        let table = tables.id(0);
        Ok((tables.worker(), table))
    }

    fn measure(
        &mut self,
        tables: &mut RemoteTables<Transports>,
        (_, rows): &mut (Sampled, u64),
        _: Option<Data>,
    ) -> Result<(), Failure> {
        *rows = tables.stats(0)?.rows;
        Ok(())
    }

    fn report(
        &self,
        own: &JobWorker<'_>,
        tables: &mut RemoteTables<Transports>,
        ((sampled, _), account): (&mut (Sampled, u64), &Account),
        _: Validated,
    ) -> Result<(), Failure> {
        if !own.is_chief {
            print(own.args.output.json, (sampled, account), None, &self.names);
            return Ok(());
        }
        finish(own.results(), self, tables, (sampled, account), own.sync.workers.into())
    }
}

impl TopicModel {
    /// Finds errors before the sampling that would otherwise stop it at the end.
    pub fn preflight(&self, out: Option<&Path>) -> Result<(), Failure> {
        let schemas = self.model.schemas();
        for schema in &schemas {
            schema.check().map_err(|e| Failure::input(e.to_string()))?;
        }
        out.map_or(Ok(()), |folder| may_write(folder, &schemas[0]))
    }
}

/// Samples with a progress display.
fn sample<T: Tables>(
    options: &Options,
    model: &Lda,
    tables: &mut T,
    stop: &AtomicBool,
    (mut display, metrics): (ProgressDisplay, &Metrics),
) -> Result<Sampled, Failure> {
    let training = Arc::new(Training::new(false));
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let sweeps = options.epochs;
    let sampled = model.sample(options, tables, stop, &mut |s| {
        training.progress(&Progress {
            epoch: s.sweep - 1,
            examples: s.tokens,
            seconds: s.seconds,
            loss: f64::NAN,
            ..Progress::default()
        });
        let (sweep, speed) = (s.sweep, s.tokens as f64 / s.seconds.max(1e-9));
        let text = format!("sweep {sweep} of {sweeps}  {} tokens  {speed:.0}/s", s.tokens);
        display.show(Some(f64::from(sweep - 1) / f64::from(sweeps)), text, || {
            let tokens = s.tokens;
            tracing::info!(target: "gannet::progress", sweep, sweeps, tokens, tokens_per_second = speed, "sampling");
        });
    });
    display.finish();
    let sampled = sampled?;
    warn_of_bad_lines(&sampled.bad_lines);
    Ok(sampled)
}

/// Reads the topics, saves the model and prints the report.
fn finish<T: Tables>(
    results: Results<'_>,
    of: &TopicModel,
    tables: &mut T,
    (sampled, account): (&Sampled, &Account),
    workers: u64,
) -> Result<(), Failure> {
    let TopicModel { model, names } = of;
    // If the sampling was stopped, some workers may not have written their part of the counts.
    let topics = match sampled.stopped {
        true => None,
        false => Some(model.topics(tables, workers, sampled.words, WORDS_SHOWN)?),
    };
    let learned = Learned {
        examples: sampled.documents,
        rows: sampled.words,
        stopped: sampled.stopped,
        bad_lines: &sampled.bad_lines,
        format: sampled.format,
        columns: None,
        intercept: false,
        missing: &account.missing,
    };
    let [words, totals, _] = model.schemas();
    let priors = [("document-prior", model.document_prior), ("word-prior", model.word_prior)];
    let mut shape = vec![("model", "lda".to_owned())];
    shape.extend(priors.map(|(name, prior)| (name, prior.to_string())));
    let saved = results.save(&learned, |folder, notes| {
        save_model(folder, (&shape, notes), &[words, totals], |table, page| tables.scan(table, page))
    })?;
    print(results.output.json, (sampled, account), topics.as_ref(), names);
    results.print_saved(saved, sampled.stopped);
    Ok(())
}

/// Prints the report of a sampling.
fn print(is_json: bool, (sampled, account): (&Sampled, &Account), topics: Option<&Topics>, names: &[String]) {
    let Sampled { documents, tokens, words, sweeps, seconds, transport, .. } = sampled;
    let speed = *tokens as f64 * f64::from(*sweeps) / seconds;
    let name = |id: u64| names.get(id as usize).cloned().unwrap_or_else(|| id.to_string());
    let mut report = Numbers::default();
    report.add("model", "lda");
    report.line("");
    report.show("documents", *documents, " documents, ");
    report.show("tokens", *tokens, " tokens, ");
    report.show("words", *words, " words: ");
    report.show("sweeps", *sweeps, " sweeps in ");
    report.show_float("seconds", *seconds, 2, " s, ");
    report.show_float("tokens_per_second", speed, 0, " tokens/s (");
    report.show("transport", transport.as_str(), ")");
    put_staleness(&mut report, &sampled.pulls_by_staleness);
    report.add_all(json!({
        "format": sampled.format, "bad_lines": sampled.bad_lines.count, "stopped": sampled.stopped,
    }));
    put_topics(&mut report, topics, name);
    account.put(&mut report);
    report.print(is_json);
}

/// Adds the topics, each with its first words. They are null if they were not read.
fn put_topics(report: &mut Numbers, topics: Option<&Topics>, name: impl Fn(u64) -> String) {
    let Some(topics) = topics else {
        let unknown = ["log_likelihood", "log_likelihood_per_token", "all_tokens", "topics"];
        return unknown.into_iter().for_each(|name| report.add(name, Value::Null));
    };
    report.line("likelihood");
    report.show_float("log_likelihood", topics.log_likelihood, 0, ", ");
    let per_token = topics.log_likelihood / topics.tokens as f64;
    report.show_float("log_likelihood_per_token", per_token, 6, " a token");
    report.add("all_tokens", topics.tokens);
    let mut objects = Vec::new();
    for (number, (tokens, words)) in topics.topics.iter().enumerate() {
        let named: Vec<(String, u64)> = words.iter().map(|&(id, count)| (name(id), count)).collect();
        let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        report.line(&format!("topic {number}"));
        report.words(format_args!("{tokens:>8} tokens  {}", names.join(" ")));
        objects.push(json!({"tokens": tokens, "words": named}));
    }
    report.add("topics", objects);
}
