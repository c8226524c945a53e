//! `gannet doctor` on two machines (scripts/test_rdma.sh). It greets a server elsewhere over tcp and over RDMA, and
//! says why shared memory is not possible.

use crate::harness::pair::Pair;
use crate::harness::*;

#[test]
fn a_server_on_another_machine_is_greeted_over_each_transport() {
    let Some(pair) = Pair::of("doctor").filter(|pair| pair.guests) else { return };
    if pair.rank == 0 {
        let listen = format!("server --listen {}:0 --threads 2 --insecure", pair.ip);
        let served = Served::start(gannet(&listen));
        pair.send("addr", &served.addr);
        pair.wait_for("done");
        assert!(served.stop().contains("0 rows"));
        return;
    }
    let addr = pair.wait_for("addr");
    let done = run(&format!("doctor --json --insecure --peer-timeout 20 --peer {addr}"));
    pair.send("done", "");
    let report = done.json();
    let found =
        report["findings"].as_array().unwrap().iter().filter(|finding| finding["area"] == addr.as_str());
    let said: Vec<(&str, &str)> =
        found.map(|f| (f["level"].as_str().unwrap(), f["text"].as_str().unwrap())).collect();
    let says = |level: &str, part: &str| said.iter().any(|(l, text)| *l == level && text.contains(part));
    assert!(says("ok", "--transport auto reaches it over verbs (2 threads"), "{said:?}");
    assert!(
        says("ok", "answers over verbs (2 threads") && says("ok", "answers over tcp (2 threads"),
        "{said:?}"
    );
    assert!(says("note", "not over shm"), "{said:?}");
    assert_eq!(done.code, Some(0), "{done:?}");
}
