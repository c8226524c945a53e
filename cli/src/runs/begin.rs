//! How a run begins: its name, its notes, and what its user learns.

use crate::failure::Failure;
use crate::flags::RunArgs;
use crate::train::fields;
use gannet::runs::{RunDecision, RunId, RunIntent};
use gannet::train::saved::{RunNotes, fields_of_note, note_of_fields};
use gannet::train::{Data, FieldPlaces, Scale, ScaleKind};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What happens to the data when a worker with a fixed share is started again.
pub const AGAIN_IN_A_JOB: &str = "This worker trains its whole share again, on top of what the run has learned. \
                              --fresh begins with new rows; with --tasks on each record is trained once a pass";

/// What happens to the data when a training in one process is started again.
pub const AGAIN_ALONE: &str =
    "The whole data is trained again, on top of what the run has learned. --fresh begins with new rows";

/// Seconds since 1970. They only appear in messages about when a run ended; no decision depends on them.
pub fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether the flags begin a new run, or continue one.
pub fn intent(args: &RunArgs) -> RunIntent {
    match (args.go_on, args.fresh) {
        (true, _) => RunIntent::Continue,
        (_, true) => RunIntent::Fresh,
        _ => RunIntent::Auto,
    }
}

/// Refuses a name that is not valid for a run.
pub fn check_begin(run: &RunArgs) -> Result<(), Failure> {
    RunId::check_name(run.name()).map_err(|why| Failure::input(format!("--run {}: {why}", run.name())))
}

/// Says how the run continues, unless it is a normal first start. `again` says which data is trained again.
pub fn print_decision(id: &RunId, decided: RunDecision, want: RunIntent, again: &str) {
    let name = &id.name;
    match (decided, want) {
        (RunDecision::Continued, _) => notice!("gannet: run {name:?}: its rows are trained further"),
        (RunDecision::Fresh, _) => notice!("gannet: run {name:?} begins with new rows"),
        (RunDecision::Resumed, _) if !again.is_empty() => {
            notice!("gannet: run {name:?} is not finished and continues with its rows. {again}");
        }
        (RunDecision::Resumed, _) => {
            notice!("gannet: run {name:?} is not finished and continues with its rows")
        }
        (RunDecision::Begun, RunIntent::Continue) => {
            notice!("gannet: run {name:?} begins: there is no run to continue")
        }
        _ => {}
    }
}

/// The line of a run's notes with the fields for which its model has vectors.
const FIELDS_LINE: &str = "fields ";

/// The line before the notes about the model of a run: how many lines they have.
const MODEL_LINE: &str = "model ";

/// Bytes of the notes about a model. Those of data with more columns are left out, and nobody can follow the run.
const MODEL_BYTES_MAX: usize = 64 << 10;

/// The notes of a run: those about its model, and those about its data.
pub fn notes(data: &Data, model: Vec<(String, String)>) -> String {
    let (of_data, of_model) = (notes_of_data(data), RunNotes(model).lines());
    match of_model.lines().count() {
        _ if of_model.len() > MODEL_BYTES_MAX => of_data,
        0 => of_data,
        lines => format!("{MODEL_LINE}{lines}\n{of_model}{of_data}"),
    }
}

/// The notes about the model in those of a run, and the others. Runs of earlier versions have none about the model.
pub fn split_notes(notes: &str) -> (RunNotes, &str) {
    let Some((lines, rest)) = notes.strip_prefix(MODEL_LINE).and_then(|rest| rest.split_once('\n')) else {
        return (RunNotes::default(), notes);
    };
    let end = rest.split_inclusive('\n').take(lines.parse().unwrap_or(0)).map(str::len).sum();
    (RunNotes::of_lines(&rest[..end]), &rest[end..])
}

/// The scaling of numbers, if it depends on all of them, and the fields.
fn notes_of_data(data: &Data) -> String {
    let scale = &data.scale;
    let scaled = match scale.kind.looks_at_all() {
        true => format!("{}\n{}", scale.kind.name(), scale.lines()),
        false => String::new(),
    };
    match &data.fields.places {
        None => scaled,
        Some(of) => format!("{FIELDS_LINE}{} {}\n{scaled}", of.most(), note_of_fields(of.ids())),
    }
}

/// The places of fields in their line of a run's notes.
fn places_of_line(line: &str) -> Option<Arc<FieldPlaces>> {
    let (most, ids) = line.split_once(' ')?;
    let most = most.parse().ok().filter(|&most| most > 0)?;
    Some(Arc::new(FieldPlaces::new(fields_of_note(ids), most)))
}

/// How a run reads its data, as its notes say.
#[derive(Default)]
pub struct RunReading {
    /// The scaling of the numbers in its rows, if it depends on all of them.
    scale: Option<Scale>,
    /// The fields for which its model has vectors, and their places.
    fields: Option<Arc<FieldPlaces>>,
}

impl RunReading {
    /// What these notes say.
    pub fn of(notes: &str) -> RunReading {
        let (_, notes) = split_notes(notes);
        let (fields, rest) = match notes.strip_prefix(FIELDS_LINE).and_then(|line| line.split_once('\n')) {
            Some((of, rest)) => (places_of_line(of), rest),
            None => (None, notes),
        };
        let scale = |(kind, lines)| Some(Scale::of_lines(ScaleKind::of_name(kind)?, lines));
        RunReading { scale: rest.split_once('\n').and_then(scale), fields }
    }

    /// Makes other data be read as that of the run, because its rows were trained with it.
    pub fn keep(&self, id: &RunId, data: &mut Data, mut test: Option<&mut Data>) {
        if let Some(places) = &self.fields
            && places.ids() != fields::of_readers(data)
        {
            let all = std::iter::once(&mut *data).chain(test.as_deref_mut());
            all.for_each(|data| data.fields.say(Some(places.clone())));
        }
        keep_scale(id, self.scale.as_ref(), data, test);
    }
}

/// Applies the run's scaling to other data.
fn keep_scale(id: &RunId, run_scale: Option<&Scale>, data: &mut Data, test: Option<&mut Data>) {
    let Some(run_scale) = run_scale.filter(|run_scale| **run_scale != data.scale) else { return };
    notice!(
        "gannet: run {:?}: numbers are scaled as at the start of the run (--scale {})",
        id.name,
        run_scale.kind.name()
    );
    data.scale.clone_from(run_scale);
    if let Some(test) = test {
        test.scale.clone_from(run_scale);
    }
}
