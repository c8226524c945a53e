//! Which keys get a row: `--admit-count`, `--admit-probability`.

use clap::Args;
use gannet::table::{Admission, SKETCH_BYTES_DEFAULT};

/// Which push of a key creates its row. By default it is the first one.
#[derive(Args, Debug, Clone)]
pub struct AdmissionArgs {
    /// Create a key's row at its N-th push, so that rare keys take no memory. A batch pushes each of its keys once.
    #[arg(long, value_name = "N", conflicts_with = "admit_probability", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub admit_count: Option<u32>,
    /// With --admit-count: KiB of memory for the counts of each of the table's 64 shards (1 to 1024).
    #[arg(long, value_name = "KIB", requires = "admit_count", default_value_t = SKETCH_BYTES_DEFAULT >> 10, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub admit_sketch: u32,
    /// Each push of a key without a row creates it with probability P (above 0, at most 1).
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub admit_probability: Option<f32>,
}

/// A probability that is not 0.
fn probability(text: &str) -> Result<f32, String> {
    let p = text.parse().ok().filter(|p: &f32| *p > 0.0 && *p <= 1.0);
    p.ok_or_else(|| "a number above 0 and at most 1 is needed".to_owned())
}

impl AdmissionArgs {
    /// Whether one of these flags was given.
    pub fn is_given(&self) -> bool {
        self.admit_count.is_some() || self.admit_probability.is_some()
    }

    /// The schema's admission. Its parameters are checked with the schema.
    pub fn admission(&self) -> Admission {
        match (self.admit_count, self.admit_probability) {
            (Some(pushes), _) if pushes > 1 => {
                Admission::Count { pushes, sketch_bytes: self.admit_sketch << 10 }
            }
            (None, Some(p)) if p != 1.0 => Admission::Probability(p),
            _ => Admission::All,
        }
    }
}
