//! A line search for the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6). Where rounding hides the
//! fall of the function's values, it uses the approximate first condition of Hager and Zhang (2005).

/// A point of the function along a direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The step.
    pub step: f64,
    /// The function's value.
    pub value: f64,
    /// Its derivative in the step.
    pub slope: f64,
}

/// The conditions and limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The fraction of the decrease predicted by the first slope that must be reached, in (0, 1/2).
    pub decrease: f64,
    /// The fraction of the first slope that may remain, in (decrease, 1).
    pub curvature: f64,
    /// The first step that is tried.
    pub first: f64,
    /// The longest step allowed.
    pub longest: f64,
    /// The most points that are tried.
    pub tries: u32,
    /// The relative error of the function's values. A smaller decrease is not visible.
    pub noise: f64,
}

impl Default for Search {
    fn default() -> Search {
        Search { decrease: 1e-4, curvature: 0.9, first: 1.0, longest: 1e10, tries: 40, noise: 1e-13 }
    }
}

impl Search {
    /// Whether a step decreases the function enough: by Armijo's condition, or by its slopes where the values' noise
    /// hides it.
    fn falls(&self, from: Point, at: Point) -> bool {
        let armijo = at.value <= from.value + self.decrease * at.step * from.slope;
        let unseen = at.value <= from.value + self.noise * from.value.abs()
            && at.slope <= (2.0 * self.decrease - 1.0) * from.slope;
        armijo || unseen
    }

    fn is_flat(&self, from: Point, at: Point) -> bool {
        at.slope.abs() <= -self.curvature * from.slope
    }

    /// Whether the step is acceptable: it decreases enough, and it is flat enough or cannot be longer.
    pub fn accepts(&self, from: Point, at: Point) -> bool {
        let longest = at.step >= self.longest && at.slope <= 0.0;
        self.falls(from, at) && (self.is_flat(from, at) || longest)
    }
}

/// Finds a step that fulfils the strong Wolfe conditions. `from` has the function's value and slope at 0, and the slope
/// is negative. `function` returns the value and the slope at a step. When `tries` are used up, the result is the best
/// step that decreases the function, or `None` if there is none.
///
/// # Errors
/// The errors of `function`.
pub fn strong_wolfe<E>(
    search: &Search,
    from: Point,
    mut function: impl FnMut(f64) -> Result<(f64, f64), E>,
) -> Result<Option<Point>, E> {
    let mut at = |step: f64| function(step).map(|(value, slope)| Point { step, value, slope });
    let (mut before, mut best) = (from, None::<Point>);
    let mut step = search.first.min(search.longest);
    // `low` decreases enough and has the smallest value so far. A good step lies between it and `high`.
    let mut bracket = None::<(Point, Point)>;
    for _ in 0..search.tries {
        if let Some((low, high)) = bracket {
            step = between(low, high);
            if (high.step - low.step).abs() <= 1e-14 * low.step.max(high.step) {
                break;
            }
        }
        let now = at(step)?;
        let falls = now.value.is_finite() && search.falls(from, now);
        if falls && search.accepts(from, now) {
            return Ok(Some(now));
        }
        if falls && best.is_none_or(|best| now.value < best.value) {
            best = Some(now);
        }
        bracket = match bracket {
            None if !falls || (before.step > 0.0 && now.value >= before.value) => Some((before, now)),
            None if now.slope >= 0.0 => Some((now, before)),
            None => {
                step = further(before, now).min(search.longest);
                before = now;
                None
            }
            Some((low, _)) if !falls || now.value >= low.value => Some((low, now)),
            Some((low, high)) if now.slope * (high.step - low.step) >= 0.0 => Some((now, low)),
            Some((_, high)) => Some((now, high)),
        };
    }
    Ok(best)
}

/// The minimum of the cubic through two points, at least a tenth of the interval away from both.
fn between(a: Point, b: Point) -> f64 {
    let width = b.step - a.step;
    let (low, high) = (a.step.min(b.step) + 0.1 * width.abs(), a.step.max(b.step) - 0.1 * width.abs());
    let step = cubic(a, b);
    if step.is_finite() { step.clamp(low, high) } else { a.step + 0.5 * width }
}

/// The minimum of the cubic through two points that both decrease enough, clamped to 2 to 10 times the distance.
fn further(a: Point, b: Point) -> f64 {
    let step = cubic(a, b);
    let (low, high) = (2.0 * b.step, 10.0 * b.step);
    if step.is_finite() && step > b.step { step.clamp(low, high) } else { high }
}

/// Nocedal and Wright, equation 3.59.
fn cubic(a: Point, b: Point) -> f64 {
    let d1 = a.slope + b.slope - 3.0 * (a.value - b.value) / (a.step - b.step);
    let root = (d1 * d1 - a.slope * b.slope).sqrt();
    let d2 = root.copysign(b.step - a.step);
    b.step - (b.step - a.step) * (b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(search: &Search, f: impl Fn(f64) -> (f64, f64)) -> (Option<Point>, u32) {
        let (value, slope) = f(0.0);
        let mut tried = 0;
        let found = strong_wolfe(search, Point { step: 0.0, value, slope }, |t| {
            tried += 1;
            Ok::<_, std::convert::Infallible>(f(t))
        });
        (found.unwrap_or_else(|never| match never {}), tried)
    }

    #[test]
    fn a_first_step_that_fits_is_taken_at_once() {
        let (found, tried) = run(&Search::default(), |t| ((t - 1.0) * (t - 1.0), 2.0 * (t - 1.0)));
        assert_eq!((found.map(|p| p.step), tried), (Some(1.0), 1));
    }

    #[test]
    fn the_longest_step_needs_no_flat_end() {
        let search = Search { longest: 1.0, ..Search::default() };
        let (found, tried) = run(&search, |t| (-t, -1.0));
        assert_eq!((found.map(|p| p.step), tried), (Some(1.0), 1));
    }

    #[test]
    fn nothing_falls_where_all_rises() {
        // The slope is wrong: the values rise at once.
        let (found, _) = run(&Search::default(), |t| (t, if t == 0.0 { -1.0 } else { 1.0 }));
        assert_eq!(found, None);
    }

    proptest! {
        /// Convex functions with a known minimum: flat and steep, near and far. The conditions hold at the step found,
        /// and a narrow search finds the minimum itself.
        #[test]
        fn the_conditions_hold(minimum in -6.0f64..6.0, scale in -6.0f64..6.0, quartic in 0.0f64..1.0) {
            let (minimum, scale) = (minimum.exp(), scale.exp());
            let f = |t: f64| {
                let x = (t - minimum) / minimum;
                (scale * (x * x + quartic * x * x * x * x), scale * (2.0 * x + 4.0 * quartic * x * x * x) / minimum)
            };
            let search = Search::default();
            let (value, slope) = f(0.0);
            let (found, _) = run(&search, f);
            let p = found.expect("a convex function has such a step");
            prop_assert!(p.value <= value + search.decrease * p.step * slope);
            prop_assert!(p.slope.abs() <= search.curvature * slope.abs());
            let (exact, _) = run(&Search { curvature: 1e-3, ..search }, f);
            let p = exact.expect("a convex function has such a step");
            prop_assert!((p.step - minimum).abs() <= 0.01 * minimum, "{p:?} {minimum}");
        }
    }
}
