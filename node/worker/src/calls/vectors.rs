//! Tables of vectors: programs that run on all their rows. Only numbers travel.

use crate::error::WorkerError;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::requests::names::TableId;
use crate::worker::Worker;
use gannet_core::{Program, Vectors};
use gannet_optim::lbfgs::Sum;
use gannet_transport::Net;
use gannet_wire::frames::vectors::VectorFrame;
use gannet_wire::messages::control;
use gannet_wire::messages::control::VectorDoneV1;
use gannet_wire::vectors;

impl<N: Net> Worker<N> {
    /// Runs a program on every shard of a table of vectors, and returns its sums over all rows, added in the order of
    /// the shards. It runs once, whatever happens to links and servers. The program comes after every push of this
    /// worker and takes a sequence number like a push. From then on the shards refuse requests of this worker's earlier
    /// incarnations, and pushes and programs of earlier passes.
    ///
    /// # Errors
    /// It is not a table of vectors, the program is not valid, a server refused, or a peer is lost for good.
    pub fn run_program(&mut self, table: TableId, program: &Program) -> Result<Vec<f64>, WorkerError> {
        let known = &self.tables[table.0];
        let wrong = |why: String| WorkerError::Call(format!("table {:?}: {why}", known.schema.name));
        let vectors =
            Vectors::of(&known.schema).ok_or_else(|| wrong("it is not a table of vectors".into()))?;
        program.check(vectors).map_err(wrong)?;
        let shards = known.owners.len();
        // A push that is resent later would come after the program.
        self.drain()?;
        let seq = self.next_seq(table).max(Vectors::first_seq(program.pass));
        self.tables[table.0].last_seq = seq;
        let request =
            |shard: usize, _: u32| control::seal(&vectors::vector_request(shard as u32, seq, program));
        let answers = self.ask(
            &ControlRequest::with_payload(&VectorFrame { table: 0 }, Some(table), &request),
            Recipients::Owners,
        )?;
        if answers.len() < shards {
            let refused = self.links.refused.pop_front();
            return Err(refused.unwrap_or_else(|| WorkerError::Call("a program was refused".into())));
        }
        let mut sums = vec![Sum::default(); program.sums.len()];
        for ControlReply { link, payload, .. } in &answers {
            let nonsense =
                |what: String| WorkerError::Protocol { peer: self.links.peers[*link].name.clone(), what };
            let done: VectorDoneV1 = control::open(payload).map_err(|error| nonsense(error.to_string()))?;
            if done.sums.len() != sums.len() {
                return Err(nonsense(format!(
                    "{} sums where {} were requested",
                    done.sums.len(),
                    sums.len()
                )));
            }
            sums.iter_mut().zip(&done.sums).for_each(|(all, sum)| all.add(*sum));
        }
        Ok(sums.iter().map(Sum::value).collect())
    }
}
