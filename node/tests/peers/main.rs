//! Peers that attack, impersonate, hold a wrong token, or die.

mod dying;
mod hostile;
mod impostor;
mod token;

#[path = "../attack/mod.rs"]
mod attack;
#[path = "../model/mod.rs"]
mod model;
