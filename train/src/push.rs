//! What a push carries, and what it asks of the rule.

use crate::backend::BackendError;
use crate::replay::Replay;
use gannet_node::optim::Rule;
use gannet_node::{Read, Schema, Write};

/// What a training push carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// The change of state that learning the batch one example at a time has made ([`Replay`]).
    Replay,
    /// The gradient of the batch, for the rule to apply ([`Gradients`](crate::Gradients)).
    Gradient,
}

impl Push {
    /// What pushes to a table of logistic regression carry: what is asked for, or replay where the rule can.
    ///
    /// # Errors
    /// The rule does not learn, or replay is asked for and it cannot.
    pub fn choose(asked: Option<Push>, schema: &Schema) -> Result<Push, BackendError> {
        let (rule, name) = (&schema.rule, schema.rule.name());
        if matches!(rule, Rule::Add(_)) || schema.dim != 1 {
            return Err(BackendError::Schema(format!(
                "table {:?} has rule {name} and dim {}; logistic regression needs a rule that learns (such as ftrl, \
                 adagrad or sgd) and dim 1",
                schema.name, schema.dim
            )));
        }
        match (asked, Replay::fits(rule)) {
            (Some(Push::Replay), false) => Err(BackendError::Schema(format!(
                "{name} cannot replay: its state is not a sum over the gradients, so changes of it do not add up; \
                 push gradients (--push gradient), or choose ftrl, adagrad or sgd"
            ))),
            (Some(push), _) => Ok(push),
            (None, true) => Ok(Push::Replay),
            (None, false) => Ok(Push::Gradient),
        }
    }

    /// "replay", "gradient".
    pub fn name(self) -> &'static str {
        match self {
            Push::Replay => "replay",
            Push::Gradient => "gradient",
        }
    }

    /// What the pull before such a push reads.
    pub(crate) fn read(self) -> Read {
        match self {
            Push::Replay => Read::State,
            Push::Gradient => Read::Weights,
        }
    }

    /// How such a push is written.
    pub(crate) fn write(self) -> Write {
        match self {
            Push::Replay => Write::Change,
            Push::Gradient => Write::Gradient,
        }
    }
}
