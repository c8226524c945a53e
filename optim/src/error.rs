//! Errors about hyper-parameters.

/// Why a rule, or its gradient transform, is not valid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A hyper-parameter out of range.
    #[error("{rule}: {parameter} is {value}, must be {allowed}")]
    Parameter {
        /// The rule's name.
        rule: &'static str,
        /// The hyper-parameter's name.
        parameter: &'static str,
        /// Its value.
        value: f32,
        /// What is allowed, for the message.
        allowed: &'static str,
    },
    /// A part of [`GradientTransform`](crate::GradientTransform) that the rule does not support.
    #[error("{rule} takes no {what}: {why}")]
    Unfit {
        /// The rule's name.
        rule: &'static str,
        /// The part that was set.
        what: &'static str,
        /// Why the rule does not support it.
        why: &'static str,
    },
}

/// Checks one rule's hyper-parameters. Errors carry the rule's name.
#[derive(Clone, Copy)]
pub(crate) struct Checks(pub(crate) &'static str);

impl Checks {
    /// `Ok` if `ok`, else an error that names the parameter.
    pub(crate) fn that(
        self,
        ok: bool,
        parameter: &'static str,
        value: f32,
        allowed: &'static str,
    ) -> Result<(), RuleError> {
        if ok { Ok(()) } else { Err(RuleError::Parameter { rule: self.0, parameter, value, allowed }) }
    }

    pub(crate) fn positive(self, parameter: &'static str, value: f32) -> Result<(), RuleError> {
        self.that(value.is_finite() && value > 0.0, parameter, value, "finite and above 0")
    }

    pub(crate) fn at_least_zero(self, parameter: &'static str, value: f32) -> Result<(), RuleError> {
        self.that(value.is_finite() && value >= 0.0, parameter, value, "finite and at least 0")
    }

    /// Checks the weight of the past in a decaying average.
    pub(crate) fn below_one(self, parameter: &'static str, value: f32) -> Result<(), RuleError> {
        self.that((0.0..1.0).contains(&value), parameter, value, "at least 0 and below 1")
    }

    /// Checks a factor that must not grow.
    pub(crate) fn up_to_one(self, parameter: &'static str, value: f32) -> Result<(), RuleError> {
        self.that((0.0..=1.0).contains(&value), parameter, value, "at least 0 and at most 1")
    }
}
