//! Runs whose registry is lost or moved, rows that are trained further, and missing shares, tested from outside.

use crate::harness;

use crate::world::*;
use harness::{Process, Served, gannet, run};
use rustix::process::Signal;
use std::io::Write;

/// Once only worker 0 had `--out`. It was killed, another worker became the chief, and no worker saved, with
/// exit code 0.
#[test]
fn no_worker_saved_when_only_one_had_out() {
    let world = World::new(3_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let out = format!("--out {} --start-together", world.file("model").display());
    let first = start(&world.line(&server.addr, 2, 0, &out));
    until("the first worker is there", || !runs(&server.addr).is_empty());
    let without = run(&world.line(&server.addr, 2, 1, "--start-together"));
    refused(&without, &["--out: worker 0 has a folder, this worker (1) was given none"]);
    let other = start(&world.line(&server.addr, 2, 1, &out));
    let (first, other) = (ok(&first.wait()), ok(&other.wait()));
    assert_eq!(first["examples"].as_u64().unwrap() + other["examples"].as_u64().unwrap(), 3_000);
    assert!(world.file("model").join("MANIFEST").is_file());
}

/// Once workers expected the registry at the first address. Servers that came back with other addresses knew no run.
#[test]
fn servers_with_other_addresses_forgot_their_runs() {
    let world = World::new(2_000);
    let (a, b) = (world.server("127.0.0.1:0", "a", 1), world.server("127.0.0.1:0", "b", 1));
    let (at_a, at_b) = (a.addr.clone(), b.addr.clone());
    let hosts = format!("{at_a},{at_b}");
    let first = ok(&run(&world.line(&hosts, 1, 0, "")));
    for server in [a, b] {
        server.stop();
    }
    let (a, b) = (world.server(&at_b, "a", 2), world.server(&at_a, "b", 1));
    refused(&run(&world.line(&hosts, 1, 0, "")), &["is finished", "--continue", "--fresh"]);
    assert_eq!(runs(&hosts).len(), 1);
    let on = ok(&run(&world.line(&hosts, 1, 0, "--continue")));
    assert_eq!((&on["rows"], &on["run"]["generation"]), (&first["rows"], &2.into()), "{on}");
    // Without the file that names the run, its rows belong to no run.
    for server in [a, b] {
        server.stop();
    }
    for folder in ["a", "b"] {
        let _ = std::fs::remove_file(world.file(folder).join("RUNS"));
    }
    let (_a, _b) = (world.server(&at_a, "a", 1), world.server(&at_b, "b", 1));
    refused(&run(&world.line(&hosts, 1, 0, "")), &["its rows are here", "default.lr", "RUNS", "--fresh"]);
    let fresh = ok(&run(&world.line(&hosts, 1, 0, "--fresh")));
    let (was, is) = (first["logloss"].as_f64().unwrap(), fresh["logloss"].as_f64().unwrap());
    assert!((was - is).abs() < 1e-6, "{fresh} {first}");
}

/// Once two workers that wrote a server's address in different ways had two registries, and everything was trained
/// twice.
#[test]
fn workers_that_wrote_a_server_in_two_ways_had_two_registries() {
    let world = World::new(1_000);
    let (a, b) = (world.server("127.0.0.1:0", "a", 1), world.server("127.0.0.1:0", "b", 1));
    let named = |addr: &str| addr.replace("127.0.0.1", "localhost");
    let mut addrs = [a.addr.clone(), b.addr.clone()];
    addrs.sort();
    let (one, other) = (addrs.join(","), format!("{},{}", named(&addrs[0]), addrs[1]));
    for (name, more) in [("off", "--tasks off"), ("on", "--tasks on --start-together")] {
        let more = format!("{more} --run {name}");
        let first = start(&world.line(&one, 2, 0, &more));
        until("the run is there", || runs(&one).iter().any(|run| run["name"] == name));
        let second = run(&world.line(&other, 2, 1, &more));
        let examples = ok(&second)["examples"].as_u64().unwrap();
        assert_eq!(examples + ok(&first.wait())["examples"].as_u64().unwrap(), 1_000);
    }
}

/// Once `--continue` measured the numbers anew, or silently gave labels and columns another meaning.
#[test]
fn a_continued_run_took_other_scales_labels_and_columns() {
    let world = World::new(10);
    let csv = |name: &str, factor: u32| {
        let line = |i: u32| {
            let (age, label) = (20 + i * 7 % 50, if i * 7 % 50 > 25 { "yes" } else { "no" });
            format!("{label},{},{}\n", age * factor, ["a", "b", "c"][i as usize % 3])
        };
        let text = "churned,age,city\n".to_owned() + &(0..600).map(line).collect::<String>();
        std::fs::write(world.file(name), text).unwrap();
        world.file(name).display().to_string()
    };
    let (day1, day2) = (csv("day1.csv", 1), csv("day2.csv", 1000));
    let flags =
        "--label churned --positive yes --numeric age --scale standard --optimizer sgd --alpha 0.1 --json";
    let rows = world.file("rows");
    let line = |data: &str, flags: &str| format!("train {data} {flags} --data-dir {}", rows.display());
    ok(&run(&line(&day1, &format!("{flags} --epochs 3"))));
    for (other, words) in [
        (flags.replace("--positive yes", "--positive no"), "--positive yes"),
        (flags.replace("--scale standard", ""), "--scale standard"),
        (flags.replace("--numeric age", "--numeric age --categorical city"), "--categorical none"),
        (flags.replace("--optimizer sgd", "--optimizer adam"), "--optimizer sgd"),
        (format!("{} --model fm", flags.replace("--optimizer sgd --alpha 0.1", "")), "--model lr"),
    ] {
        refused(&run(&line(&day1, &format!("{other} --continue"))), &[words, "is given now", "--fresh"]);
    }
    // Once a folder was refused if only its images recorded the run.
    let others = world.file("others");
    for (model, flags, other) in [
        ("fm", "--seed 1", "--seed 2"),
        ("lr", "--admit-count 2 --admit-sketch 16", "--admit-count 2 --admit-sketch 32"),
    ] {
        let line = format!(
            "train {day1} --label churned --positive yes --model {model} --data-dir {}",
            others.display()
        );
        assert_eq!(run(&format!("{line} {flags}")).code, Some(0));
        refused(&run(&format!("{line} {other} --continue")), &["is given now", "--fresh"]);
        assert_eq!(run(&format!("{line} {flags} --continue")).code, Some(0));
        std::fs::remove_dir_all(&others).unwrap();
    }
    // The refused command has changed nothing. Numbers a thousand times as large are scaled like the others.
    let on = run(&line(&day2, &format!("{flags} --continue")));
    assert!(on.err.contains("scaled as at the start of the run"), "{on:?}");
    assert!(ok(&on)["logloss"].as_f64().unwrap() > 2.0, "{on:?}");
    assert_eq!(on.json()["run"]["generation"], 2);
}

/// Once a second start in one process, with the same flags, trained the finished rows again, with exit code 0.
#[test]
fn one_process_trained_finished_rows_again_without_a_word() {
    let world = World::new(600);
    let data = world.data.display();
    for flags in ["", "--model fm", "--model lda --topics 3", "--optimizer lbfgs --l2 1"] {
        let rows = world.file("rows");
        let line = format!("train {data} {flags} --json --data-dir {}", rows.display());
        ok(&run(&line));
        for _ in 0..2 {
            refused(&run(&line), &["is finished", "--continue", "--fresh"]);
        }
        let on = run(&format!("{line} --continue"));
        match flags.contains("lda") {
            // Sampling again would count twice, so the run stays as it is.
            true => refused(&on, &["--continue", "--model lda", "--fresh"]),
            false => assert_eq!(ok(&on)["run"]["generation"], 2, "{flags}"),
        }
        assert_eq!(ok(&run(&format!("{line} --fresh")))["run"]["decided"], "fresh", "{flags}");
        std::fs::remove_dir_all(&rows).unwrap();
    }
}

/// Once the model of a job without one worker's share passed for a whole one.
#[test]
fn the_model_of_a_job_with_a_missing_worker_was_not_marked() {
    let world = World::new(1_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let out = world.file("model");
    let more = format!("--tasks off --batch 64 --allow-missing-workers --out {}", out.display());
    let line = world.line(&server.addr, 2, 0, &more).replace("--peer-timeout 20", "--peer-timeout 5");
    ok(&run(&line));
    let scored = run(&format!("predict --model {} {} --json", out.display(), world.data.display()));
    assert_eq!(ok(&scored)["model_complete"], false, "{scored:?}");
    assert!(scored.err.contains("worker 1"), "{scored:?}");
    // A late worker must not read that there is nothing left to do. Without worker 0 no model is saved.
    let late = run(&world.line(&server.addr, 2, 1, "--tasks off --batch 64"));
    refused(&late, &["without the share of worker 1"]);
    let line = world.line(&server.addr, 2, 1, "--tasks off --batch 64 --allow-missing-workers --run other");
    let alone = run(&line.replace("--peer-timeout 20", "--peer-timeout 5"));
    assert!(alone.code == Some(3) && alone.err.contains("Without worker 0 no model is saved"), "{alone:?}");
}

/// Once the batches of workers that keep step were counted under the step's name, so one worker's batches were
/// never trained.
#[test]
fn a_worker_that_was_killed_in_step_had_trained_nothing() {
    // A worker learns when it has seen the first 10,000 examples of its share.
    let world = World::new(44_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let bytes = std::fs::read(&world.data).unwrap();
    let more = "--tasks off --batch 16 --sync bsp --worker-timeout 5";
    let (chief, mut one) = piped_for(5, &server.addr, 2, 0, more);
    let (killed, mut two) = piped_for(5, &server.addr, 2, 1, more);
    // Both at the same time, because each waits for the other in every step.
    let half = &bytes[..bytes.len() / 2];
    std::thread::scope(|scope| {
        for pipe in [&mut one, &mut two] {
            scope.spawn(|| pipe.write_all(half).unwrap());
        }
    });
    let batches = || {
        let all = runs(&server.addr)[0]["workers"].as_array().cloned().unwrap_or_default();
        all.iter().find(|worker| worker["worker"] == 1).and_then(|worker| worker["batches"].as_u64())
    };
    until("worker 1 has reported its batches", || batches().is_some_and(|batches| batches > 20));
    killed.signal(Signal::KILL);
    let _ = killed.wait();
    // Worker 0 may have ended before it has read all of this.
    let _ = one.write_all(&bytes[bytes.len() / 2..]);
    drop((one, two));
    let done = chief.wait();
    assert_eq!(done.code, Some(3), "{done:?}");
    let report = done.json();
    assert_eq!(report["missing_workers"], serde_json::json!([1]), "{report}");
    assert!(report["untrained_batches"].as_u64().is_some_and(|left| left > 0 && left < 1_355), "{report}");
}

/// Once the message was `the model is saved, and the scheduler does not know that ... see that no other worker has
/// written it too`, although no other worker had.
#[test]
fn workers_that_were_all_stopped_raised_a_false_alarm() {
    let world = World::new(20_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let out = world.file("model");
    let more = format!("--tasks on --epochs 10000 --task-bytes 64KiB --out {}", out.display());
    let workers = [0, 1].map(|index| start(&world.line(&server.addr, 2, index, &more)));
    let status = || run(&format!("status --ps-hosts {}", server.addr));
    let both = || {
        let job = ok(&run(&format!("status --ps-hosts {} --json", server.addr)))["job"].clone();
        let learned = |worker: &serde_json::Value| worker["logloss"].is_number();
        job["workers"].as_array().is_some_and(|all| all.len() == 2 && all.iter().all(learned))
    };
    until("both learn", both);
    workers.iter().for_each(|worker| worker.signal(Signal::INT));
    for done in workers.map(Process::wait) {
        assert_eq!(done.code, Some(130), "{done:?}");
        // On a loaded machine a worker may warn that it waits for a peer.
        let alarms = ["does not know", "could not be told", "no other worker"];
        assert!(!alarms.iter().any(|alarm| done.err.contains(alarm)), "{done:?}");
    }
    assert!(out.join("MANIFEST").is_file());
    // The workers left. Their last reports are shown, and no worker has reported that the job is done.
    let shown = status();
    for words in [
        "worker 0   left  clock ",
        "worker 1   left  clock ",
        "was left by all its workers",
        "not finished, no worker is alive",
    ] {
        assert!(shown.out.contains(words), "{words}: {shown:?}");
    }
    assert!(!shown.out.contains("log loss 0.00000") && !shown.out.contains("log loss -"), "{shown:?}");
}

/// Once the output was `ERROR this worker is no longer in the job error=X`, then `gannet: X`.
#[test]
fn a_lost_scheduler_caused_two_messages() {
    let world = World::new(20_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let scheduler = Served::start(gannet("scheduler --listen 127.0.0.1:0"));
    let more = format!("--tasks on --epochs 10000 --scheduler {}", scheduler.addr);
    let line = world.line(&server.addr, 1, 0, &more).replace("--peer-timeout 20", "--peer-timeout 5");
    let worker = start(&line);
    let status_line = format!("status --scheduler {} --json", scheduler.addr);
    until("the worker learns", || {
        run(&status_line).json()["job"]["tasks_done"].as_u64().is_some_and(|n| n > 0)
    });
    scheduler.kill();
    let done = worker.wait();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert_eq!(done.err.matches("has not answered for").count(), 1, "{done:?}");
}
