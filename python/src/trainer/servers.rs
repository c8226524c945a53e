//! The servers that have an estimator's table. Each call connects anew: an estimator is pickled, copied and forked, and
//! may rest for days between two calls.

use super::stopping::run_until_ctrl_c;
use crate::connecting::{Connecting, configuration};
use crate::failure::CallFailure;
use crate::owner;
use crate::waiting::Joins;
use gannet::runs::RunId;
use gannet::{Transports, Worker};
use pyo3::prelude::*;

/// Servers, and the name that goes before the names of an estimator's tables.
#[derive(Clone)]
pub struct EstimatorServers {
    connecting: Connecting,
    name: String,
}

impl EstimatorServers {
    /// Checks the arguments.
    pub fn new(connecting: Connecting, name: String) -> Result<EstimatorServers, CallFailure> {
        RunId::check_name(&name).map_err(CallFailure::input)?;
        configuration(connecting.clone())?;
        Ok(EstimatorServers { connecting, name })
    }

    /// A worker that no other one has the number of. It opens the estimator's tables by their own names.
    pub fn connect(&self) -> Result<Worker<Transports>, CallFailure> {
        let (net, mut config) = configuration(self.connecting.clone())?;
        config.run = Some(RunId { name: self.name.clone(), generation: 1, rows_since: 1, birth: 0 });
        Ok(owner::connect(net, config)?)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of the servers.
    pub fn addresses(&self) -> String {
        self.connecting.servers().join(",")
    }

    /// Drops these tables of the estimator at all servers.
    fn drop_tables(&self, tables: &[String]) -> Result<(), CallFailure> {
        let mut worker = self.connect()?;
        tables.iter().try_for_each(|table| Ok(worker.drop_table(&format!("{}.{table}", self.name))?))
    }
}

/// Drops tables of an estimator at all servers.
#[pyfunction]
pub fn drop_tables(py: Python<'_>, servers: Connecting, name: String, tables: Vec<String>) -> PyResult<()> {
    let estimator = EstimatorServers::new(servers, name)?;
    run_until_ctrl_c(py, Joins::No, None, move |_| estimator.drop_tables(&tables))
}
