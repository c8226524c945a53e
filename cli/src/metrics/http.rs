//! The endpoint of `--metrics`: axum on its own thread with a current-thread runtime, so that no other thread waits for
//! a scraper. A connection carries one request and has a short time limit. There are few at once.

use crate::metrics::answers::Answers;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

/// The most connections at once. Others wait to be accepted.
const CONNECTIONS_MAX: usize = 32;

/// The most time for a request's head to arrive.
const HEAD_TIME: Duration = Duration::from_secs(3);

/// The most time of a connection, whether or not its answer was read.
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// A running endpoint. Dropping it stops it.
pub struct Endpoint {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Answers on a bound listener.
    pub fn start(listener: std::net::TcpListener, answers: Arc<Answers>) -> io::Result<Endpoint> {
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async move {
                match TcpListener::from_std(listener) {
                    // Dropping `stop` ends the runtime, and with it all connections.
                    Ok(listener) => {
                        tokio::spawn(serve(listener, router(answers)));
                        let _ = stopped.await;
                    }
                    Err(error) => tracing::error!(%error, "metrics cannot be served"),
                }
            });
        };
        let thread = std::thread::Builder::new().name("gannet-metrics".into()).spawn(run)?;
        Ok(Endpoint { addr, stop: Some(stop), thread: Some(thread) })
    }

    /// The address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that serves metrics has panicked");
        }
    }
}

fn router(answers: Arc<Answers>) -> Router {
    let health = answers.clone();
    let metrics = move || async move {
        ([(header::CONTENT_TYPE, crate::metrics::text::CONTENT_TYPE)], answers.metrics()).into_response()
    };
    let healthz = move || async move {
        match health.trouble() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")),
        }
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .fallback(|| async { (StatusCode::NOT_FOUND, "/metrics and /healthz are here\n") })
}

async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .keep_alive(false)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            match tokio::time::timeout(CONNECTION_TIME, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a connection to the metrics ended early"),
                Err(_) => tracing::debug!("a connection to the metrics took too long"),
            }
            drop(place);
        });
    }
}
