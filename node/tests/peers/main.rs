//! Peers that attack, impersonate, have a wrong token, or die.

mod backup;
mod hostile;
mod impostor;
mod thread_death;
mod token;

#[path = "../attack/mod.rs"]
mod attack;
#[path = "../model/mod.rs"]
mod model;
#[path = "../../../tests/harness/ports.rs"]
mod ports;
