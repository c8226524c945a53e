//! Several peers send random valid and invalid frames to a live server in this process, beside an honest
//! worker. `HOSTILE_SECONDS` sets the time, `HOSTILE_SEED` the seed. tests/servers/hostile.rs runs the same
//! attack on the binary.

use crate::attack;

use attack::{Good, seconds, under_attack};
use gannet_server::{Server, ServerConfig};
use gannet_transport::tcp::Tcp;

#[test]
fn a_server_under_attack_serves_the_others_as_if_it_were_not() {
    let config = ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") };
    let server = Server::start(Tcp::new(), config).unwrap();
    let mut good = Good::new(server.addr(), 500);
    let done = under_attack(server.addr(), 2, 4, seconds(), || good.step());
    good.check_all();
    let counters = good.worker.counters();
    println!("{done:?}, {} calls beside, {counters:?}, {:?}", good.calls, server.served());
    assert_eq!((counters.links_lost, counters.duplicate, counters.not_finite), (0, 0, 0));
    assert!(done.connections.load(std::sync::atomic::Ordering::Relaxed) > 20 && good.calls > 20);
    let served = server.served();
    assert!(served.frames > 1000 && served.sessions_ended > 5, "{served:?}");
    drop(good);
    // If a thread had panicked, this would return its error.
    server.stop().unwrap();
}
