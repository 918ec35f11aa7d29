//! Scenario files: what is typed, what it means, and the cells that come out of it.
//!
//! Three stages. `document` holds what was typed, with the line or flag of every value; flags and sweeps are laid over
//! it there, so they are checked like the file and blamed like themselves. The readers, one per table, turn it into
//! [`Scenario`], in which every key has its one type, range and default. `cells` multiplies it by worlds, policies and
//! sweeps. Whatever is wrong is found here, before anything is started.

mod arrival;
mod cells;
mod contents;
mod document;
mod engine;
mod error;
mod faults;
mod fingerprint;
mod fleet;
mod horizon;
mod idle;
pub(crate) mod input;
mod mix;
mod overrides;
mod policies;
mod ranks;
mod resolve;
mod roles;
mod router;
mod section;
mod sessions;
mod slo;
mod spread;
mod target;
mod template;
mod windows;
mod workload;

#[cfg(test)]
mod apart;
#[cfg(test)]
mod flags;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod shipped;
#[cfg(test)]
pub(crate) mod testing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use arrival::Arrival;
pub(crate) use arrival::RATES;
pub use cells::Cell;
pub use engine::EngineSettings;
pub use error::ScenarioError;
pub use faults::{Faults, Outage};
pub use fingerprint::Fingerprint;
pub use fleet::{Fleet, Joining};
pub use mix::{Mix, Part};
pub use ranks::Ranks;
pub use resolve::Mode;
pub use roles::{Pool, Roles};
pub use router::Routing;
pub use sessions::{Agentic, Chat, Independent, Level, Opening, PrefixTree};
pub use spread::Spread;
pub use target::{Addresses, Command, Source, Target};
pub use template::Template;
#[cfg(test)]
pub(crate) use windows::read as read_windows;
pub use windows::{Gaps, Window, Windows};
pub(crate) use workload::SPEEDUPS;
pub use workload::{Jitter, MatchRatio, Order, Popularity, Repeat, SharedPrefix, TraceReplay, Workload};

use crate::report::{Assertion, Slo};
use resolve::Resolver;

/// A whole scenario, checked.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file it was read from.
    pub path: PathBuf,
    /// The text of that file.
    pub source: String,
    /// Its name; safe to use as the name of a directory.
    pub name: String,
    /// What it shows, for people.
    pub description: String,
    /// The first seed.
    pub seed: u64,
    /// How many seeds when the command line does not say.
    pub repeats: u32,
    /// The worlds it runs in.
    pub mode: Mode,
    /// What is sent.
    pub workload: Workload,
    /// When it is sent.
    pub arrival: Arrival,
    /// Who serves it.
    pub fleet: Fleet,
    /// The policies that run.
    pub policies: Vec<String>,
    /// Other routers, which run live beside the policies.
    pub targets: Vec<Arc<Target>>,
    /// What else the router is told.
    pub routing: Routing,
    /// What goes wrong.
    pub faults: Faults,
    /// What counts as good.
    pub slo: Option<Slo>,
    /// What must hold.
    pub asserts: Vec<Assertion>,
    /// The flags that changed it, as they were typed.
    pub overrides: Vec<String>,
    /// What it asks, and of which router.
    pub fingerprint: Fingerprint,
    cells: Vec<Cell>,
}

impl Scenario {
    /// The cells, in the order in which they run: virtual before live, by policy, the last swept key moving fastest. The
    /// scenario of a cell has the sweep's values and `[live]` applied, and no cells of its own.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        self.cells.clone()
    }

    /// The seeds of a run: `n` of them, or as many as the file says.
    pub fn seeds(&self, n: Option<u32>) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..u64::from(n.unwrap_or(self.repeats))).map(move |i| first + i)
    }
}

/// Reads the scenario at `path`. `overrides` are key paths and values of `--set`, `policies` those of `--policy`; they,
/// `trace` and `mode` win over the file.
///
/// # Errors
/// The first mistake, with its place. All of them are mistakes of the input.
pub fn load(
    path: &Path,
    overrides: &[(String, String)],
    policies: Option<&[String]>,
    trace: Option<&Path>,
    mode: Option<Mode>,
) -> Result<Scenario, ScenarioError> {
    let mut scenario = read(path, overrides, policies, trace, mode)?;
    scenario.overrides = overrides::typed(overrides, policies, trace, mode);
    Ok(scenario)
}

/// The same for what runs in virtual time only, whatever the file says.
///
/// # Errors
/// As [`load`].
pub fn load_virtual(
    path: &Path,
    overrides: &[(String, String)],
    policies: Option<&[String]>,
    trace: Option<&Path>,
) -> Result<Scenario, ScenarioError> {
    let mut scenario = read(path, overrides, policies, trace, Some(Mode::Virtual))?;
    // The mode was typed by nobody.
    scenario.overrides = overrides::typed(overrides, policies, trace, None);
    Ok(scenario)
}

fn read(
    path: &Path,
    overrides: &[(String, String)],
    policies: Option<&[String]>,
    trace: Option<&Path>,
    mode: Option<Mode>,
) -> Result<Scenario, ScenarioError> {
    let unreadable = |error| {
        let problem = format!("cannot be read: {error}");
        ScenarioError::at(path.display(), problem, "give the path of a scenario file")
    };
    let source = input::text(path).map_err(unreadable)?;
    let mut document = document::Document::parse(&path.display().to_string(), &source)?;
    overrides::apply(&mut document, overrides, policies, mode)?;
    let mut resolver = Resolver::new(path, &source, trace);
    let mut scenario = resolver.scenario(&document)?;
    scenario.cells = cells::expand(&document, &scenario, &mut resolver)?;
    scenario.fingerprint = Fingerprint::of(&document, &resolver.contents()?);
    Ok(scenario)
}

/// Whether `text` is a value as TOML has it, and no bare word.
pub(crate) fn is_toml_value(text: &str) -> bool {
    let origin = document::Origin::Flag("".into());
    !matches!(document::parse_value(text, &origin).value, document::Value::Text(read) if read == text)
}
