//! Normalization: how the values of each feature are brought to one size, so that no learner depends on the unit in
//! which a feature is measured. The first examples say how large the values are. From then on that is fixed: a model
//! stores it, and every worker, test and prediction uses it.

use crate::limits::NORMALIZED_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::error::ReadError;
use gannet_core::hash;
use std::fmt::{self, Write};
use std::sync::{Arc, OnceLock};

/// What a feature's values become: `(x - center) * factor`, bounded. Of a skewed one, x is first replaced by the
/// logarithm of `1 + |x| / unit`, with the sign of x.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NormalizedFeature {
    /// The key of the feature.
    pub key: u64,
    /// The mean of a feature that every example has, else 0.
    pub center: f32,
    /// One over the size of the values: finite, and not 0.
    pub factor: f32,
    /// The size from which the logarithm grows more slowly than its number. 0: the values are no logarithms.
    pub unit: f32,
}

impl NormalizedFeature {
    /// The value before it is centered.
    #[inline(always)]
    pub(crate) fn compressed(unit: f32, x: f32) -> f32 {
        if unit > 0.0 { ((f64::from(x.abs()) / f64::from(unit)).ln_1p() as f32).copysign(x) } else { x }
    }
}

/// The normalization of all features. A feature that is not listed becomes its sign: its values had one size, or it was
/// not seen yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Normalization {
    /// What is added to the base of each example, so that the weight of the intercept starts there.
    start: f32,
    /// In the order of their keys.
    features: Vec<NormalizedFeature>,
    /// Where each feature is, by the hash of its key: its place plus 1, or 0 where there is none.
    places: Vec<u32>,
}

impl Normalization {
    /// The normalization by these features, whose keys are unique. Of the intercept, the center is the
    /// [start](Self::start).
    pub fn new(mut features: Vec<NormalizedFeature>) -> Normalization {
        let start = features.iter().find(|feature| feature.key == INTERCEPT_KEY);
        let start = start.map_or(0.0, |intercept| intercept.center);
        let start = if start.is_finite() { start } else { 0.0 };
        features.retain(|feature| feature.key != INTERCEPT_KEY);
        features.retain(|feature| {
            feature.factor.is_normal() && feature.center.is_finite() && feature.unit >= 0.0
        });
        features.sort_unstable_by_key(|feature| feature.key);
        features.dedup_by_key(|feature| feature.key);
        if features.is_empty() {
            return Normalization { start, ..Normalization::default() };
        }
        let mut places = vec![0; (features.len() * 4).next_power_of_two()];
        for (place, feature) in (1..).zip(&features) {
            let mut at = hash(feature.key) as usize & (places.len() - 1);
            while places[at] != 0 {
                at = (at + 1) & (places.len() - 1);
            }
            places[at] = place;
        }
        Normalization { start, features, places }
    }

    /// The features, and the intercept if it has a start: what [`new`](Self::new) takes.
    pub fn all(&self) -> Vec<NormalizedFeature> {
        let intercept = NormalizedFeature { key: INTERCEPT_KEY, center: self.start, factor: 1.0, unit: 0.0 };
        let start = (self.start != 0.0).then_some(intercept);
        self.features.iter().copied().chain(start).collect()
    }

    /// The margin of an example without features before anything is learned.
    pub fn start(&self) -> f32 {
        self.start
    }

    /// The features that do not become their sign, in the order of their keys.
    pub fn features(&self) -> &[NormalizedFeature] {
        &self.features
    }

    /// The feature with this key. `None`: its values become their sign.
    #[inline(always)]
    pub fn feature(&self, key: u64) -> Option<&NormalizedFeature> {
        if self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut at = hash(key) as usize & mask;
        loop {
            match self.places[at] {
                0 => return None,
                place => {
                    let feature = &self.features[place as usize - 1];
                    if feature.key == key {
                        return Some(feature);
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// What a value of the feature with this key becomes.
    #[inline(always)]
    pub fn of(&self, key: u64, x: f32) -> f32 {
        match self.feature(key) {
            Some(feature) => {
                let x = NormalizedFeature::compressed(feature.unit, x);
                ((x - feature.center) * feature.factor).clamp(-NORMALIZED_MAX, NORMALIZED_MAX)
            }
            None => sign(x),
        }
    }

    /// Makes of the weights of these keys those for values, or logarithms, that are not normalized. Only the bound is
    /// lost.
    pub fn measured_as_given(&self, keys: &[u64], weights: &mut [f32]) {
        let mut moved = 0.0;
        for (key, weight) in keys.iter().zip(&mut *weights) {
            if let Some(feature) = self.feature(*key) {
                *weight *= feature.factor;
                moved += f64::from(*weight) * f64::from(feature.center);
            }
        }
        if let Some(at) = keys.iter().position(|&key| key == INTERCEPT_KEY) {
            weights[at] = (f64::from(weights[at]) + f64::from(self.start) - moved) as f32;
        }
    }

    /// Normalizes the values of a block.
    pub(crate) fn apply(&self, block: &mut Block) {
        if self.start != 0.0 {
            block.bases.resize(block.len(), 0.0);
            block.bases.iter_mut().for_each(|base| *base += self.start);
        }
        if !self.features.is_empty() {
            for (&key, value) in block.keys.iter().zip(&mut block.values) {
                *value = self.of(key, *value);
            }
        } else if !all_ones(&block.values) {
            block.values.iter_mut().for_each(|value| *value = sign(*value));
        }
    }

    /// The features, a line each, in the form that [`of_lines`](Self::of_lines) reads.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for NormalizedFeature { key, center, factor, unit } in self.all() {
            let unit = if unit > 0.0 { format!(" {unit:?}") } else { String::new() };
            let _ = writeln!(lines, "{key} {center:?} {factor:?}{unit}");
        }
        lines
    }

    /// A normalization from such lines. `None`: a line is wrong.
    pub fn of_lines(lines: &str) -> Option<Normalization> {
        let feature = |line: &str| {
            let mut parts = line.split(' ');
            let key = parts.next()?.parse().ok()?;
            let (center, factor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let unit = parts.next().map_or(Ok(0.0), str::parse).ok()?;
            Some(NormalizedFeature { key, center, factor, unit })
        };
        lines.lines().map(feature).collect::<Option<Vec<_>>>().map(Normalization::new)
    }
}

/// 1, -1 or 0.
#[inline(always)]
fn sign(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1f32.copysign(x) }
}

/// Whether all values are 1, as in one-hot data.
pub(crate) fn all_ones(values: &[f32]) -> bool {
    const ONE: u32 = 1f32.to_bits();
    values.chunks(256).all(|chunk| chunk.iter().fold(0, |all, value| all | (value.to_bits() ^ ONE)) == 0)
}

/// Where the workers of a job agree on a normalization.
pub trait AgreedNormalization: Send + Sync {
    /// The normalization of the job: that of the first worker that calls this.
    ///
    /// # Errors
    /// The servers are lost: in words.
    fn agree(&self, own: Normalization) -> Result<Normalization, String>;
}

/// Whether the values of features are normalized, and by what. Copies share what the first examples say.
#[derive(Clone, Default)]
pub struct Normalize {
    shared: Option<Arc<SharedNormalization>>,
    /// Whether the first examples that are read with this copy say how large values are.
    surveys: bool,
    asks: SurveyQuestions,
}

/// Where the intercept starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterceptStart {
    /// At 0.
    #[default]
    Zero,
    /// At the log odds of the labels, if one of them is rare. Penalties then pull it there, and not to 0.
    OddsOfRare,
    /// At the logarithm of the mean of the labels, which are counts.
    LogMean,
    /// At this quantile of the labels, in millionths.
    Quantile(u32),
}

/// What the first examples are asked, besides how large values are.
#[derive(Clone, Copy, Debug, Default)]
pub struct SurveyQuestions {
    /// Which numbers of columns are skewed: they become logarithms. In data without columns none does.
    pub logarithms: bool,
    /// Where the intercept starts.
    pub start: InterceptStart,
}

#[derive(Default)]
struct SharedNormalization {
    known: OnceLock<Normalization>,
    with: OnceLock<Arc<dyn AgreedNormalization>>,
    tell: OnceLock<TellNormalization>,
}

/// Hears of a normalization when it is known.
type TellNormalization = Box<dyn Fn(&Normalization) + Send + Sync>;

impl fmt::Debug for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.shared, self.known()) {
            (None, _) => write!(f, "off"),
            (_, None) => write!(f, "by the first examples"),
            (_, Some(known)) => write!(f, "by {} features", known.features.len()),
        }
    }
}

impl Normalize {
    /// Values stay as they are.
    pub fn off() -> Normalize {
        Normalize::default()
    }

    /// By the first examples that are read with this copy.
    pub fn by_first_examples(asks: SurveyQuestions) -> Normalize {
        Normalize { shared: Some(Arc::default()), surveys: true, asks }
    }

    /// What the first examples of data are asked, which has columns or not.
    pub(crate) fn asks(&self, has_columns: bool) -> SurveyQuestions {
        SurveyQuestions { logarithms: self.asks.logarithms && has_columns, ..self.asks }
    }

    /// By what is known.
    pub fn by(known: Normalization) -> Normalize {
        let shared = SharedNormalization { known: known.into(), ..SharedNormalization::default() };
        Normalize { shared: Some(Arc::new(shared)), ..Normalize::default() }
    }

    /// The same, for data that says nothing about the size of values, such as test data.
    pub fn follower(&self) -> Normalize {
        Normalize { surveys: false, ..self.clone() }
    }

    /// Whether values are normalized.
    pub fn is_on(&self) -> bool {
        self.shared.is_some()
    }

    /// What is known of the values. `None`: values are not normalized, or nothing is known yet.
    pub fn known(&self) -> Option<&Normalization> {
        self.shared.as_ref()?.known.get()
    }

    /// Says where the workers of a job agree. Call it once, before anything is read.
    pub fn agree_with(&self, others: Arc<dyn AgreedNormalization>) {
        if let Some(shared) = &self.shared {
            let _ = shared.with.set(others);
        }
    }

    /// Says who hears of the normalization when it is fixed. Call it once, before anything is read.
    pub fn tell(&self, hearer: impl Fn(&Normalization) + Send + Sync + 'static) {
        if let Some(shared) = &self.shared {
            let _ = shared.tell.set(Box::new(hearer));
        }
    }

    /// Whether the first examples are still to be looked at.
    pub(crate) fn is_to_survey(&self) -> bool {
        self.surveys && self.is_on() && self.known().is_none()
    }

    /// Fixes the normalization: that of the job, or else `own`.
    ///
    /// # Errors
    /// The servers of the job are lost.
    pub fn settle(&self, own: Normalization) -> Result<(), ReadError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let agreed = match shared.with.get() {
            Some(others) if shared.known.get().is_none() => others.agree(own).map_err(ReadError::Splits)?,
            _ => own,
        };
        if shared.known.set(agreed).is_ok()
            && let (Some(tell), Some(known)) = (shared.tell.get(), shared.known.get())
        {
            tell(known);
        }
        Ok(())
    }
}
