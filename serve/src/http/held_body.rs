//! The body of an answer, which holds the places of its request until it is sent.

use super::admission::Admitted;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The connection takes so many bytes at a time, so that it holds few that are not sent.
const PIECE: usize = 32 << 10;

struct HeldBody {
    body: Body,
    /// What is left of the last frame.
    left: Bytes,
    _place: Admitted,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let own = self.get_mut();
        if own.left.is_empty() {
            match Pin::new(&mut own.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                    own.left = frame.into_data().unwrap_or_default();
                }
                other => return other,
            }
        }
        let piece = own.left.split_to(own.left.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, hint) = (self.left.len() as u64, self.body.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + left);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + left);
        }
        whole
    }
}

/// The answer, which holds the places until it is sent.
pub fn holding(answer: Response, place: Admitted) -> Response {
    answer.map(|body| Body::new(HeldBody { body, left: Bytes::new(), _place: place }))
}
