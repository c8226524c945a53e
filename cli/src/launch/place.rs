//! Where a process of a job runs: on this machine, or on another one over ssh.
//!
//! ssh passes standard input on, so the protocol of launched.rs is the same: a line asks the process to stop, and the
//! end of the pipe ends it. ssh ends when the process has ended, with its exit code, and with 255 when it cannot reach
//! the host.

use crate::flags::LaunchArgs;
use crate::launch::hosts::Host;
use crate::launched::LAUNCHER;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;

/// The exit code of ssh when it fails itself.
pub const SSH_FAILED: i32 = 255;

/// Options of ssh. They stand behind those of the user, and ssh takes the first value of each. With them ssh asks
/// nobody for a password. It notices within 15 s that the host is gone.
const OPTIONS: [&str; 4] =
    ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];

/// See the module.
#[derive(Debug, Clone)]
pub enum ProcessPlace {
    /// This machine.
    Here,
    /// Another one.
    Remote(Remote),
}

/// How a process is started on another machine.
#[derive(Debug, Clone)]
pub struct Remote {
    /// What ssh connects to.
    pub target: String,
    /// The command of ssh, in words.
    ssh: Vec<String>,
    /// The `gannet` there, and the folder in which it starts.
    program: PathBuf,
    folder: PathBuf,
}

impl Remote {
    /// The place on this host. By default the program and the folder are those of the launcher.
    ///
    /// # Errors
    /// The system does not know the launcher's program or folder.
    pub fn of(host: &Host, args: &LaunchArgs) -> std::io::Result<Remote> {
        let ssh = args.ssh.split_whitespace().map(str::to_owned).collect();
        let program = args.remote_program.clone().map_or_else(std::env::current_exe, Ok)?;
        let folder = args.remote_dir.clone().map_or_else(std::env::current_dir, Ok)?;
        Ok(Remote { target: host.target.clone(), ssh, program, folder })
    }

    /// The command that starts the program there with these words.
    fn command(&self, words: &[OsString]) -> Command {
        let mut ssh = self.ssh.iter();
        let mut command = Command::new(ssh.next().map_or("ssh", String::as_str));
        command.args(ssh).arg("-T");
        command.args(OPTIONS.iter().flat_map(|option| ["-o", option]));
        command.arg(&self.target).arg(self.line(words));
        command
    }

    /// The line for the shell there.
    fn line(&self, words: &[OsString]) -> OsString {
        let mut line = OsString::from("cd ");
        line.push(quoted(self.folder.as_os_str()));
        line.push(format!(" && exec env {LAUNCHER}=ssh "));
        line.push(quoted(self.program.as_os_str()));
        for word in words {
            line.push(" ");
            line.push(quoted(word));
        }
        line
    }
}

/// A word as a shell reads it unchanged.
fn quoted(word: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => bytes.extend(b"'\\''"),
            byte => bytes.push(byte),
        }
    }
    bytes.push(b'\'');
    OsString::from_vec(bytes)
}

impl ProcessPlace {
    /// The command that starts a `gannet` with these words there.
    ///
    /// # Errors
    /// The system does not know this program.
    pub fn command(&self, words: &[OsString]) -> std::io::Result<Command> {
        Ok(match self {
            ProcessPlace::Here => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(words).env(LAUNCHER, std::process::id().to_string());
                command
            }
            ProcessPlace::Remote(remote) => remote.command(words),
        })
    }

    /// Why a process that was started there may have ended with this code: in words.
    pub fn hint(&self, code: Option<i32>) -> Option<String> {
        let ProcessPlace::Remote(Remote { target, program, folder, .. }) = self else { return None };
        let (program, folder) = (program.display(), folder.display());
        match code {
            Some(SSH_FAILED) => Some(format!("ssh cannot reach {target}, or has lost it")),
            Some(126 | 127) => Some(format!(
                "{target} cannot run {program}: install gannet there, or name it (--remote-program)"
            )),
            Some(1) => Some(format!("if {target} has no folder {folder}, name another one (--remote-dir)")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_each_word_as_it_was() {
        let words = ["a b", "it's", "$HOME;`x`\"", "", "*", "\\n"].map(OsString::from);
        let mut line = OsString::from("printf '%s|'");
        for word in &words {
            line.push(" ");
            line.push(quoted(word));
        }
        let done = Command::new("sh").arg("-c").arg(line).output().unwrap();
        let want: String = words.iter().map(|word| format!("{}|", word.to_string_lossy())).collect();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), want);
    }
}
