//! How the weights of rows are stored.

use crate::hash::mix;
use crate::push_name::PushName;
use crate::schema::schema_error::SchemaError;
use crate::schema::segment::Segment;
use crate::schema::table_schema::Schema;
use gannet_optim::Float16;

/// How the weights of rows are stored. The optimizer's state is always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowType {
    /// 4 bytes a weight.
    #[default]
    F32,
    /// 2 bytes a weight, as bfloat16: an f32 without its lower 16 bits. A step computes in f32 and is then rounded by
    /// chance ([`Packed`](gannet_optim::Packed)). The chance follows from the key and the names of table and push, so
    /// copies of a row stay equal.
    Bf16,
    /// 2 bytes a weight, as IEEE 754's binary16. It ends at 65,504. From there down to 6e-5 it rounds eight
    /// times as finely as bf16.
    F16,
}

impl RowType {
    /// The name as flags and messages spell it.
    pub fn name(self) -> &'static str {
        self.float16().map_or("f32", Float16::name)
    }

    /// The format of weights that take 2 bytes.
    pub fn float16(self) -> Option<Float16> {
        match self {
            RowType::F32 => None,
            RowType::Bf16 => Some(Float16::Bf16),
            RowType::F16 => Some(Float16::F16),
        }
    }
}

impl From<Float16> for RowType {
    fn from(format: Float16) -> RowType {
        match format {
            Float16::Bf16 => RowType::Bf16,
            Float16::F16 => RowType::F16,
        }
    }
}

impl Schema {
    /// The table with its weights stored in this type. In a segment of one weight 2 bytes save nothing, so it stays
    /// f32.
    ///
    /// ```
    /// use gannet_core::{RowType, Schema};
    /// use gannet_optim::{Rule, RowAdaGrad};
    ///
    /// let rule = Rule::RowAdaGrad(RowAdaGrad { lr: 0.05, eps: 1e-8, initial_accumulator: 0.1 });
    /// let wide = Schema { dim: 32, ..Schema::scalar("users", rule) };
    /// let small = wide.with_row_type(RowType::Bf16)?;
    /// assert_eq!((wide.stride(), small.stride()), (152, 88)); // bytes a row
    /// assert_eq!((wide.weights(), small.weights()), (32, 32));
    /// assert_eq!((wide.floats(), small.floats()), (33, 17));
    /// # Ok::<(), gannet_core::SchemaError>(())
    /// ```
    ///
    /// # Errors
    /// Bf16 or f16, and every segment has one weight, or the rule of a longer one stores no weights (FTRL, group FTRL)
    /// or adds what is pushed (add).
    pub fn with_row_type(&self, row_type: RowType) -> Result<Schema, SchemaError> {
        let Some(format) = row_type.float16() else {
            let mut schema = self.clone();
            schema.rule = schema.rule.f32_rule();
            schema.more.iter_mut().for_each(|segment| segment.rule = segment.rule.f32_rule());
            return Ok(schema);
        };
        let refused = |reason: String| SchemaError::Rule { table: self.name.clone(), reason };
        if self.segments().all(|segment| segment.dim == 1) {
            let name = format.name();
            return Err(refused(format!(
                "a row has one weight, so {name} would save nothing: leave the row type f32"
            )));
        }
        let rule = |Segment { dim, rule, .. }: Segment| match dim {
            1 => Ok(rule),
            _ => rule.with_packed_weights(format).map_err(|error| {
                refused(format!("{error}; choose another optimizer, or leave the row type f32"))
            }),
        };
        let rules = self.segments().map(rule).collect::<Result<Vec<_>, SchemaError>>()?;
        let mut schema = self.clone();
        schema.rule = rules[0];
        schema.more.iter_mut().zip(&rules[1..]).for_each(|(segment, &rule)| segment.rule = rule);
        Ok(schema)
    }

    /// How the weights are stored: in the type of the first segment whose weights are not f32, if one has such.
    pub fn row_type(&self) -> RowType {
        self.segments().find_map(|segment| segment.rule.float16()).map_or(RowType::F32, RowType::from)
    }

    /// Writes the weights of a key without a row into `out`, as its row would store them: [`weights`](Self::weights)
    /// floats.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn first_weights(&self, key: u64, out: &mut [f32]) {
        self.initial_weights(key, out);
        let mut rest = out;
        for Segment { dim, rule, .. } in self.segments() {
            let (own, behind) = rest.split_at_mut(dim as usize);
            rule.round_weights(own);
            rest = behind;
        }
    }

    /// Floats of a row with weights as f32, in all its segments ([`put_f32_row`](Self::put_f32_row)).
    pub fn f32_floats(&self) -> usize {
        self.segments().map(|segment| segment.rule.f32_rule().floats(segment.dim as usize)).sum()
    }

    /// What decides how a push rounds rows of this table: the name of the table without that of its run, and the name
    /// of the push. [`row_chance`] makes the chance of a row of it.
    pub(crate) fn push_chance(&self, name: &PushName) -> u64 {
        let own = self.name.rsplit('.').next().unwrap_or_default();
        let table = own.bytes().fold(own.len() as u64, |table, byte| mix(table ^ u64::from(byte)));
        [name.pusher, name.incarnation, name.seq].into_iter().fold(table, |chance, part| mix(chance ^ part))
    }

    /// The most floats that a request moves for a row: its stored floats, or more weights than these.
    pub fn widest(&self) -> usize {
        self.floats().max(self.weights())
    }

    /// Appends a stored row with its weights as f32.
    ///
    /// # Panics
    /// When `row` has not [`floats`](Self::floats) floats.
    pub fn put_f32_row(&self, row: &[f32], out: &mut Vec<f32>) {
        assert_eq!(row.len(), self.floats());
        let mut row = row;
        for Segment { dim, rule, .. } in self.segments() {
            let (own, behind) = row.split_at(rule.floats(dim as usize));
            rule.put_f32_row(dim as usize, own, out);
            row = behind;
        }
    }

    /// Appends the stored row of a row whose weights are f32. Weights of 2 bytes are the nearest ones. Weights beyond
    /// the range of f16 become infinite, and [`is_sound_row`](Schema::is_sound_row) refuses the row.
    ///
    /// # Panics
    /// When `row` has not [`f32_floats`](Self::f32_floats) floats.
    pub fn put_row_of_f32(&self, row: &[f32], out: &mut Vec<f32>) {
        assert_eq!(row.len(), self.f32_floats());
        let mut row = row;
        for Segment { dim, rule, .. } in self.segments() {
            let (own, behind) = row.split_at(rule.f32_rule().floats(dim as usize));
            rule.put_row_of_f32(dim as usize, own, out);
            row = behind;
        }
    }
}

/// The chance by which a push with this [`push_chance`](Schema::push_chance) rounds the row of a key.
#[inline(always)]
pub(crate) fn row_chance(push: u64, key: u64) -> u64 {
    mix(key ^ push)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::init::Init;
    use gannet_optim::{AdaGrad, Ftrl, GradientTransform, Rule, Sgd};

    const ADAGRAD: Rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    const FTRL: Rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });

    #[test]
    fn segments_of_one_weight_stay_f32() {
        let factor = Segment { dim: 5, rule: ADAGRAD, shaping: GradientTransform::NONE, init: Init::Zero };
        let wide = Schema { more: vec![factor], ..Schema::scalar("t", FTRL) };
        let small = wide.with_row_type(RowType::Bf16).unwrap();
        let packed = |format| ADAGRAD.with_packed_weights(format).unwrap();
        assert_eq!((small.rule, small.more[0].rule), (FTRL, packed(Float16::Bf16)));
        assert_eq!((small.floats(), small.f32_floats(), wide.floats()), (2 + 3 + 5, 12, 12));
        assert_eq!((small.row_type(), wide.row_type()), (RowType::Bf16, RowType::F32));
        assert_eq!(small.with_row_type(RowType::Bf16).unwrap(), small);
        assert_eq!(small.with_row_type(RowType::F32).unwrap(), wide);
        let other = small.with_row_type(RowType::F16).unwrap();
        assert_eq!((other.row_type(), other.more[0].rule), (RowType::F16, packed(Float16::F16)));
        assert_eq!(other, wide.with_row_type(RowType::F16).unwrap());
        assert_eq!(Schema::decode(&other.encode()), Some(other.clone()));
        assert_eq!(Schema::decode(&small.encode()), Some(small.clone()));
        let row: Vec<f32> = (1u8..=12).map(f32::from).collect();
        let (mut packed, mut again) = (Vec::new(), Vec::new());
        small.put_row_of_f32(&row, &mut packed);
        small.put_f32_row(&packed, &mut again);
        assert_eq!((packed.len(), again), (10, row));
        assert!(small.differences(&wide).contains("the rule of segment 1 is packed (bf16, adagrad"));
    }

    /// Golden: an owner and its copies round alike, whatever their versions.
    #[test]
    fn the_chance_is_frozen() {
        let name = PushName { pusher: 3, incarnation: 2, seq: 9, row: 5 };
        let schema = |name: &str| Schema::scalar(name, ADAGRAD);
        let chance = |schema: Schema, name| row_chance(schema.push_chance(&name), 77);
        let first = chance(schema("run.users"), name);
        assert_eq!(first, 8_027_272_720_442_633_539);
        // Neither the run nor the place of a row in its push matters. All else does.
        assert_eq!(chance(schema("other.users"), PushName { row: 0, ..name }), first);
        let others = [
            chance(schema("ads"), name),
            chance(schema("users"), PushName { pusher: 4, ..name }),
            chance(schema("users"), PushName { incarnation: 3, ..name }),
            chance(schema("users"), PushName { seq: 10, ..name }),
            row_chance(schema("users").push_chance(&name), 78),
        ];
        others.iter().for_each(|&other| assert_ne!(other, first));
    }

    #[test]
    fn a_gradient_may_be_longer_than_a_stored_row() {
        let wide = Schema { dim: 64, ..Schema::scalar("t", Rule::Sgd(Sgd { lr: 0.1 })) };
        let small = wide.with_row_type(RowType::Bf16).unwrap();
        assert_eq!((small.floats(), small.widest(), wide.widest()), (32, 64, 64));
    }

    #[test]
    fn initial_values_must_fit_into_f16() {
        let check = |init, row_type| {
            let table = Schema { dim: 4, init, ..Schema::scalar("t", ADAGRAD) };
            table.with_row_type(row_type).unwrap().check().map_err(|error| error.to_string())
        };
        let uniform = |high| Init::Uniform { low: -1.0, high };
        assert_eq!(check(uniform(65_504.0), RowType::F16), Ok(()));
        assert_eq!(check(uniform(65_505.0), RowType::Bf16), Ok(()));
        let why = check(uniform(65_505.0), RowType::F16).unwrap_err();
        assert!(why.starts_with("table \"t\": initial values Uniform"), "{why}");
        assert!(why.contains("beyond the largest f16"), "{why}");
        let normal = |deviation| Init::Normal { mean: -100.0, deviation };
        assert_eq!(check(normal(9_760.0), RowType::F16), Ok(()));
        assert!(check(normal(9_770.0), RowType::F16).is_err());
    }

    #[test]
    fn what_bf16_cannot_store_is_refused_by_name() {
        let refused = |schema: Schema| schema.with_row_type(RowType::Bf16).unwrap_err().to_string();
        let one = refused(Schema::scalar("t", ADAGRAD));
        assert_eq!(
            one,
            "table \"t\": a row has one weight, so bf16 would save nothing: leave the row type f32"
        );
        let ftrl = refused(Schema { dim: 4, ..Schema::scalar("t", FTRL) });
        assert!(
            ftrl.starts_with("table \"t\": ftrl takes no weights in bf16: it stores no weights"),
            "{ftrl}"
        );
    }
}
