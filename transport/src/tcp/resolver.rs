//! Names become addresses on threads of their own. The thread of all links never waits for a name server: it uses what
//! is known, and asks again in the background.

use crate::error::NetError;
use crate::limits::{LOOKUP_FRESH, LOOKUPS_MAX, NAMES_IDLE, NAMES_KNOWN};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Looks a name up, however long that takes.
type Lookup = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// What is known of a name.
#[derive(Default)]
struct KnownName {
    /// The last addresses, and why the last look-up failed, if it did.
    addresses: Vec<SocketAddr>,
    failure: Option<(io::ErrorKind, String)>,
    /// When the last look-up ended.
    ended: Option<Instant>,
    /// When the look-up that runs now has begun.
    begun: Option<Instant>,
}

struct ResolverShared {
    names: Mutex<HashMap<String, KnownName>>,
    changed: Condvar,
    lookup: Box<Lookup>,
}

/// See the module. A clone shares what is known.
#[derive(Clone)]
pub(crate) struct Resolver {
    shared: Arc<ResolverShared>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

impl Default for Resolver {
    fn default() -> Resolver {
        Resolver::with(|addr: &str| addr.to_socket_addrs().map(Iterator::collect))
    }
}

impl Resolver {
    fn with(lookup: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Resolver {
        let (names, changed, lookup) = (Mutex::default(), Condvar::new(), Box::new(lookup));
        Resolver { shared: Arc::new(ResolverShared { names, changed, lookup }) }
    }

    /// The addresses of a name with a port, as far as they are known, without waiting. If what is known is older than
    /// [`LOOKUP_FRESH`], a look-up begins in the background: the next call has its result. So a server that comes back
    /// at another address is found.
    ///
    /// # Errors
    /// Nothing is known yet: the look-up runs, or it has failed.
    pub(crate) fn known(&self, addr: &str) -> Result<Vec<SocketAddr>, NetError> {
        self.state(addr).0
    }

    /// As [`Resolver::known`], and whether a look-up of the name runs or waits for others.
    fn state(&self, addr: &str) -> (Result<Vec<SocketAddr>, NetError>, bool) {
        if let Ok(numeric) = addr.parse() {
            return (Ok(vec![numeric]), false);
        }
        self.refresh(addr);
        let names = self.names();
        let known = names.get(addr);
        if let Some(known) = known.filter(|known| !known.addresses.is_empty()) {
            return (Ok(known.addresses.clone()), known.begun.is_some());
        }
        let begun = known.and_then(|known| known.begun);
        let source = match (known.and_then(|known| known.failure.as_ref()), begun) {
            (Some((kind, why)), _) => io::Error::new(*kind, why.clone()),
            (None, Some(begun)) => {
                let seconds = begun.elapsed().as_secs_f64();
                let text = format!("the name server has not answered for {seconds:.1} s");
                io::Error::new(io::ErrorKind::WouldBlock, text)
            }
            (None, None) => io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{LOOKUPS_MAX} other names are being looked up"),
            ),
        };
        let pending = begun.is_some() || source.kind() == io::ErrorKind::WouldBlock;
        (Err(NetError::Address { addr: addr.to_owned(), source }), pending)
    }

    /// The addresses of a name with a port. While none are known, waits for the look-up that runs, at most until
    /// `give_up`.
    ///
    /// # Errors
    /// The look-up fails, or takes too long.
    pub(crate) fn wait(&self, addr: &str, give_up: Instant) -> Result<Vec<SocketAddr>, NetError> {
        loop {
            let (known, pending) = self.state(addr);
            let left = give_up.saturating_duration_since(Instant::now());
            if known.is_ok() || !pending || left.is_zero() {
                return known;
            }
            let names = self.names();
            // Also a look-up that could not begin may begin then.
            let pause = left.min(Duration::from_millis(50));
            drop(self.shared.changed.wait_timeout(names, pause));
        }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, KnownName>> {
        self.shared.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look a name up, unless that has just ended, or runs.
    fn refresh(&self, addr: &str) {
        let mut names = self.names();
        if names.len() >= NAMES_KNOWN {
            names.retain(|_, known| known.ended.is_none_or(|ended| ended.elapsed() < NAMES_IDLE));
        }
        let running = names.values().filter(|known| known.begun.is_some()).count();
        let known = names.entry(addr.to_owned()).or_default();
        let is_fresh = known.ended.is_some_and(|ended| ended.elapsed() < LOOKUP_FRESH);
        if is_fresh || known.begun.is_some() || running >= LOOKUPS_MAX {
            return;
        }
        known.begun = Some(Instant::now());
        drop(names);
        let (shared, name) = (self.shared.clone(), addr.to_owned());
        let look = move || shared.note(&name, (shared.lookup)(&name));
        if let Err(error) = std::thread::Builder::new().name("gannet-names".into()).spawn(look) {
            let text = format!("the system gives no thread to look the name up: {error}");
            self.shared.note(addr, Err(io::Error::other(text)));
        }
    }
}

impl ResolverShared {
    /// A look-up has ended.
    fn note(&self, addr: &str, found: io::Result<Vec<SocketAddr>>) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.entry(addr.to_owned()).or_default();
        (known.begun, known.ended) = (None, Some(Instant::now()));
        match found {
            Ok(addresses) if !addresses.is_empty() => {
                if !known.addresses.is_empty() && known.addresses != addresses {
                    tracing::warn!(name = addr, ?addresses, "a name has other addresses now");
                }
                (known.addresses, known.failure) = (addresses, None);
            }
            // Old addresses may still be right: a name server that is away must not end a job.
            Ok(_) => known.failure = Some((io::ErrorKind::NotFound, "the name has no address".into())),
            Err(error) => known.failure = Some((error.kind(), error.to_string())),
        }
        drop(names);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LIMIT: Duration = Duration::from_secs(20);

    fn at(port: u16) -> Vec<SocketAddr> {
        vec![SocketAddr::from(([127, 0, 0, 1], port))]
    }

    /// Gives a name server its next answer, by name.
    type Answers = HashMap<&'static str, Sender<io::Result<Vec<SocketAddr>>>>;

    /// A resolver whose name server answers when the test says so, each name with the next of its answers.
    fn scripted(names: &[&'static str]) -> (Resolver, Answers) {
        let (mut say, mut answers) = (HashMap::new(), HashMap::new());
        for &name in names {
            let (sender, receiver) = channel();
            say.insert(name, sender);
            answers.insert(name, Mutex::new(receiver));
        }
        let lookup = move |addr: &str| {
            let answers: &Mutex<Receiver<_>> = &answers[addr];
            let next = answers.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LIMIT);
            next.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        };
        (Resolver::with(lookup), say)
    }

    fn soon(resolver: &Resolver, addr: &str, want: &[SocketAddr]) {
        let begin = Instant::now();
        while resolver.known(addr).ok().as_deref() != Some(want) {
            assert!(begin.elapsed() < LIMIT, "{:?}", resolver.known(addr));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// One name took 5 s, and all links of the worker stood still.
    #[test]
    fn a_name_that_is_looked_up_delays_nobody_else() {
        let (resolver, say) = scripted(&["slow:1", "fast:1"]);
        let why = resolver.known("slow:1").unwrap_err().to_string();
        assert!(why.contains("slow:1") && why.contains("has not answered"), "{why}");
        say["fast:1"].send(Ok(at(7))).unwrap();
        soon(&resolver, "fast:1", &at(7));
        assert_eq!(resolver.known("127.0.0.1:9").unwrap(), at(9), "nobody is asked about a number");
        assert!(resolver.known("slow:1").is_err());
        say["slow:1"].send(Ok(at(8))).unwrap();
        assert_eq!(resolver.wait("slow:1", Instant::now() + LIMIT).unwrap(), at(8));
    }

    #[test]
    fn an_address_that_changes_is_followed_and_kept_while_nobody_answers() {
        let (resolver, say) = scripted(&["ps:1"]);
        say["ps:1"].send(Ok(at(1))).unwrap();
        assert_eq!(resolver.wait("ps:1", Instant::now() + LIMIT).unwrap(), at(1));
        say["ps:1"].send(Err(io::Error::other("no name server"))).unwrap();
        say["ps:1"].send(Ok(at(2))).unwrap();
        // Each call begins the next look-up when the last one is old.
        soon(&resolver, "ps:1", &at(2));
        assert_eq!(resolver.known("ps:1").unwrap(), at(2));
    }

    #[test]
    fn a_wait_for_a_name_ends() {
        let (resolver, say) = scripted(&["silent:1", "unknown:1"]);
        let begin = Instant::now();
        let why = resolver.wait("silent:1", begin + Duration::from_millis(80)).unwrap_err().to_string();
        assert!(begin.elapsed() < LIMIT && why.contains("has not answered"), "{why}");
        say["unknown:1"].send(Err(io::Error::new(io::ErrorKind::NotFound, "no such host"))).unwrap();
        let why = resolver.wait("unknown:1", Instant::now() + LIMIT).unwrap_err().to_string();
        assert!(why.contains("no such host"), "{why}");
    }

    /// A new look-up ran, and the wait returned the failure of the one before.
    #[test]
    fn a_wait_is_for_the_look_up_that_runs_now() {
        let (resolver, say) = scripted(&["ps:1"]);
        say["ps:1"].send(Err(io::Error::other("no name server"))).unwrap();
        resolver.wait("ps:1", Instant::now() + LIMIT).unwrap_err();
        std::thread::sleep(LOOKUP_FRESH);
        resolver.known("ps:1").unwrap_err();
        let say = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            say["ps:1"].send(Ok(at(2))).unwrap();
            say
        });
        assert_eq!(resolver.wait("ps:1", Instant::now() + LIMIT).unwrap(), at(2));
        drop(say.join().unwrap());
    }

    /// The threads that wait for name servers are bounded.
    #[test]
    fn few_names_are_looked_up_at_once() {
        let names: Vec<&'static str> =
            (0..LOOKUPS_MAX + 1).map(|n| &*Box::leak(format!("n{n}:1").into_boxed_str())).collect();
        let (resolver, say) = scripted(&names);
        names.iter().for_each(|name| assert!(resolver.known(name).is_err()));
        let last = names[LOOKUPS_MAX];
        assert!(resolver.known(last).unwrap_err().to_string().contains("other names are being looked up"));
        names.iter().for_each(|name| say[name].send(Ok(at(3))).unwrap());
        assert_eq!(resolver.wait(last, Instant::now() + LIMIT).unwrap(), at(3));
    }
}
