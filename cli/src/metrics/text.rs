//! Metrics as Prometheus text (exposition format 0.0.4). Families are sorted by name, samples by labels. If a sample
//! is written twice, the values are added.

use gannet::metrics::{BUCKETS, Buckets, MetricsSink};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The first bucket of a histogram ends at 2^10 ns. Shorter times are counted in it.
const FIRST: usize = 10;

enum Sample {
    Value(f64),
    Times(Box<Buckets>),
}

struct Family {
    kind: &'static str,
    help: &'static str,
    /// The samples, by the text of their labels.
    samples: BTreeMap<String, Sample>,
}

/// A page of metrics that becomes text.
#[derive(Default)]
pub struct TextPage {
    families: BTreeMap<&'static str, Family>,
}

impl TextPage {
    fn family(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> &mut Family {
        self.families.entry(name).or_insert_with(|| Family { kind, help, samples: BTreeMap::new() })
    }

    fn add(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        labels: Labels<'_>,
        by: f64,
    ) {
        let samples = &mut self.family(name, kind, help).samples;
        match samples.entry(written(labels)).or_insert(Sample::Value(0.0)) {
            Sample::Value(value) => *value += by,
            Sample::Times(_) => debug_assert!(false, "{name} is a histogram"),
        }
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            let _ = writeln!(text, "# HELP {name} {}", escape(family.help, false));
            let _ = writeln!(text, "# TYPE {name} {}", family.kind);
            for (labels, sample) in &family.samples {
                match sample {
                    Sample::Value(value) => line(&mut text, name, labels, *value),
                    Sample::Times(buckets) => times(&mut text, name, labels, buckets),
                }
            }
        }
        text
    }
}

type Labels<'a> = &'a [(&'static str, &'a str)];

impl MetricsSink for TextPage {
    fn counter(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.add(name, "counter", help, labels, value);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.add(name, "gauge", help, labels, value);
    }

    fn histogram(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, buckets: &Buckets) {
        let samples = &mut self.family(name, "histogram", help).samples;
        match samples.entry(written(labels)).or_insert_with(|| Sample::Times(Box::default())) {
            Sample::Times(sum) => sum.add(buckets),
            Sample::Value(_) => debug_assert!(false, "{name} is no histogram"),
        }
    }
}

/// `a="x",b="y"`
fn written(labels: Labels<'_>) -> String {
    let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escape(value, true));
    labels.iter().map(label).collect::<Vec<_>>().join(",")
}

fn escape(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

fn line(text: &mut String, name: &str, labels: &str, value: f64) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = match value {
        f64::INFINITY => writeln!(text, "{name}{open}{labels}{close} +Inf"),
        f64::NEG_INFINITY => writeln!(text, "{name}{open}{labels}{close} -Inf"),
        value => writeln!(text, "{name}{open}{labels}{close} {value}"),
    };
}

/// Buckets are cumulative: the last one counts everything.
fn times(text: &mut String, name: &str, labels: &str, buckets: &Buckets) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut count: u64 = buckets.counts[..FIRST].iter().sum();
    for (i, more) in buckets.counts.iter().enumerate().take(BUCKETS - 1).skip(FIRST) {
        count += more;
        let seconds = (1u64 << i) as f64 / 1e9;
        line(text, &format!("{name}_bucket"), &format!("{labels}{comma}le=\"{seconds}\""), count as f64);
    }
    let count = buckets.count() as f64;
    line(text, &format!("{name}_bucket"), &format!("{labels}{comma}le=\"+Inf\""), count);
    line(text, &format!("{name}_sum"), labels, buckets.sum_nanos as f64 / 1e9);
    line(text, &format!("{name}_count"), labels, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_the_format_says() {
        let mut page = TextPage::default();
        page.counter("b_total", "Two\nlines \\.", &[("table", "a\"\\\n")], 1.0);
        page.counter("b_total", "Two\nlines \\.", &[("table", "a\"\\\n")], 2.5);
        page.gauge("a", "One.", &[], f64::NAN);
        page.gauge("c", "Much.", &[], f64::INFINITY);
        assert_eq!(
            page.text(),
            "# HELP a One.\n# TYPE a gauge\na NaN\n\
             # HELP b_total Two\\nlines \\\\.\n# TYPE b_total counter\nb_total{table=\"a\\\"\\\\\\n\"} 3.5\n\
             # HELP c Much.\n# TYPE c gauge\nc +Inf\n"
        );
    }

    #[test]
    fn buckets_add_up() {
        let mut buckets = Buckets::default();
        for nanos in [5u64, 1024, 1025, 2_000_000_000, 30_000_000_000] {
            buckets.counts[gannet::metrics::bucket_of_nanos(nanos)] += 1;
            buckets.sum_nanos += nanos;
        }
        let mut page = TextPage::default();
        page.histogram("t_seconds", "T.", &[("kind", "x")], &buckets);
        let text = page.text();
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} in {text}");
        has("t_seconds_bucket{kind=\"x\",le=\"0.000001024\"} 2");
        has("t_seconds_bucket{kind=\"x\",le=\"0.000002048\"} 3");
        has("t_seconds_bucket{kind=\"x\",le=\"2.147483648\"} 4");
        has("t_seconds_bucket{kind=\"x\",le=\"17.179869184\"} 4");
        has("t_seconds_bucket{kind=\"x\",le=\"+Inf\"} 5");
        has("t_seconds_sum{kind=\"x\"} 32.000002054");
        has("t_seconds_count{kind=\"x\"} 5");
    }
}
