//! Cells: a scenario multiplied by its worlds, its policies and `[sweep]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use router_core::PolicyConfig;

use super::document::{Document, Node, Origin, Value};
use super::error::{ScenarioError, suggest};
use super::idle::{self, Idle};
use super::resolve::Resolver;
use super::section::Section;
use super::{Scenario, Target, policies, router};
use crate::run::{Params, World};

/// Most cells of one scenario.
const MOST_CELLS: usize = 10_000;
/// The tables whose keys can be swept; besides them, [`router::SWEPT`].
const SWEPT_TABLES: [&str; 5] = ["workload", "arrival", "fleet", "router.options", "faults"];

/// What is run once per seed: one policy with one set of parameters in one world.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The world.
    pub world: World,
    /// The policy and its options. Where another router is under test, the scenario's first policy: nobody asks it.
    pub policy: PolicyConfig,
    /// The router under test where it is not ours; only in live cells.
    pub target: Option<Arc<Target>>,
    /// What distinguishes it from other cells: the policy's options that were set, by name, and other swept keys, by
    /// path.
    pub params: Params,
    /// The scenario with the sweep's values, and for live cells `[live]`, applied.
    pub scenario: Arc<Scenario>,
}

impl Cell {
    /// What is compared in it: a policy of our router, or another router.
    #[must_use]
    pub fn router(&self) -> &str {
        self.target.as_ref().map_or(self.policy.name(), |target| &target.name)
    }
}

/// Who routes in a cell.
#[derive(Clone, Copy)]
enum Routes<'a> {
    /// Our router, by a policy.
    Policy(&'a str),
    /// Another router.
    Target(&'a Arc<Target>),
}

impl Routes<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Policy(name) => name,
            Self::Target(target) => &target.name,
        }
    }
}

/// One swept key.
#[derive(Debug)]
struct Axis {
    path: String,
    values: Vec<Node>,
    origin: Origin,
}

impl Axis {
    /// The policy whose option this is, and the option.
    fn option(&self) -> Option<(&str, &str)> {
        self.path.strip_prefix("router.options.")?.split_once('.')
    }

    /// Whether it makes a difference to `policy`: options of other policies do not.
    fn concerns(&self, policy: &str) -> bool {
        self.option().is_none_or(|(of, _)| of == policy)
    }

    fn set(&self, document: &mut Document, value: &Node) {
        document.set(&self.path.split('.').collect::<Vec<_>>(), value.clone());
    }
}

/// All cells of `scenario`, which is what `document` means.
pub(super) fn expand(
    document: &Document,
    scenario: &Scenario,
    resolver: &mut Resolver<'_>,
) -> Result<Vec<Cell>, ScenarioError> {
    let axes = axes(document)?;
    check_values(document, &axes, resolver)?;
    let mut cells = Vec::new();
    let mut idle_keys = Idle::default();
    let mut idle: Vec<&Axis> = axes.iter().collect();
    for world in scenario.mode.worlds() {
        let document = match world {
            World::Virtual => document.clone(),
            World::Live => router::lay_live_over(document),
        };
        let scenario = resolver.scenario(&document)?;
        let targets = scenario.targets.iter().filter(|_| *world == World::Live);
        let policies = scenario.policies.iter().map(|policy| Routes::Policy(policy));
        for routes in policies.chain(targets.map(Routes::Target)) {
            idle.retain(|axis| !axis.concerns(routes.name()));
            let axes: Vec<&Axis> = axes.iter().filter(|axis| axis.concerns(routes.name())).collect();
            for values in combinations(&axes) {
                if cells.len() == MOST_CELLS {
                    let problem = format!("there are more than {MOST_CELLS} cells");
                    return Err(ScenarioError::at(scenario.path.display(), problem, "sweep fewer values"));
                }
                cells.push(cell(*world, routes, &document, &axes, &values, resolver, &mut idle_keys)?);
            }
        }
    }
    refuse_idle(document, &idle)?;
    idle_keys.check()?;
    idle::check_params(document, cells.iter().map(|cell| &cell.params))?;
    Ok(cells)
}

/// Refuses a swept option of a policy that does not run, unless the command line narrowed what runs.
fn refuse_idle(document: &Document, idle: &[&Axis]) -> Result<(), ScenarioError> {
    let narrowed = document.get(&["router", "policies"]).is_some_and(|node| node.origin.is_flag());
    let wrong = |axis: &&&Axis| axis.origin.is_flag() || !narrowed;
    let Some((axis, (policy, _))) = idle.iter().find(wrong).and_then(|axis| Some((axis, axis.option()?)))
    else {
        return Ok(());
    };
    let problem = format!("\"{policy}\" does not run here");
    let error = ScenarioError::at(&axis.origin, problem, "add it to router.policies or remove this line");
    Err(error.key(format!("sweep.\"{}\"", axis.path)))
}

/// One value per axis, in every combination; the last axis moves fastest.
fn combinations<'a>(axes: &[&'a Axis]) -> Vec<Vec<&'a Node>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        let longer = |shorter: Vec<&'a Node>| {
            axis.values.iter().map(move |value| shorter.iter().copied().chain([value]).collect())
        };
        // Bounded here too: a product of long lists must not fill the memory before it is refused.
        all = all.into_iter().flat_map(longer).take(MOST_CELLS + 1).collect();
    }
    all
}

fn cell(
    world: World,
    routes: Routes<'_>,
    document: &Document,
    axes: &[&Axis],
    values: &[&Node],
    resolver: &mut Resolver<'_>,
    idle: &mut Idle,
) -> Result<Cell, ScenarioError> {
    let mut document = document.clone();
    let mut params = Params::new();
    for (axis, value) in axes.iter().zip(values) {
        axis.set(&mut document, value);
        if axis.option().is_none() {
            params.insert(axis.path.clone(), value.value.to_json());
        }
    }
    let scenario = Arc::new(resolver.scenario(&document)?);
    let (policy, target) = match routes {
        Routes::Policy(policy) => (policy, None),
        Routes::Target(target) => (scenario.policies.first().map_or("", String::as_str), Some(target)),
    };
    let options = document.get(&["router", "options", policy]).filter(|_| target.is_none());
    if let Some(serde_json::Value::Object(set)) = options.map(|node| node.value.to_json()) {
        params.extend(set);
    }
    let policy = policies::configure(policy, options)?;
    idle.look(&document, &scenario);
    Ok(Cell { world, policy, target: target.cloned(), params, scenario })
}

/// Reads `[sweep]`. Paths may be quoted keys or nested tables; a path of the command line wins over one of the file.
fn axes(document: &Document) -> Result<Vec<Axis>, ScenarioError> {
    let Some(node) = document.get(&["sweep"]) else { return Ok(Vec::new()) };
    let mut lists = BTreeMap::new();
    flatten(node, "", &mut lists)?;
    // `--set` of a swept key is one value for it, and wins over the list of the file.
    let set = |path: &str| {
        document.get(&path.split('.').collect::<Vec<_>>()).is_some_and(|node| node.origin.is_flag())
    };
    let unset = lists.into_iter().filter(|(path, node)| node.origin.is_flag() || !set(path));
    unset.map(|(path, node)| axis(path, node)).collect()
}

fn flatten<'a>(
    node: &'a Node,
    prefix: &str,
    lists: &mut BTreeMap<String, &'a Node>,
) -> Result<(), ScenarioError> {
    for (key, field) in Section::unchecked(node, "sweep")?.fields() {
        let path = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
        if field.is_table() {
            flatten(field.node, &path, lists)?;
        } else if !lists.get(&path).is_some_and(|known| known.origin.is_flag()) {
            lists.insert(path, field.node);
        }
    }
    Ok(())
}

fn axis(path: String, node: &Node) -> Result<Axis, ScenarioError> {
    let error = |problem: String, remedy: &str| {
        ScenarioError::at(&node.origin, problem, remedy).key(format!("sweep.\"{path}\""))
    };
    let of_table = |table: &str| path.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
    if !SWEPT_TABLES.into_iter().any(of_table) && !router::SWEPT.contains(&path.as_str()) {
        let head = path.split('.').next().unwrap_or_default();
        let remedy = match SWEPT_TABLES.contains(&path.as_str()) {
            true => format!("it is a table: name one of its keys, {path}.KEY"),
            false if head == "router" => {
                suggest(&path, router::SWEPT.iter().copied().chain(["router.options"]))
            }
            false => suggest(head, SWEPT_TABLES),
        };
        return Err(error(format!("\"{path}\" cannot be swept"), &remedy));
    }
    let Value::List(values) = &node.value else {
        return Err(error(format!("is {}", node.value.kind()), "give a list of values"));
    };
    if values.is_empty() {
        return Err(error("is empty".to_owned(), "give at least one value"));
    }
    for (place, value) in values.iter().enumerate() {
        let given = value.value.to_json();
        let same = |other: &Node| {
            let other = other.value.to_json();
            other == given || other.as_f64().is_some_and(|number| Some(number) == given.as_f64())
        };
        if values[..place].iter().any(same) {
            let problem = format!("{given} stands here twice");
            let key = format!("sweep.\"{path}\"");
            return Err(ScenarioError::at(&value.origin, problem, "name every value once").key(key));
        }
    }
    Ok(Axis { values: values.clone(), origin: node.origin.clone(), path })
}

/// Tries every swept value by itself, also those of policies that do not run, so that no mistake hides.
fn check_values(
    document: &Document,
    axes: &[Axis],
    resolver: &mut Resolver<'_>,
) -> Result<(), ScenarioError> {
    for axis in axes {
        for value in &axis.values {
            let mut document = document.clone();
            axis.set(&mut document, value);
            resolver.scenario(&document)?;
        }
    }
    Ok(())
}
