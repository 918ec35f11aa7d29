//! Flags that several commands have.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{Failure, assignment};
use crate::app;
use crate::report;
use crate::scenario::{self, Mode, Scenario};
use crate::whole::{is_same_file, write_whole};

/// What is laid over the scenario of a run or a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Changes {
    /// The policies to run, "*" for every policy that needs no header; overrides the file
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Option<Vec<String>>,
    /// How many seeds to run, counted up from the file's seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// A key of the file and its new value, for example `--set fleet.workers=4`; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// The trace to replay; overrides the file
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
}

impl Changes {
    /// The scenario at `path` with them.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub(super) fn load(&self, path: &Path, mode: Option<Mode>) -> Result<Scenario, Failure> {
        let (policies, trace) = (self.policy.as_deref(), self.trace.as_deref());
        scenario::load(path, &self.set, policies, trace, mode).map_err(Failure::usage)
    }

    /// The same in virtual time; `more` is laid over it as `--set` is.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub(super) fn load_virtual(&self, path: &Path, more: &[(String, String)]) -> Result<Scenario, Failure> {
        let overrides: Vec<(String, String)> = self.set.iter().chain(more).cloned().collect();
        let (policies, trace) = (self.policy.as_deref(), self.trace.as_deref());
        scenario::load_virtual(path, &overrides, policies, trace).map_err(Failure::usage)
    }
}

/// Where results go, and what is told.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Output {
    /// Where results go (by default reports/NAME/ for a run, and reports/NAME-COMMAND/ for other commands)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print errors only
    #[arg(long)]
    pub quiet: bool,
}

impl Output {
    /// The folder of the results. One that cannot be written to does not cost the table: it is told at the end.
    ///
    /// # Errors
    /// It cannot be written to, and no table is wanted.
    pub(super) fn folder(&self, scenario: &Scenario, command: Option<&str>) -> Result<Folder, Failure> {
        let name = command.map_or_else(|| scenario.name.clone(), |word| format!("{}-{word}", scenario.name));
        let path = self.out.clone().unwrap_or_else(|| PathBuf::from("reports").join(name));
        match report::prepare(&path).map_err(Failure::usage) {
            Err(failure) if self.quiet => Err(failure),
            prepared => Ok(Folder { path, refused: prepared.err() }),
        }
    }
}

/// Where results go.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Why it was known before all work that nothing can be written there.
    refused: Option<Failure>,
}

impl Folder {
    /// Writes results; an interrupt waits for the end of it. Gives the folder.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn keep<E: Display>(
        &self,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<&PathBuf, Failure> {
        match &self.refused {
            Some(failure) => Err(failure.clone()),
            None => app::uninterrupted(|| write(&self.path)).map(|()| &self.path).map_err(Failure::usage),
        }
    }
}

/// Refuses to write one of `out` over one of `inputs`, by whatever links; `what` says what that is.
pub(super) fn refuse_input<'a>(
    out: impl IntoIterator<Item = &'a PathBuf>,
    what: &str,
    inputs: impl IntoIterator<Item = &'a PathBuf> + Clone,
) -> Result<(), Failure> {
    for out in out {
        if inputs.clone().into_iter().any(|input| is_same_file(input, out)) {
            return Err(Failure::usage(format!("{} is {what}; give another file to write", out.display())));
        }
    }
    Ok(())
}

/// Writes the file that `flag` names, whole or not at all.
pub(super) fn write_file(flag: &str, path: &Path, text: &str) -> Result<(), Failure> {
    write_whole(path, |to| to.write_all(text.as_bytes())).map_err(|error: std::io::Error| {
        let path = path.display();
        Failure::usage(format!("{flag} {path}: cannot be written: {error}; choose another place"))
    })
}

/// The same for `--json`.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::usage)?;
    write_file("--json", path, &(text + "\n"))
}
