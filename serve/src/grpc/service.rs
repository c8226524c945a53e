//! The calls of the protocol. A call is read whole, within the limits of the other requests, before it is decoded.

use super::messages::{
    Contents, Empty, InputTensor, ModelInferRequest, ModelInferResponse, ModelInfo, ModelName,
    ServerMetadata, TensorInfo, Yes,
};
use crate::error::RequestError;
use crate::http::{App, KIND, holding, read_body, scored};
use crate::inference::{Datum, InferRequest, Tensor, TensorMetadata, bytes_of, elements, metadata, wanted};
use crate::models::Chosen;
use crate::scores::Deadline;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use prost::Message;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Instant;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Bytes before a message.
const FRAME_HEAD: usize = 5;

/// The calls that are answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    ServerLive,
    ServerReady,
    ModelReady,
    ServerMetadata,
    ModelMetadata,
    ModelInfer,
}

impl Method {
    fn of(name: &str) -> Option<Method> {
        Some(match name {
            "ServerLive" => Method::ServerLive,
            "ServerReady" => Method::ServerReady,
            "ModelReady" => Method::ModelReady,
            "ServerMetadata" => Method::ServerMetadata,
            "ModelMetadata" => Method::ModelMetadata,
            "ModelInfer" => Method::ModelInfer,
            _ => return None,
        })
    }

    /// Whether it is asked without a token.
    fn is_health(self) -> bool {
        matches!(self, Method::ServerLive | Method::ServerReady | Method::ModelReady)
    }
}

/// What a call computes of its message, as the service of tonic.
struct Call<F>(Option<F>);

impl<Q, A, F: FnOnce(Q) -> Result<A, RequestError>> UnaryService<Q> for Call<F> {
    type Response = A;
    type Future = Ready<Result<tonic::Response<A>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let work = self.0.take().expect("a service of one call");
        ready(work(request.into_inner()).map(tonic::Response::new).map_err(|error| status(&error)))
    }
}

/// The status of a call that has failed.
fn status(error: &RequestError) -> Status {
    let code = match error {
        RequestError::Bad(_) => Code::InvalidArgument,
        RequestError::NotFound(_) => Code::NotFound,
        RequestError::Unauthorized => Code::Unauthenticated,
        RequestError::TooLarge { .. } => Code::ResourceExhausted,
        RequestError::Encoding(_) => Code::Unimplemented,
        RequestError::Busy(_) => Code::Unavailable,
        RequestError::TooSlow { .. } => Code::DeadlineExceeded,
        RequestError::Failed(_) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

/// Answers a call of the service `inference.GRPCInferenceService`.
pub async fn call(State(app): State<Arc<App>>, Path(name): Path<String>, request: Request) -> Response {
    // The body is not read. A client that streams (ModelStreamInfer) waits for this answer before it ends its stream.
    let Some(method) = Method::of(&name) else {
        return Status::unimplemented(format!("the service has no call {name}")).into_http();
    };
    let began = Instant::now();
    // A message that cannot be decoded has no other code.
    let mut code = 400;
    let answered = answered(&app, method, request, &mut code).await.map_err(|error| {
        code = error.status();
        status(&error).into_http()
    });
    if method == Method::ModelInfer {
        app.counters.answered(KIND, code, began.elapsed());
    }
    answered.unwrap_or_else(|response| response)
}

/// `code`: that of a request for predictions, among those of HTTP.
async fn answered(
    app: &App,
    method: Method,
    request: Request,
    code: &mut u16,
) -> Result<Response, RequestError> {
    let (head, body) = request.into_parts();
    let has_token = app.check_token(&head.headers);
    if !method.is_health() {
        has_token.as_ref().map_err(|_| RequestError::Unauthorized)?;
    }
    let deadline = Deadline::after(app.limits.time);
    let mut place = app.admission.enter()?;
    let _count = app.counters.begin();
    let most = app.limits.body_bytes + FRAME_HEAD;
    let bytes = read_body(&head.headers, body, &mut place, (most, deadline)).await?;
    let size = bytes.len();
    let request = Request::from_parts(head, Body::from(bytes));
    let unready = || app.catalog.unready(app.max_age);
    let response = match method {
        Method::ServerLive => unary(app, request, |Empty {}| Ok(Yes { yes: true })).await,
        Method::ServerReady => unary(app, request, |Empty {}| Ok(Yes { yes: unready().is_none() })).await,
        Method::ModelReady => {
            // Triton's server answers false here. Its client raises an exception for an error.
            let is_ready =
                |of: ModelName| app.ready(&of.name, version(&of.version), has_token.is_ok()).is_ok();
            unary(app, request, |of| Ok(Yes { yes: is_ready(of) })).await
        }
        Method::ServerMetadata => unary(app, request, |Empty {}| Ok(server())).await,
        Method::ModelMetadata => {
            unary(app, request, |of: ModelName| find(app, &of).map(|of| info(&of))).await
        }
        Method::ModelInfer => {
            let work = |of| {
                let inferred = infer(app, of, deadline);
                *code = inferred.as_ref().map_or_else(RequestError::status, |_| 200);
                inferred
            };
            app.admission.compute_in(size, deadline, unary(app, request, work)).await?
        }
    };
    Ok(holding(response, place))
}

/// Decodes the message of a call, and encodes what `work` makes of it.
async fn unary<Q, A, F>(app: &App, request: Request, work: F) -> Response
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
    F: FnOnce(Q) -> Result<A, RequestError>,
{
    let mut codec = Grpc::new(ProstCodec::<A, Q>::default())
        .max_decoding_message_size(app.limits.body_bytes)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate);
    codec.unary(Call(Some(work)), request).await.map(Body::new)
}

fn find(app: &App, of: &ModelName) -> Result<Chosen, RequestError> {
    app.catalog.find(&of.name, version(&of.version))
}

/// The version that a message names. Empty: none.
fn version(named: &str) -> Option<&str> {
    Some(named).filter(|version| !version.is_empty())
}

fn server() -> ServerMetadata {
    ServerMetadata {
        name: "gannet".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: Vec::new(),
    }
}

fn tensor_info(of: &TensorMetadata) -> TensorInfo {
    TensorInfo { name: of.name.clone(), datatype: of.datatype.to_owned(), shape: of.shape.clone() }
}

fn info(of: &Chosen) -> ModelInfo {
    let about = metadata(&of.slot.name, &of.model);
    ModelInfo {
        name: about.name,
        versions: about.versions,
        platform: about.platform,
        inputs: about.inputs.iter().map(tensor_info).collect(),
        outputs: about.outputs.iter().map(tensor_info).collect(),
    }
}

fn infer(
    app: &App,
    message: ModelInferRequest,
    deadline: Deadline,
) -> Result<ModelInferResponse, RequestError> {
    let ModelInferRequest { model_name, model_version, id, inputs, outputs, raw } = message;
    if !raw.is_empty() && raw.len() != inputs.len() {
        let (raw, all) = (raw.len(), inputs.len());
        return Err(RequestError::Bad(format!(
            "{raw} raw inputs, and {all} inputs: each needs one, or none has"
        )));
    }
    let mut raw = raw.into_iter();
    let inputs = inputs.into_iter().map(|input| tensor(input, raw.next())).collect::<Result<_, _>>()?;
    let request = InferRequest {
        id: Some(id).filter(|id| !id.is_empty()),
        inputs,
        outputs: outputs.into_iter().map(|output| (output.name, true)).collect(),
        is_binary: true,
    };
    let (chosen, scores) = scored(app, &model_name, version(&model_version), &request, deadline)?;
    let wanted = wanted(&request, &scores)?;
    Ok(ModelInferResponse {
        model_name: chosen.slot.name.clone(),
        model_version: chosen.model.version.clone(),
        id: request.id.unwrap_or_default(),
        outputs: wanted.iter().map(tensor_info).collect(),
        raw: wanted.iter().map(|output| bytes_of(output, &scores)).collect(),
    })
}

/// An input, whose elements are raw or in its message.
fn tensor(input: InputTensor, raw: Option<Vec<u8>>) -> Result<Tensor, RequestError> {
    let InputTensor { name, datatype, shape, contents } = input;
    let dim = |dim: &i64| u64::try_from(*dim).map_err(|_| bad_shape(&name, &shape));
    let dims = shape.iter().map(dim).collect::<Result<Vec<u64>, _>>()?;
    let elements = match (raw, contents) {
        (Some(bytes), None) => elements(&name, &datatype, &bytes)?,
        (None, Some(contents)) => of_contents(&name, &datatype, contents)?,
        (None, None) => elements(&name, &datatype, &[])?,
        (Some(_), Some(_)) => {
            return Err(RequestError::Bad(format!("input {name:?} has both contents and raw contents")));
        }
    };
    Tensor::new(name, datatype, dims, elements)
}

fn bad_shape(name: &str, shape: &[i64]) -> RequestError {
    RequestError::Bad(format!("input {name:?}: the shape {shape:?} has a dimension below 0"))
}

fn of_contents(name: &str, datatype: &str, contents: Contents) -> Result<Vec<Datum>, RequestError> {
    let Contents { bools, ints, longs, unsigned, unsigned_longs, floats, doubles, texts } = contents;
    Ok(match datatype {
        "BOOL" => bools.into_iter().map(Datum::Bool).collect(),
        "INT8" | "INT16" | "INT32" => ints.into_iter().map(|x| Datum::Signed(i64::from(x))).collect(),
        "INT64" => longs.into_iter().map(Datum::Signed).collect(),
        "UINT8" | "UINT16" | "UINT32" => {
            unsigned.into_iter().map(|x| Datum::Unsigned(u64::from(x))).collect()
        }
        "UINT64" => unsigned_longs.into_iter().map(Datum::Unsigned).collect(),
        "FP32" => floats.into_iter().map(Datum::Single).collect(),
        "FP64" => doubles.into_iter().map(Datum::Double).collect(),
        "BYTES" => {
            let text = |bytes: Vec<u8>| Datum::Text(String::from_utf8_lossy(&bytes).into_owned());
            texts.into_iter().map(text).collect()
        }
        // It names the types that are known.
        _ => elements(name, datatype, &[])?,
    })
}
