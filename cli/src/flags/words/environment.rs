//! The job of a process as its environment names it: `TF_CONFIG`, which TensorFlow's launchers set, or the variables of
//! Volcano, a scheduler of Kubernetes. Flags come first: only those that were not typed are read here.

use serde_json::Value;
use std::ffi::OsString;

/// The flags that say which process of a job a process is.
const FLAGS: [&str; 4] = ["--job-name", "--task-index", "--ps-hosts", "--worker-hosts"];

/// The port of a server of Volcano, which names hosts only.
const PORT: u16 = 7700;

/// A process and its job.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClusterTask {
    job_name: Option<String>,
    task_index: Option<u64>,
    ps_hosts: Vec<String>,
    worker_hosts: Vec<String>,
}

/// The words of a command line, with the flags of a job that `var`, the environment, knows and that were not typed.
///
/// # Errors
/// A variable cannot be read.
pub fn with_job(words: Vec<OsString>, var: impl Fn(&str) -> Option<String>) -> Result<Vec<OsString>, String> {
    let Some(command) = command_of(&words).filter(|at| words[*at] == "train") else { return Ok(words) };
    let is_typed = |flag: &str| {
        let of = |word: &OsString| {
            let word = word.to_string_lossy();
            word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        words.iter().any(of)
    };
    let typed = FLAGS.map(is_typed);
    // A spare server is none of the servers that are listed.
    if typed.iter().all(|is_typed| *is_typed) || is_typed("--spare") {
        return Ok(words);
    }
    let place = match (var("TF_CONFIG"), typed[0]) {
        (Some(text), _) if !text.trim().is_empty() => of_tensorflow(&text)?,
        (_, is_typed) => of_volcano(&var, is_typed)?,
    };
    let Some(ClusterTask { job_name, task_index, ps_hosts, worker_hosts }) = place else { return Ok(words) };
    let values =
        [job_name, task_index.map(|index| index.to_string()), listed(&ps_hosts), listed(&worker_hosts)];
    let mut words = words;
    let absent = FLAGS.iter().zip(typed).zip(values).filter(|((_, is_typed), _)| !is_typed);
    let flags: Vec<OsString> =
        absent.filter_map(|((flag, _), value)| Some(format!("{flag}={}", value?).into())).collect();
    words.splice(command + 1..command + 1, flags);
    Ok(words)
}

/// Where the command is: behind flags about logs, which may come first.
fn command_of(words: &[OsString]) -> Option<usize> {
    let is_value = |at: usize| words[at - 1] == "--log";
    (1..words.len()).find(|at| !words[*at].to_string_lossy().starts_with('-') && !is_value(*at))
}

fn listed(hosts: &[String]) -> Option<String> {
    (!hosts.is_empty()).then(|| hosts.join(","))
}

/// The place that `TF_CONFIG` names: `{"cluster": {"ps": [..], "worker": [..]}, "task": {"type": "ps", "index": 0}}`. A
/// chief is worker 0, and the workers come behind it.
fn of_tensorflow(text: &str) -> Result<Option<ClusterTask>, String> {
    let wrong = |why: &str| {
        format!(
            "TF_CONFIG: {why}; write {{\"cluster\": {{\"ps\": [\"HOST:PORT\"], \"worker\": [\"HOST:PORT\"]}}, \"task\": \
             {{\"type\": \"worker\", \"index\": 0}}}}, unset it, or give all of {}",
            FLAGS.join(", ")
        )
    };
    let config: Value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    let hosts = |name: &str| -> Result<Vec<String>, String> {
        match &config["cluster"][name] {
            Value::Null => Ok(Vec::new()),
            Value::Array(hosts) => hosts
                .iter()
                .map(|host| {
                    host.as_str().map(str::to_owned).ok_or_else(|| wrong(&format!("{name} has {host}")))
                })
                .collect(),
            other => Err(wrong(&format!("{name} is {other}"))),
        }
    };
    let chief = [hosts("chief")?, hosts("master")?].concat();
    let (ps_hosts, workers) = (hosts("ps")?, hosts("worker")?);
    if ps_hosts.is_empty() {
        return Err(wrong("the cluster has no ps"));
    }
    let before = chief.len() as u64;
    let index = match &config["task"]["index"] {
        Value::Null => 0,
        // Some launchers write a number as text.
        index => index
            .as_u64()
            .or_else(|| index.as_str()?.parse().ok())
            .ok_or_else(|| wrong(&format!("the index of the task is {index}")))?,
    };
    let (job_name, task_index) = match config["task"]["type"].as_str() {
        Some("ps") => ("ps", index),
        Some("worker") => ("worker", index + before),
        Some("chief" | "master") => ("worker", index),
        Some(other) => return Err(wrong(&format!("gannet has no task of type {other:?}"))),
        None => return Err(wrong("the task has no type")),
    };
    let (job_name, task_index) = (Some(job_name.to_owned()), Some(task_index));
    Ok(Some(ClusterTask { job_name, task_index, ps_hosts, worker_hosts: [chief, workers].concat() }))
}

/// The place that the variables of Volcano name. They list hosts without ports, and do not say the role of a process:
/// its own name is in one of the lists.
fn of_volcano(var: &impl Fn(&str) -> Option<String>, has_role: bool) -> Result<Option<ClusterTask>, String> {
    let hosts = |name: &str| -> Vec<String> {
        let text = var(name).unwrap_or_default();
        text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect()
    };
    let (ps, workers) = (hosts("VC_PS_HOSTS"), hosts("VC_WORKER_HOSTS"));
    if ps.is_empty() || workers.is_empty() {
        return Ok(None);
    }
    let own = var("HOSTNAME").unwrap_or_default();
    let is_own = |host: &String| !own.is_empty() && host.split('.').next() == own.split('.').next();
    let job_name = match (ps.iter().any(is_own), workers.iter().any(is_own)) {
        (true, false) => Some("ps".to_owned()),
        (false, true) => Some("worker".to_owned()),
        _ if has_role => None,
        _ => return Ok(None),
    };
    let index = var("VC_TASK_INDEX").or_else(|| var("VK_TASK_INDEX"));
    let number = |text: String| {
        text.trim()
            .parse()
            .map_err(|_| format!("VC_TASK_INDEX {text:?}: a number is needed, or --task-index"))
    };
    let task_index = index.map(number).transpose()?;
    let with_port = |host: String| if host.contains(':') { host } else { format!("{host}:{PORT}") };
    let all = |hosts: Vec<String>| hosts.into_iter().map(with_port).collect();
    Ok(Some(ClusterTask { job_name, task_index, ps_hosts: all(ps), worker_hosts: all(workers) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str, vars: &[(&str, &str)]) -> Result<String, String> {
        let words = words.split(' ').map(OsString::from).collect();
        let var = |name: &str| vars.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        let words = with_job(words, var)?;
        Ok(words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
    }

    const CLUSTER: &str = r#""cluster": {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}"#;

    fn tensorflow(task: &str) -> String {
        format!("{{{CLUSTER}, \"task\": {task}}}")
    }

    #[test]
    fn tf_config_names_a_process_and_its_job() {
        let hosts = "--ps-hosts=a:1,b:1 --worker-hosts=c:1,d:1";
        for (task, place) in [
            (r#"{"type": "worker", "index": 1}"#, "--job-name=worker --task-index=1"),
            (r#"{"type": "worker", "index": "1"}"#, "--job-name=worker --task-index=1"),
            (r#"{"type": "ps", "index": 0}"#, "--job-name=ps --task-index=0"),
        ] {
            let wanted = format!("gannet train {place} {hosts} x.svm --l1 1");
            assert_eq!(
                line("gannet train x.svm --l1 1", &[("TF_CONFIG", &tensorflow(task))]).unwrap(),
                wanted
            );
        }
        let chief = r#"{"cluster": {"chief": ["z:1"], "ps": ["a:1"], "worker": ["c:1"]},
                        "task": {"type": "worker", "index": 0}}"#;
        let wanted = "gannet train --job-name=worker --task-index=1 --ps-hosts=a:1 --worker-hosts=z:1,c:1 x";
        assert_eq!(line("gannet train x", &[("TF_CONFIG", chief)]).unwrap(), wanted);
    }

    #[test]
    fn flags_come_before_the_environment() {
        let config = tensorflow(r#"{"type": "worker", "index": 1}"#);
        let vars = [("TF_CONFIG", config.as_str())];
        let some = line("gannet train x --task-index 0 --ps-hosts=e:1", &vars).unwrap();
        assert_eq!(
            some,
            "gannet train --job-name=worker --worker-hosts=c:1,d:1 x --task-index 0 --ps-hosts=e:1"
        );
        let all = "gannet train x --job-name ps --task-index 0 --ps-hosts e:1 --worker-hosts w:0";
        assert_eq!(line(all, &[("TF_CONFIG", "nonsense")]).unwrap(), all);
        let behind =
            line("gannet --log info --log-json train x --job-name=ps --task-index=0", &vars).unwrap();
        assert!(behind.starts_with("gannet --log info --log-json train --ps-hosts=a:1,b:1"), "{behind}");
        for other in ["gannet predict x", "gannet launch -- train x", "gannet train --spare a:1"] {
            assert_eq!(line(other, &vars).unwrap(), other);
        }
    }

    #[test]
    fn a_wrong_tf_config_is_refused_with_what_to_write() {
        for (text, what) in [
            ("nonsense", "expected"),
            (r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}"#, "no ps"),
            (&tensorflow(r#"{"type": "evaluator", "index": 0}"#), "evaluator"),
            (&tensorflow(r#"{"type": "ps", "index": -1}"#), "-1"),
            (&tensorflow("{}"), "no type"),
            (r#"{"cluster": {"ps": "a:1"}, "task": {"type": "ps"}}"#, "ps is"),
        ] {
            let why = line("gannet train x", &[("TF_CONFIG", text)]).unwrap_err();
            assert!(why.contains(what) && why.contains("TF_CONFIG") && why.contains("--ps-hosts"), "{why}");
        }
    }

    #[test]
    fn volcano_names_hosts_and_an_index() {
        let lists = [("VC_PS_HOSTS", "j-ps-0.j,j-ps-1.j"), ("VC_WORKER_HOSTS", "j-worker-0.j")];
        let hosts = "--ps-hosts=j-ps-0.j:7700,j-ps-1.j:7700 --worker-hosts=j-worker-0.j:7700";
        let with = |more: [(&'static str, &'static str); 2]| [lists[0], lists[1], more[0], more[1]];
        let named = with([("HOSTNAME", "j-ps-1"), ("VC_TASK_INDEX", "1")]);
        let wanted = format!("gannet train --job-name=ps --task-index=1 {hosts} x");
        assert_eq!(line("gannet train x", &named).unwrap(), wanted);
        let unnamed = with([("HOSTNAME", "other"), ("VK_TASK_INDEX", "0")]);
        let wanted = format!("gannet train --task-index=0 {hosts} --job-name worker");
        assert_eq!(line("gannet train --job-name worker", &unnamed).unwrap(), wanted);
        // Its role is not known: a training in one process.
        assert_eq!(line("gannet train x", &unnamed).unwrap(), "gannet train x");
        let wrong = with([("HOSTNAME", "j-ps-1"), ("VC_TASK_INDEX", "x")]);
        assert!(line("gannet train x", &wrong).unwrap_err().contains("VC_TASK_INDEX"));
    }
}
