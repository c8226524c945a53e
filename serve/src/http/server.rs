//! The connections: a runtime of threads that accept them, and answer their requests.

use super::app::App;
use super::routes::router;
use crate::config::ServeConfig;
use crate::counters::Counters;
use crate::limits::{HANDSHAKE_TIME, HEAD_BYTES_MAX, HEAD_TIME, RETRY_AFTER};
use axum::Router;
use hyper::server::conn::http1;
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
use tokio_rustls::TlsAcceptor;

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
            tls: config.tls.map(|tls| TlsAcceptor::from(tls.config())),
            places: Arc::new(Semaphore::new(config.limits.connections)),
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
                tokio::spawn(connection(stream, connections.clone(), graceful.watcher()));
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

async fn connection(stream: TcpStream, connections: Arc<Connections>, watcher: Watcher) {
    let Ok(_place) = connections.places.clone().try_acquire_owned() else {
        connections.counters.refused.fetch_add(1, Relaxed);
        return refuse(stream, connections.tls.is_some()).await;
    };
    let _count = connections.counters.connected();
    let _ = stream.set_nodelay(true);
    match &connections.tls {
        None => answer(stream, &connections, watcher).await,
        Some(tls) => match tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
            Ok(Ok(stream)) => answer(stream, &connections, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        },
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connections: &Connections,
    watcher: Watcher,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(connections.router.clone()));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended early");
    }
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
