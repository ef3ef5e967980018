// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmrun --record`: runs a program, and makes a trace of what the preload wrote of it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use recording::Recording;

mod cached;
mod recording;
mod signals;
mod step;

/// Runs a program with a record of it in a folder beside `file`, and writes the trace to
/// `file`. Gives the program's status, as a shell does, and what is to be said of the trace.
///
/// # Errors
/// What is wrong, and if the program ran, its status.
pub(crate) fn run(command: &mut Command, file: &Path) -> Result<(u8, String), Failure> {
    let folder = Folder::new(file).map_err(|why| Failure::before(&why))?;
    let program = command.get_program().to_string_lossy().into_owned();
    command.env("UVMRUST_RECORD", &folder.0);
    signals::leave_to_the_program();
    let status = started(command).map_err(|error| Failure {
        why: format!("{program}: {error}"),
        status: Some(match error.kind() {
            io::ErrorKind::NotFound => 127,
            _ => 126,
        }),
    })?;
    let name = Path::new(&program).file_name();
    let name = name.map_or("program".into(), |name| name.to_string_lossy());
    let said = trace(&folder.0, &name, file).map_err(|why| Failure {
        why,
        status: Some(code(status)).filter(|&code| code != 0),
    })?;
    Ok((code(status), said))
}

/// Runs the program, which gets the signals that this process gets.
fn started(command: &mut Command) -> io::Result<ExitStatus> {
    let mut program = command.spawn()?;
    signals::pass_on_to(&program)?;
    program.wait()
}

/// Why a program was not run, or no trace was made of it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What uvmrun says on standard error, behind its own name.
    pub(crate) why: String,
    /// What to exit with, if not with what stands for an error of uvmrun's.
    pub(crate) status: Option<u8>,
}

impl Failure {
    fn before(why: &str) -> Self {
        let why = why.to_owned();
        Self { why, status: None }
    }
}

/// The status of a program, as a shell gives it.
fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(255, |signal| 128 + signal);
    status.code().unwrap_or_else(signal) as u8
}

/// A folder that is gone when this is.
struct Folder(PathBuf);

impl Folder {
    /// A new folder beside a file, by its absolute path, as the program may go elsewhere before it is used.
    /// Who may rename what is beside the file can have a link in the folder's place at any time, and
    /// what the link points to is not to be removed with the folder: so no link is followed from here on.
    fn new(beside: &Path) -> Result<Self, String> {
        let mut name = beside.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let told = |error: io::Error| {
            format!(
                "{}: {error}; --record needs a file in a folder that you may write to",
                beside.with_file_name(&name).display()
            )
        };
        let parent = match beside.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let folder = parent.canonicalize().map_err(told)?.join(&name);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).create(&folder).map_err(told)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes the trace of the process that launched most, and says what it is of.
fn trace(folder: &Path, name: &str, file: &Path) -> Result<String, String> {
    let mut recordings = Vec::new();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries.filter_map(Result::ok) {
        let text = fs::read_to_string(entry.path());
        let text = text.map_err(|e| format!("{}: {e}", entry.path().display()))?;
        let recording = Recording::parse(&text);
        recordings.push(recording.map_err(|e| format!("{}: {e}", entry.path().display()))?);
    }
    let others = recordings.len().saturating_sub(1);
    let longest = recordings.into_iter().max_by_key(|r| r.launches.len());
    let longest = longest.filter(|r| !r.launches.is_empty()).ok_or(
        "nothing was recorded: the program launched no kernel that the preload saw. It must load \
         libcuda.so.1 itself, and pass LD_PRELOAD on where it starts other programs; `uvmrun \
         --check` says whether CUDA works here",
    )?;
    let (text, mut said) = step::text(&longest, name)?;
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    said += &cached::warning(&longest).unwrap_or_default();
    if others > 0 {
        said += &format!("; of {others} more of its processes there is no trace");
    }
    Ok(said)
}

#[cfg(test)]
mod tests;
