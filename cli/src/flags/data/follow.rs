//! Data that grows while it is trained.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The order of the files of a growing folder.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowOrder {
    /// By their names.
    #[default]
    Name,
    /// By the times when they were last written.
    Time,
}

/// A folder that grows, and when its training ends.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Data")]
pub struct FollowArgs {
    /// Train the files of this folder, and those that are added to it later, each one once, until the process is
    /// stopped (SIGTERM). It takes the place of DATA. Names that begin with . or _, or end in .tmp, .part, .partial,
    /// .crdownload or .filepart, are not read: write a file under such a name and rename it.
    #[arg(long, value_name = "DIR")]
    pub follow: Option<PathBuf>,
    /// With --follow: the order of the files that are there together.
    #[arg(long, value_enum, default_value = "name")]
    pub follow_order: FollowOrder,
    /// With --follow or a topic of Kafka: end with what is there at the start.
    #[arg(long)]
    pub until_end: bool,
    /// With --follow or a topic of Kafka: end with what was written until TIME, such as 2026-11-28T20:00:00Z or seconds
    /// since 1970.
    #[arg(long, value_name = "TIME", conflicts_with = "until_end", value_parser = time)]
    pub until: Option<u64>,
    /// With a topic of Kafka: properties of librdkafka, one NAME=VALUE a line, that say how to reach the brokers (TLS)
    /// and as whom (SASL). Only its owner may have access to the file.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub kafka_config: Option<PathBuf>,
    /// The topic of Kafka that DATA names. It is taken out of DATA before anything looks for files.
    #[arg(skip)]
    pub topic: Option<String>,
}

impl FollowArgs {
    /// Whether the data grows.
    pub fn grows(&self) -> bool {
        self.follow.is_some() || self.topic.is_some()
    }
}

/// Parses a time: nanoseconds since 1970.
fn time(text: &str) -> Result<u64, String> {
    let why = || format!("{text}: a time such as 2026-11-28T20:00:00Z is needed, or seconds since 1970");
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => of_date(text).ok_or_else(why)?,
    };
    seconds.checked_mul(1_000_000_000).ok_or_else(why)
}

/// The seconds since 1970 of a date and a time in UTC, as in RFC 3339.
fn of_date(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['Z', 'z'])?;
    let (date, clock) = text.split_once(['T', 't', ' '])?;
    let numbers = |text: &str, between: char, lengths: [usize; 3]| -> Option<[u64; 3]> {
        let parts: Vec<&str> = text.split(between).collect();
        let is_number = |(part, length): (&&str, usize)| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let sound = parts.len() == 3 && parts.iter().zip(lengths).all(is_number);
        let number = |at: usize| parts[at].parse().ok();
        if sound { Some([number(0)?, number(1)?, number(2)?]) } else { None }
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days_of = |month: u64| match month {
        2 => 28 + u64::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let sound = year >= 1970 && (1..=12).contains(&month) && (1..=days_of(month.clamp(1, 12))).contains(&day);
    if !(sound && hour < 24 && minute < 60 && second < 61) {
        return None;
    }
    let years: u64 = (1970..year).map(|year| 365 + u64::from(leap(year))).sum();
    let days = years + (1..month).map(days_of).sum::<u64>() + day - 1;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_utc_or_as_seconds() {
        assert_eq!(time("1700000000"), Ok(1_700_000_000_000_000_000));
        assert_eq!(time("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000_000_000));
        assert_eq!(time("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(time("2024-02-29 00:00:00Z"), Ok(1_709_164_800_000_000_000));
        let wrong = ["", "yesterday", "2023-02-29T00:00:00Z", "2023-13-01T00:00:00Z", "2023-11-14T24:00:00Z"];
        let wrong = wrong.into_iter().chain(["2023-11-14", "2023-11-14T22:13:20", "-1", "99999999999999"]);
        wrong.for_each(|text| assert!(time(text).unwrap_err().contains("is needed"), "{text}"));
    }
}
