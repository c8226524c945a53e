//! `gannet checkpoint export`: the rows of a table as a file of arrays or of text. Memory holds a block of rows.

use crate::checkpoint::arrays::ArrayFiles;
use crate::checkpoint::chain::{LOOKS_MAX, chain, newest};
use crate::checkpoint::target::Target;
use crate::checkpoint::{npz, safetensors};
use crate::checkpoint_place::open_checkpoints;
use crate::failure::{Failure, SYSTEM};
use crate::flags::{ArraysName, ExportArgs};
use gannet::storage::{CheckpointDir, JobManifest, TableCut};
use gannet::train::saved::weights_of_row;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

/// Runs the command.
pub fn run_export(args: &ExportArgs) -> Result<(), Failure> {
    let directory = open_checkpoints(&args.dir)?;
    let (number, target) = number_and_file(args)?;
    for _ in 1..LOOKS_MAX {
        match export(args, &directory, (number, target)) {
            Err(failure) if failure.pruned && number.is_none() && Target::is_file(target) => {}
            ended => return ended,
        }
    }
    export(args, &directory, (number, target))
}

/// Exports the checkpoint with this number, or the newest.
fn export(
    args: &ExportArgs,
    directory: &CheckpointDir,
    (number, target): (Option<u64>, &Path),
) -> Result<(), Failure> {
    let chain = chain(directory, number)?;
    let manifest = newest(&chain)?;
    let Some((_, table)) = manifest.table(&args.table) else {
        let names: Vec<&str> = manifest.tables.iter().map(|table| table.schema.name.as_str()).collect();
        let (number, names) = (manifest.number, names.join(", "));
        return Err(Failure::input(format!(
            "--table {}: checkpoint {number} has no such table; it has {names}",
            args.table
        )));
    };
    let mut out = Target::open(target)?;
    let rows = write(args, directory, (&chain, table), (&mut out, target))?;
    let is_stdout = out.is_stdout();
    out.end().map_err(failed("writing", target))?;
    let (number, file) = (manifest.number, target.display());
    let what = if args.state { "rows with the optimizer's state" } else { "rows of weights" };
    match is_stdout {
        true => notice!("gannet: {rows} {what} of table {} in checkpoint {number}", args.table),
        false => say!("{rows} {what} of table {} in checkpoint {number}: {file}", args.table),
    }
    Ok(())
}

/// The words after DIR: `[N] FILE`.
fn number_and_file(args: &ExportArgs) -> Result<(Option<u64>, &Path), Failure> {
    match &args.number_and_file[..] {
        [file] => Ok((None, file)),
        [number, file] => match number.to_str().and_then(|number| number.parse().ok()) {
            Some(number) => Ok((Some(number), file)),
            None => Err(Failure::input(format!(
                "{} is no number of a checkpoint: say DIR FILE, or DIR N FILE",
                number.display()
            ))),
        },
        _ => Err(Failure::input("say DIR FILE, or DIR N FILE")),
    }
}

fn failed<'a>(what: &'a str, path: &'a Path) -> impl Fn(io::Error) -> Failure + 'a {
    move |error| Failure::new(SYSTEM, format!("{what} {}: {error}", path.display()))
}

/// Writes all rows. Returns their number.
fn write(
    args: &ExportArgs,
    directory: &CheckpointDir,
    (chain, table): (&[JobManifest], &TableCut),
    (out, target): (&mut Target, &Path),
) -> Result<u64, Failure> {
    let schema = &table.schema;
    let width = if args.state { schema.f32_floats() } else { schema.weights() };
    let writing = failed("writing", target);
    let mut count = 0;
    if args.format == ArraysName::Text {
        let mut out = BufWriter::with_capacity(1 << 20, out.writer());
        let mut text = String::new();
        each_block((args, target), directory, (chain, table), |keys, values| {
            text.clear();
            for (key, row) in keys.iter().zip(values.chunks_exact(width)) {
                let _ = write!(text, "{key}");
                row.iter().for_each(|value| {
                    let _ = write!(text, " {value}");
                });
                text.push('\n');
            }
            count += keys.len() as u64;
            out.write_all(text.as_bytes())
        })?;
        return out.flush().map(|()| count).map_err(writing);
    }
    // The arrays follow each other in the file, and rows come together: they wait in files without a name.
    let spool = |out: &Target| out.spool().map_err(failed("making a file for the rows of", target));
    let (mut keys_out, mut values_out) = (spool(out)?, spool(out)?);
    let mut bytes = Vec::new();
    each_block((args, target), directory, (chain, table), |keys, values| {
        count += keys.len() as u64;
        bytes.clear();
        bytes.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
        keys_out.write_all(&bytes)?;
        bytes.clear();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        values_out.write_all(&bytes)
    })?;
    let both = keys_out.rewind().and_then(|()| values_out.rewind());
    both.map_err(&writing)?;
    let arrays = ArrayFiles { rows: count, width, keys: keys_out, values: values_out };
    let put = |file: &File, arrays| match args.format {
        ArraysName::Npz => npz::write(file, arrays),
        _ => safetensors::write(file, arrays),
    };
    let written = match out.file() {
        Some(file) => put(file, arrays),
        None => {
            let mut whole = spool(out)?;
            put(&whole, arrays)
                .and_then(|()| whole.rewind())
                .and_then(|()| io::copy(&mut whole, &mut out.writer()).map(drop))
        }
    };
    written.map(|()| count).map_err(writing)
}

/// Calls `put` with all rows of a table, shard by shard: keys, and the exported values of each.
fn each_block(
    (args, target): (&ExportArgs, &Path),
    directory: &CheckpointDir,
    (chain, table): (&[JobManifest], &TableCut),
    mut put: impl FnMut(&[u64], &[f32]) -> io::Result<()>,
) -> Result<(), Failure> {
    let (schema, floats) = (&table.schema, table.schema.floats());
    let (mut done, mut values) = (Ok(()), Vec::new());
    for shard in 0..schema.shards {
        directory.shard_rows(chain, &schema.name, shard, |keys, rows| {
            if done.is_err() {
                return;
            }
            values.clear();
            rows.chunks_exact(floats).for_each(|row| match args.state {
                true => schema.put_f32_row(row, &mut values),
                false => weights_of_row(schema, row, &mut values),
            });
            done = put(keys, &values);
        })?;
        std::mem::replace(&mut done, Ok(())).map_err(failed("writing", target))?;
    }
    Ok(())
}
