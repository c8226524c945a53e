//! `POST /v1/learn`: labelled examples, and labels of predictions, each of which is learned once.

use super::answers::{failed, json};
use super::app::App;
use super::received::{Received, receive};
use crate::error::RequestError;
use crate::learn::{IdOutcome, Learning, Offer, Standing};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json as object};
use std::sync::Arc;
use std::time::Instant;

/// The place of these requests among the [kinds](crate::counters::KINDS).
const KIND: usize = 2;

/// Answers a request.
pub async fn learn(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    let began = Instant::now();
    let response = match receive(&app, &headers, body).await {
        Ok(received) => answered(&app, received).await.unwrap_or_else(|error| failed(&error)),
        Err(response) => response,
    };
    app.counters.answered(KIND, response.status().as_u16(), began.elapsed());
    response
}

/// The folder that learns.
fn learning(app: &App) -> Result<&Learning, RequestError> {
    let none = || RequestError::NotFound("this server learns nothing: start it with --learn DIR".into());
    app.learning.as_deref().ok_or_else(none)
}

async fn answered(app: &App, received: Received<'_>) -> Result<Response, RequestError> {
    let Received { bytes, deadline, place: _place, count: _count } = received;
    let learning = learning(app)?;
    // The others stay for requests for predictions, which wait for nothing.
    let busy = |_| RequestError::Busy("too many requests wait for their examples (half of --requests)");
    let _turn = learning.places.try_acquire().map_err(busy)?;
    let model = app.catalog.slots()[0].current();
    let work = || learning.read(&model, &bytes);
    let offer = app.admission.compute(bytes.len(), deadline, work).await?;
    drop(bytes);
    let places = learning.take(&offer, deadline).await?;
    let number = |place: &IdOutcome| match place {
        IdOutcome::New(number) | IdOutcome::Known(number) => Some(number + 1),
        IdOutcome::Unknown => None,
    };
    let upto = places.iter().filter_map(number).max().unwrap_or(0);
    Ok(answer(&offer, &places, &learning.learned(upto, deadline).await))
}

/// What became of each id.
fn answer(offer: &Offer, places: &[IdOutcome], standing: &Standing) -> Response {
    let mut ids = Map::new();
    let mut are_waiting = false;
    for (offered, place) in offer.offered.iter().zip(places) {
        let word = match *place {
            IdOutcome::Unknown => "unknown",
            IdOutcome::New(number) | IdOutcome::Known(number) if number >= standing.learned => "waiting",
            IdOutcome::New(_) => "learned",
            IdOutcome::Known(_) => "known",
        };
        are_waiting |= word == "waiting";
        ids.insert(offered.id.clone(), word.into());
    }
    let mut told = object!({ "ids": Value::Object(ids) });
    if !are_waiting {
        return json(&told);
    }
    if let Some(why) = &standing.trouble {
        told["why"] = Value::from(&**why);
    }
    (StatusCode::ACCEPTED, json(&told)).into_response()
}
