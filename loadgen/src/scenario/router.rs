//! `[router]` and `[live]`: which policies run, with which options, and what differs when run live.

use super::document::{Document, Node};
use super::error::ScenarioError;
use super::fleet;
use super::policies;
use super::section::{Field, Section};

/// Reads `router.policies`.
pub(super) fn read(node: &Node) -> Result<Vec<String>, ScenarioError> {
    let section = Section::open(node, "router", KEYS)?;
    if let Some(options) = section.get("options") {
        for (name, table) in Section::unchecked(options.node, "router.options")?.fields() {
            policies::configure(&policies::known_key(name, &table)?, Some(table.node))?;
        }
    }
    policy_list(&section.need("policies")?, false)
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
pub(super) const KEYS: &[&str] = &["policies", "options"];
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
