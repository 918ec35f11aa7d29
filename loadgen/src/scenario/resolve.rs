//! From what was typed to what it means.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::contents::Contents;
use super::document::{Document, Value};
use super::error::ScenarioError;
use super::section::{Field, Section};
use super::slo::{self, Judged};
use super::{Fingerprint, Scenario, arrival, faults::Faults, fleet, horizon, router, target, workload};
use crate::decisions;
use crate::run::World;
use crate::trace::{self, Grid, Trace, TraceError};

/// The only version of the format so far.
const SCHEMA: u32 = 1;

/// The keys of the outermost table.
pub(super) const KEYS: &[&str] = &[
    "schema",
    "name",
    "description",
    "seed",
    "repeats",
    "mode",
    "workload",
    "arrival",
    "fleet",
    "router",
    "faults",
    "live",
    "sweep",
    "slo",
    "assert",
    "target",
];

/// The worlds a scenario runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Virtual time only.
    Virtual,
    /// Live only.
    Live,
    /// Both.
    Both,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Virtual, Self::Live, Self::Both];

    /// The word used in files and on the command line.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Live => "live",
            Self::Both => "both",
        }
    }

    /// The worlds, in the order in which they run.
    #[must_use]
    pub fn worlds(self) -> &'static [World] {
        match self {
            Self::Virtual => &[World::Virtual],
            Self::Live => &[World::Live],
            Self::Both => &[World::Virtual, World::Live],
        }
    }
}

/// Turns documents of one scenario into scenarios. Traces are read once, however many cells replay them.
pub(super) struct Resolver<'a> {
    path: &'a Path,
    source: &'a str,
    /// The path of `--trace`, which wins over the file.
    pub(super) trace_flag: Option<&'a Path>,
    traces: BTreeMap<(PathBuf, trace::Options), Arc<Trace>>,
    grids_ns: BTreeMap<(PathBuf, trace::Options), Option<u64>>,
    /// What was read beside the scenario itself.
    read: RefCell<BTreeSet<PathBuf>>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(path: &'a Path, source: &'a str, trace_flag: Option<&'a Path>) -> Self {
        let (traces, grids_ns) = (BTreeMap::new(), BTreeMap::new());
        Self { path, source, trace_flag, traces, grids_ns, read: RefCell::default() }
    }

    /// What `document` means; without cells.
    pub(super) fn scenario(&mut self, document: &Document) -> Result<Scenario, ScenarioError> {
        let root = Section::open(&document.root, "", KEYS)?;
        schema(&root.need("schema")?)?;
        let name = name(&root.need("name")?)?;
        let policies_field = root.need("router")?;
        let (policies, routing) = router::read(policies_field.node)?;
        if let Some(live) = root.get("live") {
            router::read_live(live.node)?;
        }
        let narrowed = document.get(&["router", "policies"]).is_some_and(|node| node.origin.is_flag());
        let targets = root.get("target").map_or(Ok(Vec::new()), |field| target::read_all(&field))?;
        let judged = Judged { policies: &policies, narrowed, targets: &targets };
        let mode = root
            .get("mode")
            .map_or(Ok(Mode::Virtual), |field| field.choice(&Mode::ALL.map(|mode| (mode.label(), mode))))?;
        let trace = slo::Replayed::of(document, self.trace_flag.is_some());
        let measured = slo::Measured { slo: root.get("slo").is_some(), mode, trace };
        let asserts =
            root.get("assert").map_or(Ok(Vec::new()), |field| slo::read_asserts(&field, judged, measured))?;
        let faults =
            root.get("faults").map_or(Ok(Faults::default()), |field| Faults::read(field.node, mode))?;
        let workload = workload::read(root.need("workload")?.node, self)?;
        let scenario = Scenario {
            path: self.path.to_owned(),
            source: self.source.to_owned(),
            name,
            description: root.get("description").map_or(Ok(""), |field| field.text())?.to_owned(),
            // Seeds go up by one per run, and TOML's integers end here.
            seed: root.get("seed").map_or(Ok(1), |field| field.whole(0..=i64::MAX.unsigned_abs()))?,
            repeats: root.get("repeats").map_or(Ok(1), |field| field.whole(1..=10_000))?,
            mode,
            arrival: arrival::read(root.get("arrival").map(|field| field.node), &workload, &root, self)?,
            workload,
            fleet: fleet::read(root.need("fleet")?.node)?,
            policies,
            targets,
            routing,
            faults,
            slo: root.get("slo").map(|field| slo::read(field.node)).transpose()?,
            asserts,
            overrides: Vec::new(),
            fingerprint: Fingerprint::default(),
            cells: Vec::new(),
        };
        if scenario.routing.dp_aware {
            scenario.fleet.ranks.check_aware(&root.need("fleet")?)?;
        }
        if let Some(field) = root.get("target") {
            target::check(&scenario.targets, &scenario.fleet, &field)?;
        }
        scenario.faults.check_places(root.get("faults"), scenario.fleet.workers)?;
        if let (true, Some(_)) = (scenario.routing.dp_aware, scenario.fleet.joining) {
            let remedy = "remove it, or router.dp_aware";
            return Err(root
                .need("fleet")?
                .error("joining is for workers that are not chosen by rank", remedy));
        }
        horizon::check(document, &scenario)?;
        Ok(scenario)
    }

    /// The path of a file that a scenario names, which is relative to its own, and is going to be read.
    pub(super) fn beside_scenario(&self, path: &str) -> PathBuf {
        let path = self.path.parent().unwrap_or(Path::new("")).join(path);
        self.read.borrow_mut().insert(path.clone());
        path
    }

    /// What the files hold that were read so far.
    pub(super) fn contents(&self) -> Result<BTreeSet<Contents>, ScenarioError> {
        let read = self.read.borrow();
        let files = self.trace_flag.into_iter().chain(read.iter().map(PathBuf::as_path));
        let of = |path: &Path| {
            let failed = |error| {
                ScenarioError::at(path.display(), format!("cannot be read: {error}"), "leave it where it is")
            };
            Contents::of(path).map_err(failed)
        };
        files.flat_map(decisions::kept).map(|path| of(&path)).collect()
    }

    /// The trace at `path`.
    pub(super) fn trace(&mut self, path: &Path, options: trace::Options) -> Result<Arc<Trace>, TraceError> {
        let key = (path.to_owned(), options);
        if let Some(trace) = self.traces.get(&key) {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(trace::read(path, &options)?);
        self.traces.insert(key, Arc::clone(&trace));
        Ok(trace)
    }

    /// The coarse step of the stamps in the trace at `path`, if they have one.
    pub(super) fn grid_ns(
        &mut self,
        path: &Path,
        options: trace::Options,
    ) -> Result<Option<u64>, TraceError> {
        let key = (path.to_owned(), options);
        if let Some(known) = self.grids_ns.get(&key) {
            return Ok(*known);
        }
        // Not kept in memory: a limit may be there to spare it.
        let stamps = trace::open(path, &options)?.map(|row| row.map(|row| row.at_ns));
        let grid_ns = stamps.collect::<Result<Grid, TraceError>>()?.step_ns();
        self.grids_ns.insert(key, grid_ns);
        Ok(grid_ns)
    }
}

fn schema(field: &Field<'_>) -> Result<(), ScenarioError> {
    match field.node.value {
        Value::Integer(given) if given == i64::from(SCHEMA) => Ok(()),
        Value::Integer(given) => {
            Err(field.error(format!("{given} is not a known format"), format!("use schema = {SCHEMA}")))
        }
        _ => Err(field.wrong_kind("a whole number")),
    }
}

/// A name that can be the name of a directory.
pub(super) fn name(field: &Field<'_>) -> Result<String, ScenarioError> {
    let name = field.text()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        let remedy = "results go to a directory of this name: use letters, digits, _, - and .";
        return Err(field.error(format!("\"{name}\" cannot be a name"), remedy));
    }
    Ok(name.to_owned())
}
