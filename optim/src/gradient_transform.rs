//! What happens to a gradient before the rule: the learning rate's schedule, clipping, and L2.

use crate::error::Checks;
use crate::{Rule, RuleError};

/// What happens to a table's pushed gradients before its [`Rule`]:
/// - The learning rate is multiplied by [`Schedule::factor`] of the push's clock.
/// - The gradient is clipped by value, then by its norm over the row. Then `l2 * w` is added.
///
/// L2 comes last, so that clipping bounds wild gradients but does not bound L2.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GradientTransform {
    /// The schedule of the learning rate.
    pub schedule: Schedule,
    /// Each value of a gradient is clipped to `[-clip_value, clip_value]`: finite, above 0.
    pub clip_value: Option<f32>,
    /// A row's gradient whose L2 norm is larger than this is scaled down to it: finite, above 0.
    pub clip_norm: Option<f32>,
    /// `l2 * w` is added to the gradient of each row that is pushed to: finite, at least 0.
    pub l2: f32,
}

/// A factor of the learning rate that depends on the pusher's clock: the sequence number of its push, from 1 on. It
/// depends on the push's name alone, so a push that is resent has the same rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Schedule {
    /// The factor grows linearly to 1 over this many steps. The first step has `1 / warmup`. 0 means no warm-up.
    pub warmup: u32,
    /// The schedule after the warm-up. Its step 0 is the first step after the warm-up.
    pub decay: Decay,
}

/// How a learning rate falls with the step `t`, from 1 at `t = 0`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Decay {
    /// It is constant.
    #[default]
    Constant,
    /// `rate ^ (t / steps)`.
    Exponential {
        /// The factor per `steps`: above 0, at most 1.
        rate: f32,
        /// Above 0.
        steps: u32,
    },
    /// `rate ^ floor(t / steps)`.
    Step {
        /// The factor per `steps`: above 0, at most 1.
        rate: f32,
        /// Above 0.
        steps: u32,
    },
    /// `end + (1 - end) * (1 - t / steps) ^ power`, and `end` from `steps` on.
    Polynomial {
        /// Finite, above 0; 1 means a linear fall.
        power: f32,
        /// The last factor: 0 to 1.
        end: f32,
        /// Above 0.
        steps: u32,
    },
    /// `1 / sqrt(1 + t / steps)`.
    InverseSqrt {
        /// Above 0.
        steps: u32,
    },
    /// `end + (1 - end) * (1 + cos(pi * t / steps)) / 2`, and `end` from `steps` on.
    Cosine {
        /// The last factor: 0 to 1.
        end: f32,
        /// Above 0.
        steps: u32,
    },
}

impl Schedule {
    /// The factor at this clock: between 0 and 1. Clocks count from 1; 0 is taken as 1.
    pub fn factor(&self, clock: u64) -> f32 {
        let step = clock.max(1) - 1;
        let warmup = u64::from(self.warmup);
        if step < warmup {
            return ((step + 1) as f64 / warmup as f64) as f32;
        }
        let t = (step - warmup) as f64;
        let part = |steps: u32| t / f64::from(steps);
        let between = |end: f32, share: f64| f64::from(end) + (1.0 - f64::from(end)) * share;
        let factor = match self.decay {
            Decay::Constant => 1.0,
            Decay::Exponential { rate, steps } => f64::from(rate).powf(part(steps)),
            Decay::Step { rate, steps } => f64::from(rate).powf(part(steps).floor()),
            Decay::Polynomial { power, end, steps } => {
                between(end, (1.0 - part(steps).min(1.0)).powf(f64::from(power)))
            }
            Decay::InverseSqrt { steps } => 1.0 / (1.0 + part(steps)).sqrt(),
            Decay::Cosine { end, steps } => {
                between(end, (1.0 + (std::f64::consts::PI * part(steps).min(1.0)).cos()) / 2.0)
            }
        };
        factor as f32
    }

    fn check(&self, checks: Checks) -> Result<(), RuleError> {
        let steps = |steps: u32| checks.that(steps > 0, "steps of the schedule", 0.0, "above 0");
        let rate = |rate: f32| {
            let ok = rate > 0.0 && rate <= 1.0;
            checks.that(ok, "rate of the schedule", rate, "above 0 and at most 1")
        };
        let end = |end: f32| checks.up_to_one("end of the schedule", end);
        match self.decay {
            Decay::Constant => Ok(()),
            Decay::Exponential { rate: r, steps: s } | Decay::Step { rate: r, steps: s } => {
                rate(r).and_then(|()| steps(s))
            }
            Decay::Polynomial { power, end: e, steps: s } => {
                checks.positive("power of the schedule", power)?;
                end(e).and_then(|()| steps(s))
            }
            Decay::InverseSqrt { steps: s } => steps(s),
            Decay::Cosine { end: e, steps: s } => end(e).and_then(|()| steps(s)),
        }
    }
}

impl GradientTransform {
    /// No transform: every gradient reaches its rule as it was pushed.
    pub const NONE: GradientTransform = GradientTransform {
        schedule: Schedule { warmup: 0, decay: Decay::Constant },
        clip_value: None,
        clip_norm: None,
        l2: 0.0,
    };

    /// Whether gradients are clipped or L2 is added, so that [`gradient`](Self::gradient) does anything.
    pub fn changes_gradients(&self) -> bool {
        self.clip_value.is_some() || self.clip_norm.is_some() || self.l2 != 0.0
    }

    /// Whether changes of state may be pushed to a table with this transform: only if there is no transform. Replay
    /// runs the rule in the worker, one example at a time. Clipping, L2 and the schedule act in the server on what is
    /// pushed, so a change of state would bypass them.
    pub fn replays(&self) -> bool {
        *self == GradientTransform::NONE
    }

    /// Writes the gradient that `rule` gets into `out`, from the pushed `gradient` of a row with these `weights`. All
    /// three have the length `dim`. `weights` is the row's first plane; it is read only if there is an L2.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gradient(&self, weights: &[f32], gradient: &[f32], out: &mut [f32]) {
        assert!(weights.len() == gradient.len() && gradient.len() == out.len());
        match self.clip_value {
            // max and min would hide a NaN; clamp keeps it.
            Some(most) => out.iter_mut().zip(gradient).for_each(|(o, g)| *o = g.clamp(-most, most)),
            None => out.copy_from_slice(gradient),
        }
        if let Some(most) = self.clip_norm {
            // In f64 the square of a float cannot overflow or underflow.
            let norm = out.iter().map(|g| f64::from(*g) * f64::from(*g)).sum::<f64>().sqrt();
            if norm > f64::from(most) {
                let scale = f64::from(most) / norm;
                out.iter_mut().for_each(|g| *g = (f64::from(*g) * scale) as f32);
            }
        }
        if self.l2 != 0.0 {
            out.iter_mut().zip(weights).for_each(|(g, w)| *g += self.l2 * w);
        }
    }

    /// Checks that every part is in range, and that `rule` supports it.
    ///
    /// # Errors
    /// The error names the value that is out of range, or the part that the rule does not support and why.
    pub fn check(&self, rule: &Rule) -> Result<(), RuleError> {
        let name = rule.name();
        let checks = Checks(name);
        self.schedule.check(checks)?;
        self.clip_value.map_or(Ok(()), |most| checks.positive("clip by value", most))?;
        self.clip_norm.map_or(Ok(()), |most| checks.positive("clip by norm", most))?;
        checks.at_least_zero("l2", self.l2)?;
        let scheduled = self.schedule != Schedule::default();
        let clipped = self.clip_value.is_some() || self.clip_norm.is_some();
        let parts = [(scheduled, "schedule"), (clipped, "clipping"), (self.l2 != 0.0, "l2 beside its own")];
        for (_, what) in parts.into_iter().filter(|(given, _)| *given) {
            if let Some(why) = unfit(rule, what) {
                return Err(RuleError::Unfit { rule: name, what, why });
            }
        }
        Ok(())
    }
}

/// Why `rule` does not support this part.
fn unfit(rule: &Rule, what: &str) -> Option<&'static str> {
    match (rule, what) {
        (Rule::Add(_), _) => Some("it adds pushed values, which are not gradients"),
        (Rule::Ftrl(_) | Rule::GroupFtrl(_), "schedule") => Some(
            "its weights are computed from alpha, so another rate would change everything learned before",
        ),
        (Rule::Ftrl(_) | Rule::GroupFtrl(_), "l2 beside its own") => {
            Some("the rule has an l2 of its own: set that one")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(warmup: u32, decay: Decay, clocks: &[u64]) -> Vec<f32> {
        clocks.iter().map(|&clock| Schedule { warmup, decay }.factor(clock)).collect()
    }

    #[test]
    fn schedules_are_their_formulas() {
        assert_eq!(factors(0, Decay::Constant, &[0, 1, 2, u64::MAX]), [1.0; 4]);
        assert_eq!(factors(4, Decay::Constant, &[0, 1, 2, 4, 5, 6]), [0.25, 0.25, 0.5, 1.0, 1.0, 1.0]);
        let exponential = Decay::Exponential { rate: 0.25, steps: 10 };
        assert_eq!(factors(0, exponential, &[1, 6, 11, 21]), [1.0, 0.5, 0.25, 0.0625]);
        assert_eq!(factors(5, exponential, &[5, 6, 11, 16]), [1.0, 1.0, 0.5, 0.25]);
        let step = Decay::Step { rate: 0.5, steps: 10 };
        assert_eq!(factors(0, step, &[1, 10, 11, 20, 21]), [1.0, 1.0, 0.5, 0.5, 0.25]);
        let polynomial = Decay::Polynomial { power: 2.0, end: 0.25, steps: 10 };
        assert_eq!(factors(0, polynomial, &[1, 6, 11, 1000]), [1.0, 0.4375, 0.25, 0.25]);
        assert_eq!(factors(0, Decay::InverseSqrt { steps: 3 }, &[1, 10, 46]), [1.0, 0.5, 0.25]);
        let cosine = Decay::Cosine { end: 0.5, steps: 10 };
        assert_eq!(factors(0, cosine, &[1, 6, 11, 1000]), [1.0, 0.75, 0.5, 0.5]);
        assert_eq!(factors(0, exponential, &[u64::MAX]), [0.0]);
    }

    #[test]
    fn gradients_are_clipped_then_regularised() {
        let shaped = |shaping: GradientTransform, w: &[f32], g: &[f32]| {
            let mut out = vec![f32::NAN; g.len()];
            shaping.gradient(w, g, &mut out);
            out
        };
        let value = GradientTransform { clip_value: Some(2.0), ..GradientTransform::NONE };
        assert_eq!(shaped(value, &[9.0; 3], &[3.0, -5.0, 1.5]), [2.0, -2.0, 1.5]);
        let norm = GradientTransform { clip_norm: Some(1.0), ..GradientTransform::NONE };
        assert_eq!(shaped(norm, &[9.0; 2], &[3.0, -4.0]), [0.6, -0.8]);
        assert_eq!(shaped(norm, &[9.0; 2], &[0.3, -0.4]), [0.3, -0.4]);
        // The squares are beyond the range of a float; the gradient is not.
        let far = 2f32.powi(100);
        assert_eq!(shaped(norm, &[0.0; 2], &[3.0 * far, -4.0 * far]), [0.6, -0.8]);
        let all = GradientTransform {
            clip_value: Some(4.0),
            clip_norm: Some(2.5),
            l2: 0.5,
            ..GradientTransform::NONE
        };
        assert_eq!(shaped(all, &[1.0, -2.0], &[3.0, -400.0]), [1.5 + 0.5, -2.0 - 1.0]);
        assert!(shaped(all, &[1.0; 2], &[f32::NAN, 1.0])[0].is_nan());
        assert!(!GradientTransform::NONE.changes_gradients() && all.changes_gradients());
        assert!(GradientTransform::NONE.replays() && !all.replays() && !value.replays());
    }
}
