//! Calls to one member of etcd.

use crate::coordinator::etcd::messages::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use gannet_wire::limits::COORDINATOR_TIMEOUT;
use prost::Message;
use std::error::Error;
use tokio_stream::{Stream, StreamExt};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// Why a member gave no answer.
pub(crate) enum RpcError {
    Connect(tonic::transport::Error),
    Answer(Status),
}

impl From<tonic::transport::Error> for RpcError {
    fn from(error: tonic::transport::Error) -> RpcError {
        RpcError::Connect(error)
    }
}

impl From<Status> for RpcError {
    fn from(status: Status) -> RpcError {
        RpcError::Answer(status)
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RpcError::Connect(error) => {
                write!(f, "{error}")?;
                // The first error says no more than that there was one.
                let mut cause = error.source();
                while let Some(of) = cause {
                    write!(f, ": {of}")?;
                    cause = of.source();
                }
                Ok(())
            }
            RpcError::Answer(status) => write!(f, "{} ({:?})", status.message(), status.code()),
        }
    }
}

impl RpcError {
    /// The answer is about a thing that is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, RpcError::Answer(status) if status.code() == Code::NotFound)
    }
}

/// A connection to a member.
pub struct Member(Grpc<Channel>);

impl Member {
    /// Connects to the member at this URL.
    pub async fn connect(url: String, tls: Option<ClientTlsConfig>) -> Result<Member, RpcError> {
        let endpoint = Endpoint::from_shared(url)?.connect_timeout(COORDINATOR_TIMEOUT);
        let endpoint = match tls {
            Some(tls) => endpoint.tls_config(tls)?,
            None => endpoint,
        };
        Ok(Member(Grpc::new(endpoint.connect().await?)))
    }

    pub async fn range(&mut self, request: RangeRequest) -> Result<RangeResponse, RpcError> {
        self.unary("/etcdserverpb.KV/Range", request).await
    }

    pub(crate) async fn txn(&mut self, request: TxnRequest) -> Result<TxnResponse, RpcError> {
        self.unary("/etcdserverpb.KV/Txn", request).await
    }

    pub(crate) async fn lease_grant(
        &mut self,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, RpcError> {
        self.unary("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    /// Keeps a lease alive once. `None`: the member has ended the stream without an answer.
    pub(crate) async fn lease_keep_alive(
        &mut self,
        request: LeaseKeepAliveRequest,
    ) -> Result<Option<LeaseKeepAliveResponse>, RpcError> {
        let requests = tokio_stream::once(request);
        let mut answers = self.stream("/etcdserverpb.Lease/LeaseKeepAlive", requests).await?;
        Ok(answers.message().await?)
    }

    /// Begins a watch, which ends when its answers are dropped.
    pub async fn watch(&mut self, create: WatchCreateRequest) -> Result<Streaming<WatchResponse>, RpcError> {
        // The member ends the watch when there can be no more requests.
        let requests =
            tokio_stream::once(WatchRequest { create: Some(create) }).chain(tokio_stream::pending());
        self.stream("/etcdserverpb.Watch/Watch", requests).await
    }

    async fn unary<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, RpcError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.0.ready().await?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
        Ok(self.0.unary(Request::new(request), path, codec).await?.into_inner())
    }

    async fn stream<Q, A>(
        &mut self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, RpcError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.0.ready().await?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
        Ok(self.0.streaming(Request::new(requests), path, codec).await?.into_inner())
    }
}
