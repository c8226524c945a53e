//! Why a model is not served, or a request not answered.

use gannet::train::TrainError;
use gannet::train::saved::SavedModelError;
use std::io;
use thiserror::Error;

/// Why serving does not begin.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A model cannot be loaded.
    #[error("model {name:?}: {error}")]
    Model {
        /// The name of the model.
        name: String,
        /// Why.
        error: SavedModelError,
    },
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The system cannot start a thread or use the listener.
    #[error("requests cannot be served: {0}")]
    System(#[from] io::Error),
}

/// Why a request has no predictions.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The request is wrong.
    #[error("{0}")]
    Bad(String),
    /// There is no such model, version or page.
    #[error("{0}")]
    NotFound(String),
    /// The token is missing or wrong.
    #[error("this server asks for a token: send the header `Authorization: Bearer TOKEN`")]
    Unauthorized,
    /// The body is too large.
    #[error("the body has more than {most} bytes: send fewer examples at once, or raise --request-bytes")]
    TooLarge {
        /// The most bytes.
        most: usize,
    },
    /// The body is packed in a way that is not known.
    #[error("Content-Encoding {0}: gzip and deflate are known")]
    Encoding(String),
    /// There are too many requests.
    #[error("{0}: try again later")]
    Busy(&'static str),
    /// The request took too long.
    #[error("the request took longer than {seconds} s (--request-time)")]
    TooSlow {
        /// The limit.
        seconds: f64,
    },
    /// The model cannot score the examples, for a reason that is not in the request.
    #[error("{0}")]
    Failed(String),
}

impl RequestError {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            RequestError::Bad(_) => 400,
            RequestError::Unauthorized => 401,
            RequestError::NotFound(_) => 404,
            RequestError::TooLarge { .. } => 413,
            RequestError::Encoding(_) => 415,
            RequestError::Failed(_) => 500,
            RequestError::Busy(_) => 503,
            RequestError::TooSlow { .. } => 504,
        }
    }

    /// A request that is wrong: in words.
    pub fn bad(what: impl Into<String>) -> RequestError {
        RequestError::Bad(what.into())
    }
}

/// A message of the readers without the flags of `gannet train`, which a client does not have.
fn for_clients(message: &str) -> String {
    const REMEDIES: [&str; 4] = [
        "; name its column with --label",
        "; correct the line, or skip such lines with --skip-bad-lines N",
        ": say which value means 1 with --positive VALUE",
        "; a libsvm file has lines such as `1 3:0.5 17:1`, a CSV file a header and rows, a table rows",
    ];
    REMEDIES.iter().fold(message.to_owned(), |text, remedy| text.replace(remedy, ""))
}

impl From<TrainError> for RequestError {
    fn from(error: TrainError) -> RequestError {
        match error {
            TrainError::Read(_) | TrainError::Example { .. } => {
                RequestError::Bad(for_clients(&error.to_string()))
            }
            error => RequestError::Failed(error.to_string()),
        }
    }
}
