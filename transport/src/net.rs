//! How links are made and waited for, and what time it is: the network that servers, workers and schedulers use.

use crate::error::NetError;
use crate::remote::Registrar;
use crate::stream::Stream;
use std::sync::Arc;
use std::time::Duration;

/// What a wait found for one stream or listener. Each change is reported once: see [`crate::Link::note`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event {
    /// The token under which the stream or listener was added.
    pub token: u64,
    /// Bytes (or connections) have come.
    pub readable: bool,
    /// There is space to send again.
    pub writable: bool,
    /// The peer has ended or broken the connection.
    pub closed: bool,
}

/// A network. Servers, workers and schedulers are generic over it.
pub trait Net: Clone + 'static {
    /// Its connections.
    type Stream: Stream + 'static;
    /// Its listeners.
    type Listener: Listener<Stream = Self::Stream>;
    /// Its polls.
    type Poll: Poll<Stream = Self::Stream, Listener = Self::Listener, Waker = Self::Waker>;
    /// The type that wakes a poll from another thread.
    type Waker: Waker;

    /// Connects, waiting at most `timeout`.
    fn connect(&self, addr: &str, timeout: Duration) -> Result<Self::Stream, NetError>;
    /// Begins to connect without waiting for the peer. Sent bytes are transmitted when the peer has answered. A
    /// failure is reported like any end of a connection. `attempt` counts from 0; each attempt tries another
    /// address of the name. Names are looked up in the background: while nothing is known, the attempt fails.
    fn begin_connect(&self, addr: &str, attempt: usize) -> Result<Self::Stream, NetError>;
    /// Reports that the peer of this connection to `addr` has not proved that it is the server, and `why`.
    /// `true`: the next connection uses another transport, over which another process of the host cannot answer
    /// for the server.
    fn doubt(&self, _addr: &str, _stream: &Self::Stream, _why: &str) -> bool {
        false
    }
    /// Who is at the other end of this connection, and what to do if that is not the server: in words for a
    /// user. `None` where only the server can be there, as far as this host knows.
    fn who_answers(&self, _stream: &Self::Stream) -> Option<String> {
        None
    }
    /// Listens on an address; port 0 lets the system choose a port.
    fn listen(&self, addr: &str) -> Result<Self::Listener, NetError>;
    /// A poll for the calling thread.
    fn poll(&self) -> Result<Self::Poll, NetError>;
    /// The registrar that makes this process's memory readable by its peers, if the transport has one.
    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        None
    }
    /// Time since a fixed moment. It never decreases.
    fn now(&self) -> Duration;
}

/// Accepts connections.
pub trait Listener {
    /// Its connections.
    type Stream;
    /// The next connection, or `None` when none waits.
    fn accept(&mut self) -> Result<Option<Self::Stream>, NetError>;
    /// The address that it listens on, with the port that was chosen.
    fn addr(&self) -> &str;
}

/// Waits for many streams at once. It reports edges, not states.
pub trait Poll {
    /// The streams it waits for.
    type Stream;
    /// The listeners it waits for.
    type Listener;
    /// The type that wakes it.
    type Waker;
    /// Watches a stream; `token` (not `u64::MAX`) names it in events. Dropping the stream ends the watch.
    fn add(&mut self, stream: &Self::Stream, token: u64) -> Result<(), NetError>;
    /// Stops watching a stream that stays open.
    fn remove(&mut self, stream: &Self::Stream) -> Result<(), NetError>;
    /// Watches a listener.
    fn add_listener(&mut self, listener: &Self::Listener, token: u64) -> Result<(), NetError>;
    /// A handle that ends a wait from anywhere.
    fn waker(&self) -> Self::Waker;
    /// Sends now what streams hold back for the next wait. Call it before you do other work instead of waiting.
    fn submit(&mut self) -> Result<(), NetError> {
        Ok(())
    }
    /// Waits for at most `timeout` (zero: does not wait), then replaces `events` with the new events. A wake-up
    /// ends the wait early, perhaps with no events.
    fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError>;
}

/// Ends the wait of its poll, or the next one if none is in progress.
pub trait Waker: Clone {
    /// Wakes.
    fn wake(&self);
}
