//! The threads that ask followers all the time, and check every answer.

use super::data::{Counts, LIVES};
use super::http::{Answer, Client};
use super::pusher::Life;
use super::state::{FollowerState, SLACK, State};
use std::io::Result;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// `--max-age` of the followers.
pub const MAX_AGE: Duration = Duration::from_secs(3);

/// An age, which was read between two moments.
pub struct Reading {
    asked: Instant,
    answered: Instant,
    age: Duration,
}

impl Reading {
    fn take(client: &mut Client) -> Result<Reading> {
        let asked = Instant::now();
        let page = client.get("/metrics")?.text;
        let answered = Instant::now();
        let line = page.lines().find(|line| line.starts_with("gannet_serve_model_age_seconds{"));
        let age = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        let age = age.ok_or_else(|| std::io::Error::other(format!("no age: {page}")))?;
        Ok(Reading { asked, answered, age: Duration::from_secs_f64(age) })
    }

    /// The moment of the servers whose rows are there, at the earliest and at the latest.
    fn rows_of(&self) -> Option<(Instant, Instant)> {
        Some((self.asked.checked_sub(self.age)?, self.answered.checked_sub(self.age)?))
    }
}

/// Does this until the round ends, while the follower lives. A connection may break only when the follower was killed.
fn while_up(state: &State, which: usize, pause: Duration, mut work: impl FnMut(&mut Client) -> Result<()>) {
    let follower = &state.followers[which];
    let (mut client, mut of_death) = (Client::new(&follower.addr), u64::MAX);
    while !state.stop.load(SeqCst) {
        let deaths = follower.deaths.load(SeqCst);
        if follower.is_down.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        if deaths != of_death {
            (client, of_death) = (Client::new(&follower.addr), deaths);
        }
        if let Err(error) = work(&mut client) {
            if follower.deaths.load(SeqCst) == deaths {
                state.is_wrong(format!("follower {which} lives and does not answer: {error}"));
            }
            client = Client::new(&follower.addr);
        }
        std::thread::sleep(pause);
    }
}

/// Asks for predictions, and checks each answer between two readings of the age.
pub fn ask(
    state: &State,
    which: usize,
    question: &str,
    check: impl Fn(&Answer, &Reading, &Reading) -> std::result::Result<(), String>,
) {
    while_up(state, which, Duration::from_millis(4), |client| {
        let before = Reading::take(client)?;
        let answer = client.predict(question)?;
        let after = Reading::take(client)?;
        if answer.status != 200 {
            let Answer { status, text, .. } = answer;
            state.is_wrong(format!("follower {which} refuses a request: {status} {text}"));
            return Ok(());
        }
        let checked = check(&answer, &before, &after);
        if let Err(why) = checked {
            state.is_wrong(format!("follower {which}: {why}"));
        }
        Ok(())
    });
}

/// Holds counts against all that is known.
pub fn check_counts(
    state: &State,
    which: usize,
    Answer { version, text, .. }: &Answer,
    before: &Reading,
    after: &Reading,
) -> std::result::Result<(), String> {
    let counts = state.take(which, version, text)?;
    has_no_more_than_was_sent(state, &counts)?;
    let life = has_what_was_acknowledged(state, &counts, before, after)?;
    life.map_or(Ok(()), |life| state.take_in_life(which, life, text, &counts))
}

/// Nothing is in an answer that had not been sent.
fn has_no_more_than_was_sent(state: &State, counts: &Counts) -> std::result::Result<(), String> {
    let lives = state.lives.lock().unwrap();
    for life in 0..LIVES {
        let sent = lives.get(life).map_or(0, |life| life.sent.load(SeqCst));
        if counts.lives[life].first > sent {
            return Err(format!("it has {:?} of life {life}, and {sent} were sent", counts.lives[life]));
        }
    }
    Ok(())
}

/// An answer has all that was acknowledged when its rows were on the servers, as its age says. Returns in which life of
/// the rows that was.
fn has_what_was_acknowledged(
    state: &State,
    counts: &Counts,
    before: &Reading,
    after: &Reading,
) -> std::result::Result<Option<usize>, String> {
    let (Some((from, _)), Some((_, to))) = (before.rows_of(), after.rows_of()) else { return Ok(None) };
    let lives = state.lives.lock().unwrap();
    // If the rows were restored between the two readings, both lives may answer.
    let Some(number) = lives.iter().position(|life| life.has(from) && life.has(to)) else { return Ok(None) };
    let (life, at) = (&lives[number], from.checked_sub(SLACK).unwrap_or(from));
    let (pushed, trained) = (Life::until(&life.acked, at), Life::until(&life.trained, at));
    let (has, records) = (counts.lives[number].first, counts.groups.iter().sum::<u64>());
    if has < pushed || records < trained {
        return Err(format!(
            "its age is {:?}, and it has {has} of {pushed} pushes of life {number}, {records} of {trained} records",
            before.age
        ));
    }
    state.dated.fetch_add(1, SeqCst);
    Ok(Some(number))
}

/// Reads how old a follower says that it is, and whether it is ready.
pub fn watch(state: &State, which: usize) {
    while_up(state, which, Duration::from_millis(20), |client| {
        let before = Reading::take(client)?;
        let ready = client.get("/readyz")?.status;
        let after = Reading::take(client)?;
        let follower = &state.followers[which];
        for reading in [&before, &after] {
            if let Err(why) = is_as_old_as_the_fault(follower, reading) {
                state.is_wrong(format!("follower {which}: {why}"));
            }
        }
        if let Err(why) = is_ready_in_time(&before, ready, &after) {
            state.is_wrong(format!("follower {which}: {why}"));
        }
        *follower.rows_of.lock().unwrap() = before.rows_of().map(|(from, _)| from);
        state.readings.fetch_add(1, SeqCst);
        Ok(())
    });
}

/// Nothing new can reach a follower whose servers are gone: its rows are of the time before.
fn is_as_old_as_the_fault(follower: &FollowerState, reading: &Reading) -> std::result::Result<(), String> {
    let Some((rows_of, _)) = reading.rows_of() else { return Ok(()) };
    let cut_off = follower.cut_off.lock().unwrap();
    for (from, to) in cut_off.iter() {
        let is_within = reading.asked >= *from && to.is_none_or(|to| reading.answered <= to);
        if is_within && rows_of > *from + SLACK {
            let (age, real) = (reading.age, reading.asked - *from);
            return Err(format!("its age is {age:?}, and its servers have been gone for {real:?}"));
        }
    }
    Ok(())
}

/// `/readyz` says 503 beyond `--max-age`, and 200 within it.
fn is_ready_in_time(before: &Reading, ready: u16, after: &Reading) -> std::result::Result<(), String> {
    let between = after.answered - before.asked;
    let is_old = before.age > MAX_AGE && after.age > before.age;
    let is_new = before.age + between < MAX_AGE && after.age < MAX_AGE;
    match ready {
        200 if !is_old => Ok(()),
        503 if !is_new => Ok(()),
        _ => Err(format!("/readyz is {ready} at the age {:?}, then {:?}", before.age, after.age)),
    }
}
