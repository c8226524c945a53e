//! What a push carries, and what the rule must support for it.

use crate::backend::error::BackendError;
use crate::learn::replay::Replay;
use gannet_core::{Read, RowType, Schema, Write};
use gannet_optim::Rule;

/// What a training push carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushContent {
    /// The change of state from learning the batch one example at a time ([`Replay`]).
    Replay,
    /// The gradient of the batch, which the rule applies at the server ([`Gradients`](crate::Gradients)).
    Gradient,
}

impl PushContent {
    /// The content of pushes to a table of logistic regression: the requested one, or replay where the rule supports
    /// it.
    ///
    /// # Errors
    /// The rule does not learn, or replay is requested and the rule cannot replay.
    pub fn choose(requested: Option<PushContent>, schema: &Schema) -> Result<PushContent, BackendError> {
        let (rule, name) = (&schema.rule, schema.rule.name());
        if matches!(rule, Rule::Add(_)) || schema.weights() != 1 {
            return Err(BackendError::Schema(format!(
                "table {:?} has rule {name} and dim {}; logistic regression needs a rule that learns (such as ftrl, \
                 adagrad or sgd) and dim 1",
                schema.name,
                schema.weights()
            )));
        }
        PushContent::of_rows(requested, schema, Replay::new(schema).is_some())
    }

    /// The content of pushes to tables with such rows: the requested one, or replay where `replays` says that it works.
    ///
    /// # Errors
    /// Replay is requested, and these tables cannot replay.
    pub(crate) fn of_rows(
        requested: Option<PushContent>,
        schema: &Schema,
        replays: bool,
    ) -> Result<PushContent, BackendError> {
        if requested != Some(PushContent::Replay) || replays {
            return Ok(requested.unwrap_or(if replays {
                PushContent::Replay
            } else {
                PushContent::Gradient
            }));
        }
        let rule = schema.rule.f32_rule();
        let why = if schema.row_type() != RowType::F32 {
            "weights of 2 bytes are rounded where the rule runs, so changes of them do not add up; push gradients \
             (--push gradient), or store f32 (--row-type f32)"
        } else if rule.replays() {
            "a schedule, clipping or added L2 acts on gradients where the rule runs, which changes of state would go past; \
             push gradients (--push gradient), or leave them out"
        } else {
            "its state is not a sum over the gradients, so changes of it do not add up; push gradients (--push gradient), \
             or choose ftrl, group-ftrl, adagrad, row-adagrad or sgd"
        };
        Err(BackendError::Schema(format!("{} cannot replay: {why}", rule.name())))
    }

    /// "replay", "gradient".
    pub fn name(self) -> &'static str {
        match self {
            PushContent::Replay => "replay",
            PushContent::Gradient => "gradient",
        }
    }

    /// What a pull before such a push reads.
    pub(crate) fn read(self) -> Read {
        match self {
            PushContent::Replay => Read::State,
            PushContent::Gradient => Read::Weights,
        }
    }

    /// How the shards apply such a push.
    pub(crate) fn write(self) -> Write {
        match self {
            PushContent::Replay => Write::Change,
            PushContent::Gradient => Write::Gradient,
        }
    }
}
