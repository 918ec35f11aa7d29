//! `[router]` and `[live]`: which policies run, with which options, and what differs when run live.

use router_core::{Policies, PolicyConfig, Role};

use super::document::{Document, Node, Value};
use super::error::ScenarioError;
use super::fleet;
use super::policies;
use super::section::{Field, Section};

/// The policy of decode workers where nothing is said: their prompts are computed elsewhere, so that only load counts.
const DEFAULT_DECODE_POLICY: &str = "power_of_two";

/// How the router works besides the policy that a cell is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// The policy that chooses decode workers, with its options; the cell's policy chooses all others.
    pub decode_policy: PolicyConfig,
    /// Whether every rank of a worker is a candidate.
    pub dp_aware: bool,
    /// Most decode streams per prefill worker that they came from.
    pub decode_dispatch_limit: Option<u32>,
    /// Prompts of which fewer tokens are left to compute are not split, where workers that do both are there; 0 for
    /// splitting all.
    pub least_uncached_tokens: u64,
    /// How long a worker may take until the first byte of its answer, in nanoseconds; then the request ends with 504.
    pub first_byte_ns: Option<u64>,
}

impl Routing {
    /// What a router's own file says of it beside its policy, where that is not the default: section and line. The policy
    /// of decode workers matters only where some are.
    #[must_use]
    pub fn settings(&self, disaggregated: bool) -> Vec<(&'static str, String)> {
        let mut settings = Vec::new();
        if disaggregated {
            settings.push(("policy", format!("decode_policy = \"{}\"", self.decode_policy.name())));
        }
        if self.dp_aware {
            settings.push(("fleet", "dp_aware = true".to_owned()));
        }
        if let Some(limit) = self.decode_dispatch_limit {
            settings.push(("disaggregation", format!("decode_dispatch_limit = {limit}")));
        }
        if self.least_uncached_tokens > 0 {
            let least = self.least_uncached_tokens;
            settings.push(("disaggregation", format!("pd_least_uncached_tokens = {least}")));
        }
        settings
    }
}

/// Reads `[router]`: the policies that run, and the rest.
pub(super) fn read(node: &Node) -> Result<(Vec<String>, Routing), ScenarioError> {
    let section = Section::open(node, "router", KEYS)?;
    if let Some(options) = section.get("options") {
        for (name, table) in Section::unchecked(options.node, "router.options")?.fields() {
            policies::configure(&policies::known_key(name, &table)?, Some(table.node))?;
        }
    }
    Ok((policy_list(&section.need("policies")?, false)?, routing(&section)?))
}

fn routing(section: &Section<'_>) -> Result<Routing, ScenarioError> {
    let name = |field: Field<'_>| policies::known_name(&field);
    let decode = section.get("decode_policy").map_or(Ok(DEFAULT_DECODE_POLICY.to_owned()), name)?;
    let options = section.get("options").map(|options| options.node);
    let options = options.and_then(|node| match &node.value {
        Value::Table(table) => table.get(&decode),
        _ => None,
    });
    let limit = |field: Field<'_>| field.whole(0..=u32::MAX >> 1);
    let least = |field: Field<'_>| field.whole(0..=1_000_000_000_u64);
    let decode_policy = policies::configure(&decode, options)?;
    Policies::all(decode_policy.clone())
        .with(Role::Decode, decode_policy.clone())
        .map_err(|unfit| section.error("decode_policy", unfit.to_string(), ""))?;
    Ok(Routing {
        decode_policy,
        dp_aware: section.get("dp_aware").map_or(Ok(false), |field| field.boolean())?,
        decode_dispatch_limit: Some(section.get("decode_dispatch_limit").map_or(Ok(0), limit)?)
            .filter(|most| *most > 0),
        least_uncached_tokens: section.get("least_uncached_tokens").map_or(Ok(0), least)?,
        first_byte_ns: section
            .get("first_byte_timeout")
            .map(|field| field.short_duration_ns())
            .transpose()?,
    })
}

/// A list of policies, or "*".
pub(super) fn policy_list(field: &Field<'_>, may_be_empty: bool) -> Result<Vec<String>, ScenarioError> {
    if field.is_text("*") {
        return Ok(policies::without_headers());
    }
    let items = field.list()?;
    if let [only] = &items[..]
        && only.is_text("*")
    {
        return Ok(policies::without_headers());
    }
    if items.is_empty() && !may_be_empty {
        let remedy = "name at least one policy, or \"*\" for every policy that needs no header";
        return Err(field.error("is empty", remedy));
    }
    let mut names = Vec::new();
    for item in items {
        let name = policies::known_name(&item)?;
        if names.contains(&name) {
            return Err(item.error(format!("\"{name}\" stands here twice"), "name every policy once"));
        }
        names.push(name);
    }
    Ok(names)
}

/// What `[live]` may set besides its policies: key here, and the path it stands for.
const LIVE_KEYS: &[(&str, [&str; 2])] =
    &[("stream_interval", ["fleet", "stream_interval"]), ("speed", ["fleet", "speed"])];

/// The keys of `[router]`.
pub(super) const KEYS: &[&str] = &[
    "policies",
    "options",
    "decode_policy",
    "dp_aware",
    "decode_dispatch_limit",
    "least_uncached_tokens",
    "first_byte_timeout",
];
/// Those of them that can be swept as they are.
pub(super) const SWEPT: &[&str] = &[
    "router.decode_policy",
    "router.dp_aware",
    "router.decode_dispatch_limit",
    "router.least_uncached_tokens",
    "router.first_byte_timeout",
];
/// The keys of `[live]`.
pub(super) const LIVE: &[&str] = &["policies", "stream_interval", "speed"];

/// Checks `[live]`.
pub(super) fn read_live(node: &Node) -> Result<(), ScenarioError> {
    let section = Section::open(node, "live", LIVE)?;
    if let Some(field) = section.get("policies") {
        policy_list(&field, true)?;
    }
    if let Some(field) = section.get("stream_interval") {
        fleet::stream_interval(&field)?;
    }
    if let Some(field) = section.get("speed") {
        fleet::speed(&field)?;
    }
    Ok(())
}

/// The document of the live cells: `[live]` laid over the rest. What the command line said outweighs what the file
/// says under `[live]`.
pub(super) fn lay_live_over(document: &Document) -> Document {
    let mut live = document.clone();
    for (key, path) in LIVE_KEYS {
        let Some(node) = document.get(&["live", key]) else { continue };
        let outweighed = document.get(path).is_some_and(|general| general.origin.is_flag());
        if !outweighed || node.origin.is_flag() {
            live.set(path, node.clone());
        }
    }
    let general_is_flag = document.get(&["router", "policies"]).is_some_and(|node| node.origin.is_flag());
    if let Some(node) = document.get(&["live", "policies"]).filter(|node| !node.is_empty_list())
        && (!general_is_flag || node.origin.is_flag())
    {
        live.set(&["router", "policies"], node.clone());
    }
    live
}
