//! Kill points, with the feature `kill-points`: a test makes the process send itself SIGKILL at the n-th point
//! that it passes. So a test can kill the process between any two stores that matter. Without the feature, kill
//! points do nothing.

/// A place where the process may be killed in a test.
#[macro_export]
#[doc(hidden)]
macro_rules! kill_point {
    () => {
        #[cfg(feature = "kill-points")]
        $crate::kill::point();
    };
}

#[cfg(feature = "kill-points")]
mod armed {
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

    static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

    /// Kills this process with SIGKILL at the `n`-th next kill point.
    pub fn after(n: i64) {
        LEFT.store(n, Relaxed);
    }

    /// Kill points left until the kill.
    pub fn left() -> i64 {
        LEFT.load(Relaxed)
    }

    #[doc(hidden)]
    pub fn point() {
        if LEFT.fetch_sub(1, Relaxed) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

#[cfg(feature = "kill-points")]
pub use armed::{after, left, point};
