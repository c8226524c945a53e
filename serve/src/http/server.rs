//! The connections: a runtime of threads that accept them, and answer their requests.

use super::app::App;
use super::routes::router;
use super::write_limit::WriteLimit;
use crate::config::ServeConfig;
use crate::counters::Counters;
#[cfg(feature = "grpc")]
use crate::limits::STREAMS_MAX;
use crate::limits::{HANDSHAKE_TIME, HEAD_BYTES_MAX, HEAD_TIME, RETRY_AFTER};
use axum::Router;
use gannet::security::TlsServer;
use hyper::server::conn::http1;
#[cfg(feature = "grpc")]
use hyper::server::conn::http2;
#[cfg(feature = "grpc")]
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, rustls};

/// A process that answers requests. [`stop`](Self::stop) ends it.
pub struct Serving {
    addr: SocketAddr,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    time: Duration,
}

/// What each connection needs.
struct Connections {
    router: Router,
    counters: Arc<Counters>,
    tls: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
    /// How long an answer may wait for its reader.
    time: Duration,
}

impl Serving {
    /// Begins to answer.
    ///
    /// # Errors
    /// The system cannot start threads, or use the listener.
    pub fn start(config: ServeConfig, app: App) -> io::Result<Serving> {
        config.listener.set_nonblocking(true)?;
        let addr = config.listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.limits.threads)
            .thread_name("gannet-serve")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(async { TcpListener::from_std(config.listener) })?;
        let connections = Connections {
            counters: app.counters.clone(),
            router: router(Arc::new(app)),
            tls: config.tls.map(|tls| TlsAcceptor::from(tls_settings(&tls))),
            places: Arc::new(Semaphore::new(config.limits.connections)),
            time: config.limits.time,
        };
        let (stop, stopped) = watch::channel(false);
        let time = config.limits.time;
        let accepting = runtime.spawn(accept(listener, Arc::new(connections), stopped));
        Ok(Serving { addr, runtime, stop, accepting, time })
    }

    /// The address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Accepts no further connection, and waits for the answers to requests that have begun.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        let ended = self.runtime.block_on(async { tokio::time::timeout(self.time, self.accepting).await });
        if ended.is_err() {
            tracing::warn!("requests that took longer than {} s were ended", self.time.as_secs_f64());
        }
        self.runtime.shutdown_background();
    }
}

/// Accepts connections until it is stopped, and then waits for their requests.
async fn accept(listener: TcpListener, connections: Arc<Connections>, mut stopped: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let stopped = stopped.clone();
                tokio::spawn(connection(stream, connections.clone(), graceful.watcher(), stopped));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    connections: Arc<Connections>,
    watcher: Watcher,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(_place) = connections.places.clone().try_acquire_owned() else {
        connections.counters.refused.fetch_add(1, Relaxed);
        return refuse(stream, connections.tls.is_some()).await;
    };
    let _count = connections.counters.connected();
    let _ = stream.set_nodelay(true);
    let Some(tls) = &connections.tls else {
        // A connection that has said nothing must not hold up the end.
        let begun = tokio::select! {
            begun = first_bytes(&stream) => begun,
            _ = stopped.changed() => return,
        };
        return match begun {
            Some(is_http2) => answer(stream, is_http2, &connections, watcher).await,
            None => tracing::debug!("a connection sent nothing"),
        };
    };
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)) => shaken,
        _ = stopped.changed() => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
            answer(stream, is_http2, &connections, watcher).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    connections: &Connections,
    watcher: Watcher,
) {
    let service = TowerToHyperService::new(connections.router.clone());
    let stream = TokioIo::new(WriteLimit::new(stream, connections.time));
    #[cfg(feature = "grpc")]
    if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(HEAD_TIME)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .serve_connection(stream, service);
        return ended(watcher.watch(connection).await);
    }
    debug_assert!(!is_http2, "without the feature grpc there is no HTTP/2");
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(stream, service);
    ended(watcher.watch(connection).await);
}

fn ended(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// The name of HTTP/2 in a TLS handshake.
const HTTP2: &[u8] = b"h2";

/// Whether a client speaks HTTP/2, which begins with `PRI`. `None`: it says nothing, or has gone.
#[cfg(feature = "grpc")]
async fn first_bytes(stream: &TcpStream) -> Option<bool> {
    let look = async {
        let mut first = [0; 3];
        loop {
            match stream.peek(&mut first).await.ok()? {
                0 => return None,
                n if first[..n] != b"PRI"[..n] => return Some(false),
                3 => return Some(true),
                // It is readable all the time, with the same bytes.
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(HEAD_TIME, look).await.ok()?
}

#[cfg(not(feature = "grpc"))]
async fn first_bytes(_: &TcpStream) -> Option<bool> {
    Some(false)
}

/// The settings of TLS, with the protocols that are spoken.
fn tls_settings(tls: &TlsServer) -> Arc<rustls::ServerConfig> {
    let mut config = rustls::ServerConfig::clone(&tls.config());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if cfg!(feature = "grpc") {
        config.alpn_protocols.insert(0, HTTP2.to_vec());
    }
    Arc::new(config)
}

/// Tells a client that there are too many connections.
async fn refuse(stream: TcpStream, is_tls: bool) {
    if is_tls {
        return;
    }
    let body = "{\"error\":\"too many connections at once (--connections): try again later\"}";
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\nRetry-After: \
         {RETRY_AFTER}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // It fits into the buffer of a new connection.
    if tokio::time::timeout(Duration::from_secs(1), stream.writable()).await.is_ok() {
        let _ = stream.try_write(answer.as_bytes());
    }
}
