//! What a table is: name, dimension, update rule, gradient transform, initial values, number of shards.

use crate::hash::mix;
use crate::limits::{DIM_MAX, SEGMENTS_MAX, SHARDS_MAX, TABLE_NAME_BYTES_MAX};
use crate::schema::admission::Admission;
use crate::schema::init::{Init, initial_weights, is_sound_of};
use crate::schema::rule_bytes::{self, RULE_BYTES};
use crate::schema::schema_error::SchemaError;
use crate::schema::segment::Segment;
use gannet_optim::{GradientTransform, Rule, Update, Visitor, all_finite, in_words};

/// A table's schema. Two schemas are the same only if every field is equal.
///
/// ```
/// use gannet_core::Schema;
/// use gannet_optim::{Add, Rule};
///
/// let schema = Schema { dim: 16, shards: 8, ..Schema::scalar("users", Rule::Add(Add)) };
/// schema.check()?;
/// assert_eq!((schema.weights(), schema.floats()), (16, 16));
/// assert_eq!(Schema::decode(&schema.encode()), Some(schema));
/// # Ok::<(), gannet_core::SchemaError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Name: 1 to 64 bytes of `[A-Za-z0-9_.-]`, not starting with a dot. The table's folder has the same name.
    pub name: String,
    /// Weights of a row in the first segment. Most tables have no other segment.
    pub dim: u32,
    /// The update rule that the server runs.
    pub rule: Rule,
    /// What happens to a gradient and to the learning rate before the rule runs.
    pub shaping: GradientTransform,
    /// Initial weights.
    pub init: Init,
    /// Seed of the initial weights.
    pub seed: u64,
    /// Number of shards: a power of two, from 1 to 4096. It never changes.
    pub shards: u32,
    /// Which push of a key creates its row.
    pub admission: Admission,
    /// The segments after the first, at most 7. The fields `dim`, `rule`, `shaping` and `init` above describe the first
    /// one.
    pub more: Vec<Segment>,
}

/// Default number of shards of a table. [`Schema::scalar`] uses it. At servers, a new table of the default number gets
/// as many as their threads use evenly.
pub const SHARDS_DEFAULT: u32 = 64;

struct SoundRow<'a>(u64, &'a [f32]);

impl Visitor for SoundRow<'_> {
    type Out = bool;

    fn run<U: Update>(self, rule: U) -> bool {
        all_finite(self.1) && is_sound_of(rule, self.0, self.1)
    }
}

/// What a data folder has besides its tables, with and without `.new` behind it: of this crate and of the server.
const RESERVED_NAMES: [&str; 9] =
    ["LOCK", "TABLES", "UNSYNCED", "PLACE", "INCARNATIONS", "RESTORING", "COORDINATOR", "RUNS", "former"];

impl Schema {
    /// How this schema differs from `requested`, in words: each different field, with both values. Empty when
    /// the schemas are equal.
    pub fn differences(&self, requested: &Schema) -> String {
        let mut all = Vec::new();
        let mut differ = |field: &str, here: &dyn std::fmt::Debug, there: &dyn std::fmt::Debug| {
            if format!("{here:?}") != format!("{there:?}") {
                let (here, there) = (in_words(here), in_words(there));
                all.push(format!("{field} {here}, but {there} was requested"));
            }
        };
        differ("its name is", &self.name, &requested.name);
        differ("its dimension is", &self.dim, &requested.dim);
        differ("its rule is", &self.rule, &requested.rule);
        differ("its gradient transform is", &self.shaping, &requested.shaping);
        differ("its initial weights are", &self.init, &requested.init);
        differ("its seed is", &self.seed, &requested.seed);
        differ("its number of shards is", &self.shards, &requested.shards);
        differ("its admission is", &self.admission, &requested.admission);
        let same = self.more.len() == requested.more.len();
        let (ours, theirs): (&[Segment], &[Segment]) =
            if same { (&self.more, &requested.more) } else { (&[], &[]) };
        differ("its number of further segments is", &self.more.len(), &requested.more.len());
        for (n, (here, there)) in (1..).zip(ours.iter().zip(theirs)) {
            differ(&format!("the dimension of segment {n} is"), &here.dim, &there.dim);
            differ(&format!("the rule of segment {n} is"), &here.rule, &there.rule);
            differ(&format!("the gradient transform of segment {n} is"), &here.shaping, &there.shaping);
            differ(&format!("the initial weights of segment {n} are"), &here.init, &there.init);
        }
        all.join("; ")
    }

    /// Whether a model of this schema cannot be used as one of `other`, whatever it has learned: the table's
    /// name or the shape of its rows differs.
    pub fn is_of_another_kind(&self, other: &Schema) -> bool {
        let dims = |schema: &Schema| schema.more.iter().map(|segment| segment.dim).collect::<Vec<_>>();
        (&self.name, self.dim, dims(self)) != (&other.name, other.dim, dims(other))
    }

    /// A table of one weight a row with zero initial values and 64 shards.
    pub fn scalar(name: &str, rule: Rule) -> Schema {
        let (shaping, init, shards, admission) =
            (GradientTransform::NONE, Init::Zero, SHARDS_DEFAULT, Admission::All);
        Schema {
            name: name.into(),
            dim: 1,
            rule,
            shaping,
            init,
            seed: 0,
            shards,
            admission,
            more: Vec::new(),
        }
    }

    /// Whether the table's rules can have made this row of [`floats`](Self::floats) floats for this key. A push that
    /// would make another row is not applied.
    pub fn is_sound_row(&self, key: u64, row: &[f32]) -> bool {
        let mut rest = row;
        row.len() == self.floats()
            && self.segments().all(|segment| {
                let (floats, behind) = rest.split_at(segment.rule.floats(segment.dim as usize));
                rest = behind;
                segment.rule.visit(SoundRow(key, floats))
            })
    }

    /// The segments of a row, in the order in which rows, pulls and pushes have them.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let Schema { dim, rule, shaping, init, .. } = *self;
        std::iter::once(Segment { dim, rule, shaping, init }).chain(self.more.iter().copied())
    }

    /// Writes the initial weights of `key` into `out`, one segment after another: [`Schema::weights`] floats.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn initial_weights(&self, key: u64, out: &mut [f32]) {
        let (first, mut rest) = out.split_at_mut(self.dim as usize);
        initial_weights(self.init, self.seed, key, first);
        for (number, segment) in (1u64..).zip(&self.more) {
            let (own, behind) = rest.split_at_mut(segment.dim as usize);
            initial_weights(segment.init, mix(self.seed ^ number << 32), key, own);
            rest = behind;
        }
        assert!(rest.is_empty(), "a weight for each of the schema's");
    }

    /// Weights of a row in all its segments.
    pub fn weights(&self) -> usize {
        self.segments().map(|segment| segment.dim as usize).sum()
    }

    /// Floats of a stored row in all its segments. A segment has its rule's planes of `dim` floats, then the rule's
    /// scalars ([`Rule::floats`]). Packed weights lie two in a float.
    pub fn floats(&self) -> usize {
        self.segments().map(|segment| segment.rule.floats(segment.dim as usize)).sum()
    }

    /// Whether changes of state may be pushed ([`Write::Change`](crate::Write::Change)). They may if the state
    /// of every rule consists of sums, and no transform changes a gradient before its rule.
    pub fn replays(&self) -> bool {
        self.segments().all(|segment| segment.rule.replays() && segment.shaping.replays())
    }

    /// Bytes from one slot to the next: version, key and floats, rounded up to a multiple of 8.
    pub fn stride(&self) -> usize {
        16 + (self.floats() * 4).next_multiple_of(8)
    }

    /// Checks the name of a table, which is also the name of its folder.
    ///
    /// # Errors
    /// The name is empty, longer than 64 bytes, begins with a dot, or has a character that is no letter, digit, `_`,
    /// `.` or `-`. Or data folders have something else of this name.
    pub fn check_name(name: &str) -> Result<(), SchemaError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let sound = !name.is_empty() && name.len() <= TABLE_NAME_BYTES_MAX && !name.starts_with('.');
        if !sound || !name.chars().all(allowed) {
            return Err(SchemaError::Name(name.to_owned()));
        }
        let is_reserved = RESERVED_NAMES.contains(&name.strip_suffix(".new").unwrap_or(name));
        let is_state = name.starts_with("scheduler.") && name.ends_with(".book");
        if is_reserved || is_state { Err(SchemaError::Reserved(name.to_owned())) } else { Ok(()) }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), SchemaError> {
        let table = || self.name.clone();
        Schema::check_name(&self.name)?;
        if self.more.len() >= SEGMENTS_MAX {
            return Err(SchemaError::Segments { table: table(), segments: self.more.len() + 1 });
        }
        let mut dims = 0u32;
        for Segment { dim, .. } in self.segments() {
            dims = dims.saturating_add(dim);
            if dim == 0 || dims > DIM_MAX {
                return Err(SchemaError::Dim { table: table(), dim: if dim == 0 { 0 } else { dims } });
            }
        }
        if !self.shards.is_power_of_two() || self.shards > SHARDS_MAX {
            return Err(SchemaError::Shards { table: table(), shards: self.shards });
        }
        self.admission.check(&self.name)?;
        for Segment { rule, shaping, init, .. } in self.segments() {
            let sound = match init {
                Init::Zero => true,
                Init::Uniform { low, high } => low.is_finite() && high.is_finite() && low <= high,
                Init::Normal { mean, deviation } => {
                    mean.is_finite() && deviation.is_finite() && deviation >= 0.0
                }
            };
            if !sound {
                return Err(SchemaError::Init { table: table(), init });
            }
            if let Some(format) = rule.float16()
                && init.largest() > format.largest()
            {
                return Err(SchemaError::InitRange { table: table(), init, row_type: format.name() });
            }
            let checked = rule.check().and_then(|()| shaping.check(&rule));
            checked.map_err(|e| SchemaError::Rule { table: table(), reason: e.to_string() })?;
        }
        Ok(())
    }

    /// The schema as bytes, for image headers and for comparison: fixed width, little-endian (docs/image.md).
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.extend((self.name.len() as u32).to_le_bytes());
        out.extend(self.name.as_bytes());
        out.extend(self.dim.to_le_bytes());
        out.extend(self.shards.to_le_bytes());
        out.extend(self.seed.to_le_bytes());
        put_init(&mut out, &self.init);
        rule_bytes::put_rule(&mut out, &self.rule, &self.shaping);
        self.admission.encode().iter().for_each(|x| out.extend(x.to_le_bytes()));
        out.extend((self.more.len() as u32).to_le_bytes());
        for segment in &self.more {
            out.extend(segment.dim.to_le_bytes());
            put_init(&mut out, &segment.init);
            rule_bytes::put_rule(&mut out, &segment.rule, &segment.shaping);
        }
        out
    }

    /// The schema that these bytes encode; `None` when they are not a schema, or when it fails
    /// [`check`](Self::check).
    pub fn decode(bytes: &[u8]) -> Option<Schema> {
        let mut at = 0;
        let mut take = |n: usize| {
            at += n;
            bytes.get(at - n..at)
        };
        let word = |b: &[u8]| Some(u32::from_le_bytes(b.try_into().ok()?));
        let length = word(take(4)?)? as usize;
        let name = String::from_utf8(take(length.min(TABLE_NAME_BYTES_MAX + 1))?.to_vec()).ok()?;
        let dim = word(take(4)?)?;
        let shards = word(take(4)?)?;
        let seed = u64::from_le_bytes(take(8)?.try_into().ok()?);
        let init = init_of(take(INIT_BYTES)?)?;
        let (rule, shaping) = rule_bytes::take_rule(take(RULE_BYTES)?)?;
        let admission = Admission::decode([word(take(4)?)?, word(take(4)?)?, word(take(4)?)?])?;
        let mut more = Vec::new();
        for _ in 0..(word(take(4)?)? as usize).min(SEGMENTS_MAX) {
            let (dim, init) = (word(take(4)?)?, init_of(take(INIT_BYTES)?)?);
            let (rule, shaping) = rule_bytes::take_rule(take(RULE_BYTES)?)?;
            more.push(Segment { dim, rule, shaping, init });
        }
        let schema = Schema { name, dim, rule, shaping, init, seed, shards, admission, more };
        schema.check().ok().map(|()| schema)
    }
}

/// Bytes of encoded initial values.
const INIT_BYTES: usize = 12;
/// Bytes of an encoded segment.
const SEGMENT_BYTES: usize = 4 + INIT_BYTES + RULE_BYTES;
/// The most bytes of an encoded schema.
pub(crate) const SCHEMA_BYTES_MAX: usize =
    4 + TABLE_NAME_BYTES_MAX + 4 + 8 + SEGMENT_BYTES + 12 + 4 + (SEGMENTS_MAX - 1) * SEGMENT_BYTES;

fn put_init(out: &mut Vec<u8>, init: &Init) {
    let (kind, a, b) = match *init {
        Init::Zero => (0u32, 0.0, 0.0),
        Init::Uniform { low, high } => (1, low, high),
        Init::Normal { mean, deviation } => (2, mean, deviation),
    };
    out.extend(kind.to_le_bytes());
    out.extend(a.to_le_bytes());
    out.extend(b.to_le_bytes());
}

fn init_of(bytes: &[u8]) -> Option<Init> {
    let &[k0, k1, k2, k3, a0, a1, a2, a3, b0, b1, b2, b3] = bytes else { return None };
    let (a, b) = (f32::from_le_bytes([a0, a1, a2, a3]), f32::from_le_bytes([b0, b1, b2, b3]));
    Some(match u32::from_le_bytes([k0, k1, k2, k3]) {
        0 => Init::Zero,
        1 => Init::Uniform { low: a, high: b },
        2 => Init::Normal { mean: a, deviation: b },
        _ => return None,
    })
}
