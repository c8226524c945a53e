//! `gannet checkpoint prune`: removes old checkpoints.

use crate::checkpoint_place::open_checkpoints;
use crate::failure::Failure;
use crate::flags::PruneArgs;

/// Runs the command.
pub fn run_prune(args: &PruneArgs) -> Result<(), Failure> {
    let directory = open_checkpoints(&args.dir)?;
    let plan = if args.dry_run { directory.prune_plan(args.keep)? } else { directory.prune(args.keep)? };
    let (removed, stay) = match args.dry_run {
        true => ("would remove", "would keep"),
        false => ("removed", "kept"),
    };
    say!("{removed}: {}", numbers(&plan.removed));
    say!("{stay}: {}", numbers(&plan.kept));
    if !plan.unfinished.is_empty() {
        say!("not finished, perhaps in progress: {}", numbers(&plan.unfinished));
    }
    if !plan.damaged.is_empty() {
        let damaged = numbers(&plan.damaged);
        say!(
            "damaged, left as they are: {damaged} (`gannet checkpoint ls` says why; remove their folders by hand)"
        );
    }
    Ok(())
}

fn numbers(all: &[u64]) -> String {
    let all: Vec<String> = all.iter().map(u64::to_string).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}
