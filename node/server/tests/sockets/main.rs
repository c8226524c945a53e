//! Workers and servers over sockets and shared memory of this host. Some peers attack, impersonate others, have a wrong
//! token, or die. What servers hold of their process is counted in processes of their own.

mod awaited_scheduler;
mod backup;
mod batches_in_tables;
mod checkpoints;
mod cycles;
mod given_up_saves;
mod hostile;
mod impostor;
mod other_jobs;
mod saved_folder;
mod slow_disk;
mod tcp;
mod thread_death;
mod token;

#[path = "../attack/mod.rs"]
mod attack;
#[path = "../model/mod.rs"]
mod model;
#[path = "../../../../tests/harness/ports.rs"]
mod ports;
