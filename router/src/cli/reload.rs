//! Reading the configuration again while the router runs.

use std::ffi::OsString;

use super::args;
use super::given::Environment;
use super::workers::NO_WORKERS;
use crate::config::Config;

/// What the same command line comes to now.
#[derive(Debug)]
pub(crate) struct Reloaded {
    pub(crate) config: Config,
    /// To be logged.
    pub(crate) warnings: Vec<String>,
}

/// Reads the file and the environment anew, under the command line of `Config::source`. What is wrong changes nothing. Blocks
/// while it reads and looks up names.
///
/// # Errors
/// One line that says what a start would have said.
pub(crate) fn reload(arguments: &[OsString]) -> Result<Reloaded, String> {
    reload_with(arguments, &|name| std::env::var_os(name))
}

fn reload_with(arguments: &[OsString], environment: Environment<'_>) -> Result<Reloaded, String> {
    let parsed = args::parse(arguments.iter().cloned(), environment).map_err(|stop| stop.message())?;
    // There may be others than those of the configuration.
    let warnings = parsed.warnings.into_iter().filter(|warning| warning != NO_WORKERS).collect();
    Ok(Reloaded { config: parsed.config, warnings })
}
