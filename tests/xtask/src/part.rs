// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A part of the tests: its name, its command, and how it runs beside others.

use crate::setting::Setting;

/// How a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// What comes after it waits until it has ended.
    Alone,
    /// It runs beside what follows.
    Beside,
    /// It runs in a VM beside what follows, and is remembered once it has passed.
    Lane,
}

/// Asks what a part needs and is not here, in words.
pub type Lacks = fn(&Setting) -> Option<String>;

/// A part of the tests.
#[derive(Clone, Debug)]
pub struct Part {
    /// What `ONLY` and `tests/skips` call it.
    pub name: String,
    /// How it runs beside others.
    pub how: How,
    /// Variables that it sets for its command.
    pub env: Vec<(String, String)>,
    /// The command and its arguments, run in the checkout.
    pub command: Vec<String>,
    /// Where it may be that it cannot run, the question whether it can.
    pub lacks: Option<Lacks>,
    /// It cannot run here, for this reason.
    pub skipped: Option<String>,
    /// It judges the checkout and makes nothing that others need. So its passing is remembered by the
    /// whole checkout, as nobody says what of it goes into the part.
    pub judges: bool,
}

impl Part {
    fn new(name: &str, how: How, command: &[&str]) -> Part {
        Part {
            name: name.to_owned(),
            how,
            env: Vec::new(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            lacks: None,
            skipped: None,
            judges: false,
        }
    }

    /// A part for which all that follows waits.
    pub fn alone(name: &str, command: &[&str]) -> Part {
        Part::new(name, How::Alone, command)
    }

    /// A part beside what follows.
    pub fn beside(name: &str, command: &[&str]) -> Part {
        Part::new(name, How::Beside, command)
    }

    /// A part that boots a VM, and is remembered by what went into it.
    pub fn lane(name: &str, command: &[&str]) -> Part {
        Part::new(name, How::Lane, command)
    }

    /// A lane whose command runs inside the VM that `settings` ("NAME=VALUE") describe.
    pub fn vm(name: &str, settings: &[&str], command: &str) -> Part {
        Part::lane(name, &["scripts/vm.sh", command]).with(settings)
    }

    /// A part that cannot run here.
    pub fn skipped(name: &str, why: String) -> Part {
        Part {
            skipped: Some(why),
            ..Part::alone(name, &[])
        }
    }

    /// Sets variables ("NAME=VALUE") for the command.
    #[must_use]
    pub fn with(mut self, settings: &[&str]) -> Part {
        for setting in settings {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            self.env.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Asks before it runs whether it can.
    #[must_use]
    pub fn unless(mut self, lacks: Lacks) -> Part {
        self.lacks = Some(lacks);
        self
    }

    /// Has the part's passing remembered by the whole checkout.
    #[must_use]
    pub fn judging(self) -> Part {
        Part {
            judges: true,
            ..self
        }
    }

    /// The scripts of the checkout that the command names.
    pub fn scripts(&self) -> Vec<String> {
        let words = self
            .command
            .iter()
            .flat_map(|argument| argument.split_whitespace());
        let ours = |w: &&str| w.starts_with("scripts/") || w.starts_with("tests/parts/");
        let one = |w: &&str| w.ends_with(".sh") && !w.contains('*');
        words
            .filter(|w| ours(w) && one(w))
            .map(str::to_owned)
            .collect()
    }
}
