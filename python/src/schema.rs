//! Tables as Python describes them. A rule and initial values come as a name and their numbers, which the dataclasses
//! of `gannet` hold.

use crate::failure::CallFailure;
use gannet::optim::{AdaGrad, Adam, Add, AmsGrad, Ftrl, GroupFtrl, Momentum, RmsProp, RowAdaGrad, Sgd};
use gannet::table::{Admission, Init, RowType, SKETCH_BYTES_DEFAULT};
use gannet::{Rule, Schema};
use pyo3::FromPyObject;

/// A table's description.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Description {
    name: String,
    dim: u32,
    rule: (String, Vec<f32>),
    init: (String, Vec<f32>),
    shards: u32,
    seed: u64,
    /// Which push of a key makes its row; 0 if a probability decides.
    admit_pushes: u32,
    admit_probability: f32,
    row_type: String,
}

impl Description {
    /// The schema. Whoever opens the table checks its numbers.
    pub fn schema(self) -> Result<Schema, CallFailure> {
        let Description { name, dim, shards, seed, admit_pushes: pushes, .. } = self;
        let rule = rule(&self.rule.0, &self.rule.1)?;
        let init = init(&self.init.0, &self.init.1)?;
        let admission = match pushes {
            0 => Admission::Probability(self.admit_probability),
            1 => Admission::All,
            _ => Admission::Count { pushes, sketch_bytes: SKETCH_BYTES_DEFAULT },
        };
        let row_type = match self.row_type.as_str() {
            "f32" => RowType::F32,
            "bf16" => RowType::Bf16,
            "f16" => RowType::F16,
            other => {
                return Err(CallFailure::input(format!(
                    "row type {other:?} is not known to the native module: the Python files and the native module are of \
                     different versions; install gannet again"
                )));
            }
        };
        let schema =
            Schema { name, dim, rule, init, shards, seed, admission, ..Schema::scalar("", Rule::Add(Add)) };
        schema
            .with_row_type(row_type)
            .map_err(|error| CallFailure::input(format!("row_type={:?}: {error}", row_type.name())))
    }
}

/// A rule by its name and numbers.
pub fn rule(name: &str, numbers: &[f32]) -> Result<Rule, CallFailure> {
    Ok(match (name, numbers) {
        ("add", &[]) => Rule::Add(Add),
        ("sgd", &[lr]) => Rule::Sgd(Sgd { lr }),
        ("momentum", &[lr, momentum, nesterov]) => {
            Rule::Momentum(Momentum { lr, momentum, nesterov: nesterov != 0.0 })
        }
        ("adagrad", &[lr, eps, initial_accumulator]) => {
            Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator })
        }
        ("row-adagrad", &[lr, eps, initial_accumulator]) => {
            Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator })
        }
        ("rmsprop", &[lr, rho, eps]) => Rule::RmsProp(RmsProp { lr, rho, eps }),
        ("adam", &[lr, beta1, beta2, eps, decay]) => Rule::Adam(Adam { lr, beta1, beta2, eps, decay }),
        ("amsgrad", &[lr, beta1, beta2, eps, decay]) => {
            Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay })
        }
        ("ftrl", &[alpha, beta, l1, l2]) => Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        ("group-ftrl", &[alpha, beta, l1, l2, l21]) => {
            Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21 })
        }
        _ => {
            let count = numbers.len();
            return Err(CallFailure::input(format!(
                "optimizer {name:?} with {count} numbers is not known to the native module: the Python files and the \
                 native module are of different versions; install gannet again"
            )));
        }
    })
}

fn init(name: &str, numbers: &[f32]) -> Result<Init, CallFailure> {
    match (name, numbers) {
        ("zero", &[]) => Ok(Init::Zero),
        ("normal", &[mean, deviation]) => Ok(Init::Normal { mean, deviation }),
        ("uniform", &[low, high]) => Ok(Init::Uniform { low, high }),
        _ => Err(CallFailure::input(format!(
            "initial values {name:?} are not known to the native module: the Python files and the native module are of \
             different versions; install gannet again"
        ))),
    }
}
