//! How the weights of rows are stored.

use crate::schema::schema_error::SchemaError;
use crate::schema::segment::Segment;
use crate::schema::table_schema::Schema;

/// How the weights of rows are stored. The optimizer's state is always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowType {
    /// 4 bytes a weight.
    #[default]
    F32,
    /// 2 bytes a weight, as bfloat16: an f32 without its lower 16 bits. A step computes in f32 and is then rounded by
    /// chance ([`Bf16`](gannet_optim::Bf16)). The chance follows from the key and the name of the push, so copies of a
    /// row stay equal.
    Bf16,
}

impl Schema {
    /// The table with its weights stored in this type. In a segment of one weight bf16 saves nothing, so it stays f32.
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
    /// Bf16, and every segment has one weight, or the rule of a longer one stores no weights (FTRL, group FTRL) or adds
    /// what is pushed (add).
    pub fn with_row_type(&self, row_type: RowType) -> Result<Schema, SchemaError> {
        if row_type == RowType::F32 {
            let mut schema = self.clone();
            schema.rule = schema.rule.f32_rule();
            schema.more.iter_mut().for_each(|segment| segment.rule = segment.rule.f32_rule());
            return Ok(schema);
        }
        let refused = |reason: String| SchemaError::Rule { table: self.name.clone(), reason };
        if self.segments().all(|segment| segment.dim == 1) {
            return Err(refused(
                "a row has one weight, so bf16 would save nothing: leave the row type f32".into(),
            ));
        }
        let rule = |Segment { dim, rule, .. }: Segment| match dim {
            1 => Ok(rule),
            _ => rule.with_bf16_weights().map_err(|error| {
                refused(format!("{error}; choose another optimizer, or leave the row type f32"))
            }),
        };
        let rules = self.segments().map(rule).collect::<Result<Vec<_>, SchemaError>>()?;
        let mut schema = self.clone();
        schema.rule = rules[0];
        schema.more.iter_mut().zip(&rules[1..]).for_each(|(segment, &rule)| segment.rule = rule);
        Ok(schema)
    }

    /// How the weights are stored: bf16 if those of a segment are.
    pub fn row_type(&self) -> RowType {
        match self.segments().any(|segment| segment.rule.has_bf16_weights()) {
            true => RowType::Bf16,
            false => RowType::F32,
        }
    }

    /// Floats of a row with weights as f32, in all its segments ([`put_f32_row`](Self::put_f32_row)).
    pub fn f32_floats(&self) -> usize {
        self.segments().map(|segment| segment.rule.f32_rule().floats(segment.dim as usize)).sum()
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

    /// Appends the stored row of a row whose weights are f32. Weights in bf16 are the nearest ones.
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
        assert_eq!((small.rule, small.more[0].rule), (FTRL, ADAGRAD.with_bf16_weights().unwrap()));
        assert_eq!((small.floats(), small.f32_floats(), wide.floats()), (2 + 3 + 5, 12, 12));
        assert_eq!((small.row_type(), wide.row_type()), (RowType::Bf16, RowType::F32));
        assert_eq!(small.with_row_type(RowType::Bf16).unwrap(), small);
        assert_eq!(small.with_row_type(RowType::F32).unwrap(), wide);
        assert_eq!(Schema::decode(&small.encode()), Some(small.clone()));
        let row: Vec<f32> = (1u8..=12).map(f32::from).collect();
        let (mut packed, mut again) = (Vec::new(), Vec::new());
        small.put_row_of_f32(&row, &mut packed);
        small.put_f32_row(&packed, &mut again);
        assert_eq!((packed.len(), again), (10, row));
        assert!(small.differences(&wide).contains("the rule of segment 1 is bf16 (adagrad"));
    }

    #[test]
    fn a_gradient_may_be_longer_than_a_stored_row() {
        let wide = Schema { dim: 64, ..Schema::scalar("t", Rule::Sgd(Sgd { lr: 0.1 })) };
        let small = wide.with_row_type(RowType::Bf16).unwrap();
        assert_eq!((small.floats(), small.widest(), wide.widest()), (32, 64, 64));
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
