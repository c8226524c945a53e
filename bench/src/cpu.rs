//! CPU time of a process, as the system counts it.

use std::fs::read_to_string;
use std::io;

/// CPU seconds of all threads of a process so far, user and system, in steps of a tick (10 ms on most systems).
///
/// # Errors
/// There is no such process, or /proc is not readable.
pub fn cpu_seconds(process: u32) -> io::Result<f64> {
    let text = read_to_string(format!("/proc/{process}/stat"))?;
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{process}/stat: {text:?}"));
    // See proc(5): utime and stime are the 12th and 13th field after the name, which may contain blanks and brackets.
    let (_, fields) = text.rsplit_once(')').ok_or_else(nonsense)?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().ok());
    let ticks = ticks.sum::<Option<u64>>().ok_or_else(nonsense)?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::cpu_seconds;
    use std::time::Instant;

    #[test]
    fn time_that_is_spent_is_counted() {
        let own = std::process::id();
        let (before, begun) = (cpu_seconds(own).unwrap(), Instant::now());
        // Takes as long as it needs: other processes may use the cores.
        while cpu_seconds(own).unwrap() < before + 0.05 {
            assert!(begun.elapsed().as_secs() < 60, "no CPU time is counted");
        }
        assert!(begun.elapsed().as_secs_f64() * 64.0 > 0.05);
        assert!(cpu_seconds(u32::MAX).is_err());
    }
}
