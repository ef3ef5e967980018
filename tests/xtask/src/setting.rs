// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Where a run works, and what `make` was given: the environment, read once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is as it is for a whole run: folders, and the options of `make`.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The checkout, in which every command runs.
    pub top: PathBuf,
    /// The folder outside the checkout that keeps what passed and what was built.
    pub cache: PathBuf,
    env: BTreeMap<String, String>,
}

impl Setting {
    /// Reads the process's environment. `top` is the checkout.
    pub fn of_process(top: PathBuf) -> Setting {
        let known = |(name, value): (OsString, OsString)| {
            // Nobody here asks for what is no text.
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Setting::new(top, std::env::vars_os().filter_map(known).collect())
    }

    /// Takes the environment as it is given; the cache is where `scripts/lib.sh` has it.
    pub fn new(top: PathBuf, env: BTreeMap<String, String>) -> Setting {
        let get = |name: &str| env.get(name).filter(|v| !v.is_empty());
        let cache = match (get("UVM_RUST_CACHE"), get("XDG_CACHE_HOME")) {
            (Some(own), _) => PathBuf::from(own),
            (None, Some(all)) => Path::new(all).join("uvm-rust"),
            (None, None) => Path::new(get("HOME").map_or("/", |h| h)).join(".cache/uvm-rust"),
        };
        Setting { top, cache, env }
    }

    /// Gives an option, unless it is unset or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Gives an option, or what counts where nobody has set it.
    pub fn or<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.get(name).unwrap_or(default)
    }

    /// Sets a variable for all that this run starts.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    /// All variables and their values, sorted by name.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Makes a setting in which some variables have other values, as for one part.
    pub fn with(&self, more: &[(String, String)]) -> Setting {
        let mut other = self.clone();
        for (name, value) in more {
            other.set(name, value);
        }
        other
    }

    /// How many virtual machines run at a time.
    pub fn lanes(&self) -> usize {
        let wish = self
            .get("LANES")
            .and_then(|n| n.parse().ok())
            .filter(|&n| n > 0);
        wish.unwrap_or(if self.jobs() > 1 { 2 } else { 1 })
    }

    /// How many processors the host gives to a build.
    pub fn jobs(&self) -> usize {
        let wish = self.get("JOBS").and_then(|n| n.parse().ok());
        wish.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Prepares a command in the checkout, with this setting's variables.
    pub fn command(&self, argv: &[String]) -> Command {
        let (program, arguments) = match argv.split_first() {
            Some((program, arguments)) => (program.as_str(), arguments),
            None => ("false", &[][..]),
        };
        let path = Path::new(program);
        // A script is named from the checkout's top, and any other program is looked for.
        let of_ours = path.components().count() > 1;
        let mut command = Command::new(if of_ours {
            self.top.join(path)
        } else {
            path.to_owned()
        });
        command.args(arguments).current_dir(&self.top);
        command.env_clear().envs(&self.env).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end and gives what it prints, or nothing if it fails.
    pub fn said(&self, argv: &[&str]) -> Option<String> {
        let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
        let output = self.command(&argv).stderr(Stdio::null()).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The options that somebody gave to `make`, as its command line takes them; each after a space.
    pub fn given(&self) -> String {
        let makefile = std::fs::read_to_string(self.top.join("Makefile")).unwrap_or_default();
        let names = makefile
            .lines()
            .filter_map(|line| line.strip_prefix("export "));
        let mut given = String::new();
        for name in names.flat_map(str::split_whitespace) {
            if matches!(
                name,
                "ONLY" | "FRESH" | "FAILED" | "LANES" | "JOBS" | "DEPS_REMOVE"
            ) {
                continue;
            }
            if let Some(value) = self.get(name) {
                let name = if name == "UVM_VERSION" { "BASE" } else { name };
                given += &format!(" {name}={}", quoted(value));
            }
        }
        given
    }
}

/// Writes a value so that a shell reads it as one word.
pub fn quoted(value: &str) -> String {
    if value.contains(char::is_control) {
        return format!("'{}'", value.replace('\'', r"'\''"));
    }
    let mut word = String::new();
    for c in value.chars() {
        if !(c.is_alphanumeric() || "@%_+=:,./-".contains(c)) {
            word.push('\\');
        }
        word.push(c);
    }
    word
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A setting of just these variables, for the checkout that is compiled.
    pub fn setting(env: &[(&str, &str)]) -> Setting {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()
            .unwrap();
        let env = env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Setting::new(top, env)
    }

    #[test]
    fn the_cache_is_where_the_scripts_have_it() {
        let cache = |env: &[(&str, &str)]| setting(env).cache;
        assert_eq!(cache(&[("HOME", "/h")]), Path::new("/h/.cache/uvm-rust"));
        let of_all = [
            ("HOME", "/h"),
            ("XDG_CACHE_HOME", "/x"),
            ("UVM_RUST_CACHE", ""),
        ];
        assert_eq!(cache(&of_all), Path::new("/x/uvm-rust"));
        assert_eq!(
            cache(&[("XDG_CACHE_HOME", "/x"), ("UVM_RUST_CACHE", "/own")]),
            Path::new("/own")
        );
    }

    #[test]
    fn two_lanes_run_where_there_are_two_processors() {
        assert_eq!(setting(&[("JOBS", "1")]).lanes(), 1);
        assert_eq!(setting(&[("JOBS", "8")]).lanes(), 2);
        assert_eq!(setting(&[("JOBS", "1"), ("LANES", "3")]).lanes(), 3);
        assert_eq!(setting(&[("JOBS", "2"), ("LANES", "0")]).lanes(), 2);
    }

    #[test]
    fn options_are_given_as_make_takes_them() {
        assert_eq!(
            setting(&[("ONLY", "x"), ("FRESH", "1"), ("LANES", "2"), ("JOBS", "4")]).given(),
            ""
        );
        let all = [
            ("GPU", "volta"),
            ("UVM_VERSION", "570"),
            ("QEMU_OPTS", "-a b"),
            ("SEED", "8"),
            ("VGPU_ORDER", "adversarial"),
            ("VGPU_SEED", "5"),
            ("RELEASE", ""),
            ("NOBODY_KNOWS", "1"),
        ];
        let given = setting(&all).given();
        let mut given: Vec<&str> = given.split(" ").filter(|word| !word.is_empty()).collect();
        given.sort_unstable();
        let mut want = [
            "GPU=volta",
            "BASE=570",
            "QEMU_OPTS=-a\\",
            "b",
            "SEED=8",
            "VGPU_ORDER=adversarial",
            "VGPU_SEED=5",
        ];
        want.sort_unstable();
        assert_eq!(given, want);
    }

    #[test]
    fn a_quoted_value_is_one_word() {
        for value in [
            "-a b",
            "it's",
            "a\nb",
            "$(x) `y` \"z\" \\ * ;&|<>#~",
            "plain-1.0_x/y:z,@%+=",
        ] {
            let said = setting(&[("PATH", "/usr/bin:/bin")]).said(&[
                "bash",
                "-c",
                &format!("printf '%s' {}", quoted(value)),
            ]);
            assert_eq!(said.as_deref(), Some(value));
        }
    }

    #[test]
    fn what_a_failing_command_prints_is_nothing() {
        let setting = setting(&[("PATH", "/usr/bin:/bin")]);
        assert_eq!(
            setting.said(&["sh", "-c", "echo a"]).as_deref(),
            Some("a\n")
        );
        assert_eq!(setting.said(&["sh", "-c", "echo a; exit 3"]), None);
        assert_eq!(setting.said(&["/nowhere/at/all"]), None);
    }
}
