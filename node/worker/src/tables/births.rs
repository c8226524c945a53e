//! Whether the shards of a table at all servers belong together. Servers that restore the same checkpoint give its
//! tables the same id. But a server that restores it once more, beside servers that went on, has rows of an earlier
//! time.

use crate::error::WorkerError;
use gannet_core::{ShardSet, mix};

/// The births of all shards of a table as one number, never 0.
pub(crate) fn in_one(births: &[u64]) -> u64 {
    births.iter().fold(0, |all, birth| mix(all ^ birth)).max(1)
}

/// Refuses shards of which some have gone on together with others than those that are there now. `told`: for each
/// thread, its server and what it was told of all births; 0: nothing since its shards were made. `own`: the shards of a
/// server.
pub(crate) fn must_be_together(
    table: &str,
    addrs: &[String],
    all_births: u64,
    told: &[(usize, u64)],
    own: impl Fn(usize) -> ShardSet,
) -> Result<(), WorkerError> {
    let has_gone_on =
        |server: &usize| told.iter().any(|&(of, told)| of == *server && ![0, all_births].contains(&told));
    let (gone_on, anew): (Vec<usize>, Vec<usize>) = (0..addrs.len()).partition(has_gone_on);
    if gone_on.is_empty() {
        return Ok(());
    }
    let named = |servers: &[usize]| servers.iter().map(|&at| &*addrs[at]).collect::<Vec<_>>().join(", ");
    let lost = ShardSet::of(anew.iter().flat_map(|&at| own(at).iter().collect::<Vec<_>>()));
    let (who, lost) = match lost.is_empty() {
        false => (format!("{} made them anew", named(&anew)), lost.to_string()),
        // Each of them was opened together with other shards than those of the others.
        true => ("these servers made them anew at different times".into(), "some shards".into()),
    };
    Err(WorkerError::Gone(format!(
        "table {table:?}: the rows of {lost} are gone: {who}, as by restoring a checkpoint once more, and {} went on with \
         the rows of before; end all processes of the job, empty the --data-dir of every ps, and start them again, so \
         that all servers restore one checkpoint",
        named(&gone_on)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_went_on_beside_new_shards_are_told_from_the_new_ones() {
        let addrs = ["h0:1".to_owned(), "h1:1".to_owned()];
        let births = in_one(&[5, 6, 7, 8]);
        let check = |told: &[(usize, u64)]| {
            let own = |server| share_of(server);
            must_be_together("t", &addrs, births, told, own).map_err(|error| error.to_string())
        };
        // Restored, opened once, and opened by a worker that died before it had told all threads.
        assert_eq!(check(&[(0, 0), (0, 0), (1, 0)]), Ok(()));
        assert_eq!(check(&[(0, births), (0, births), (1, births)]), Ok(()));
        assert_eq!(check(&[(0, births), (0, 0), (1, 0)]), Ok(()));
        // In the second life of one server, the other remembers the first.
        let before = in_one(&[5, 6, 70, 80]);
        assert_ne!(before, births);
        let gone = check(&[(0, before), (0, before), (1, 0)]).unwrap_err();
        assert!(
            gone.contains("the rows of shards 2 to 3 are gone: h1:1 made") && gone.contains("h0:1 went on"),
            "{gone}"
        );
        let gone = check(&[(0, births), (1, before)]).unwrap_err();
        assert!(gone.contains("shards 0 to 1 are gone: h0:1"), "{gone}");
        let both = check(&[(0, before), (1, before + 1)]).unwrap_err();
        assert!(both.contains("some shards") && both.contains("h0:1, h1:1"), "{both}");
        assert_ne!(in_one(&[]), 0);
    }

    fn share_of(server: usize) -> ShardSet {
        let first = 2 * server as u32;
        (first..first + 2).into()
    }
}
