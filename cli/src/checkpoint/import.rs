//! `gannet checkpoint import`: a full checkpoint of one table from a file of arrays. Memory holds a block of rows for
//! each shard of a group, and the keys of the group.

use crate::checkpoint::arrays::{ArrayRows, unreadable};
use crate::checkpoint::{npz, safetensors};
use crate::checkpoint_place::create_checkpoints;
use crate::failure::Failure;
use crate::flags::{ArraysName, ImportArgs, OptimizerName};
use crate::model::optimizer;
use gannet::Schema;
use gannet::optim::GradientTransform;
use gannet::storage::{CheckpointDir, Draft, JobManifest, RowFileWriter, ShardCut, TableCut, TableUid};
use gannet::table::{hash, mix, shard_of};
use gannet::train::saved::fresh_segment;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;

/// Rows that are read at a time.
const ROWS_AT_ONCE: u64 = 4096;

/// Shards whose files are written at a time. Each has a block of rows in memory.
const SHARDS_AT_ONCE: u32 = 256;

/// Runs the command.
pub fn run_import(args: &ImportArgs) -> Result<(), Failure> {
    if args.optimizer.push.is_some() || args.optimizer.reduce.is_some() {
        return Err(Failure::input("--push and --reduce say what a training pushes; a table has neither"));
    }
    let (width, rows) = each(args, |arrays| Ok((arrays.width, arrays.rows)))?;
    let schema = schema(args, width)?;
    let directory = create_checkpoints(&args.dir)?;
    if let Some(there) = directory.newest_valid()? {
        there.must_be_of(&args.run, &args.dir)?;
    }
    let draft = directory.begin()?;
    let number = draft.number();
    let result = save_import(args, &schema, &directory, draft);
    if let Err(failure) = result {
        let _ = directory.discard(number); // it has no manifest
        return Err(failure);
    }
    let (table, dir) = (&args.table, args.dir.display());
    say!("{rows} rows of table {table} are checkpoint {number} of run {:?} in {dir}", args.run);
    Ok(())
}

/// Calls `take` with the arrays of the file.
fn each<T>(args: &ImportArgs, take: impl FnOnce(ArrayRows<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    match args.format {
        ArraysName::Npz => npz::read_npz(&args.file, take),
        ArraysName::Safetensors => safetensors::read_safetensors(&args.file, take),
        ArraysName::Text => Err(Failure::input("--format text: only npz and safetensors can be imported")),
    }
}

/// The schema of the table, whose rows come from `width` values each.
fn schema(args: &ImportArgs, width: usize) -> Result<Schema, Failure> {
    let dim = args.dim.unwrap_or(width as u32);
    let default = if dim == 1 { OptimizerName::Ftrl } else { OptimizerName::Adagrad };
    let choice = optimizer::rule_choice(&args.optimizer, default, None)?;
    let shaping = GradientTransform { l2: choice.l2, ..choice.shaping };
    let schema = Schema { dim, shards: args.shards, shaping, ..Schema::scalar(&args.table, choice.rule) };
    let schema = schema.with_row_type(args.row_type.choice());
    let schema =
        schema.map_err(|error| Failure::input(format!("--row-type {}: {error}", args.row_type.name())))?;
    schema.check().map_err(|error| Failure::input(error.to_string()))?;
    let wanted = if args.state { schema.f32_floats() } else { schema.weights() };
    if width != wanted {
        let (file, rule) = (args.file.display(), choice.rule.name());
        let what = if args.state { "floats of a row with its state" } else { "weights" };
        return Err(Failure::input(format!(
            "{file}: a row has {width} values, but a row of --dim {dim} with {rule} has {wanted} {what}"
        )));
    }
    Ok(schema)
}

/// Random, and another one each time.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn save_import(
    args: &ImportArgs,
    schema: &Schema,
    directory: &CheckpointDir,
    draft: Draft,
) -> Result<(), Failure> {
    let mut uid = TableUid::NONE;
    uid.0[..8].copy_from_slice(&random().to_le_bytes());
    uid.0[8..].copy_from_slice(&random().to_le_bytes());
    let births = random();
    let cut = |shard| {
        let birth = mix(births ^ u64::from(shard)).max(1);
        ShardCut { shard, birth, epoch: 1, from: 0, to: 1, file: None }
    };
    let shards = (0..schema.shards).map(cut).collect();
    let table = TableCut { schema: schema.clone(), uid, shards, cursors: Vec::new() };
    let mut manifest = JobManifest { tables: vec![table], ..JobManifest::new(draft.number(), &args.run) };
    manifest.notes.push(("imported".into(), args.file.display().to_string()));
    for first in (0..schema.shards).step_by(SHARDS_AT_ONCE as usize) {
        let group = first..schema.shards.min(first + SHARDS_AT_ONCE);
        each(args, |arrays| save_shards(args, directory, &mut manifest, group, arrays))?;
    }
    Ok(draft.publish(&manifest)?)
}

/// Writes the row files of a group of shards.
fn save_shards(
    args: &ImportArgs,
    directory: &CheckpointDir,
    manifest: &mut JobManifest,
    group: std::ops::Range<u32>,
    arrays: ArrayRows<'_>,
) -> Result<(), Failure> {
    let schema = manifest.tables[0].schema.clone();
    let mut files: Vec<(Option<RowFileWriter>, Vec<u64>)> =
        group.clone().map(|_| (None, Vec::new())).collect();
    let (mut left, mut bytes, mut row) = (arrays.rows, (Vec::new(), Vec::new()), Vec::new());
    while left > 0 {
        let now = left.min(ROWS_AT_ONCE) as usize;
        left -= now as u64;
        let (keys, values) = (&mut bytes.0, &mut bytes.1);
        keys.resize(8 * now, 0);
        values.resize(4 * arrays.width * now, 0);
        let read = arrays.keys.read_exact(keys).and_then(|()| arrays.values.read_exact(values));
        read.map_err(|error| unreadable(&args.file, &error))?;
        for (key, values) in keys.chunks_exact(8).zip(values.chunks_exact(4 * arrays.width)) {
            let key = u64::from_le_bytes(key.try_into().unwrap_or_default());
            let shard = shard_of(hash(key), schema.shards);
            if !group.contains(&shard) {
                continue;
            }
            stored_row(args, &schema, (key, values), &mut row)?;
            let (writer, seen) = &mut files[(shard - group.start) as usize];
            if writer.is_none() {
                let head = manifest.row_file_head(0, shard);
                let head = head.ok_or_else(|| Failure::input(format!("no shard {shard}")))?;
                *writer = Some(RowFileWriter::create(directory, head, 1)?);
            }
            if let Some(writer) = writer {
                writer.rows(&[key], &row)?;
            }
            seen.push(key);
        }
    }
    ended(args, arrays.keys)?;
    ended(args, arrays.values)?;
    for (shard, (writer, mut seen)) in group.zip(files) {
        seen.sort_unstable();
        if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            let file = args.file.display();
            return Err(Failure::input(format!(
                "{file}: key {} stands there twice: keep one row of it",
                pair[0]
            )));
        }
        let entry = writer.map(RowFileWriter::finish).transpose()?;
        manifest.tables[0].shards[shard as usize].file = entry;
    }
    Ok(())
}

/// The row to store for the values of a key.
fn stored_row(
    args: &ImportArgs,
    schema: &Schema,
    (key, values): (u64, &[u8]),
    row: &mut Vec<f32>,
) -> Result<(), Failure> {
    let values = values.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap_or_default()));
    row.clear();
    if args.state {
        let values: Vec<f32> = values.collect();
        schema.put_row_of_f32(&values, row);
    } else {
        let weights: Vec<f32> = values.collect();
        row.resize(schema.floats(), 0.0);
        fresh_segment(&schema.rule, key, &weights, row);
    }
    match schema.is_sound_row(key, row) {
        true => Ok(()),
        false => Err(Failure::input(format!(
            "{}: the values of key {key} cannot be a row of {} with weights of {}: they must be finite and within the \
             range of this type, and state must be one that this rule makes",
            args.file.display(),
            schema.rule.name(),
            schema.row_type().name()
        ))),
    }
}

/// Reads to the end of an array, where an archive checks its checksum.
fn ended(args: &ImportArgs, array: &mut dyn Read) -> Result<(), Failure> {
    match array.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => {
            Err(Failure::input(format!("{}: an array is longer than its head says", args.file.display())))
        }
        Err(error) => Err(unreadable(&args.file, &error)),
    }
}
