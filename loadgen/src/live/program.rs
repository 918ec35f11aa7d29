//! Whether the program of a target is there: found out before anything runs, and not after minutes of other runs.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::LiveError;
use crate::scenario::{Command, Source, Target};

/// Looks for the program that a target is started with.
///
/// # Errors
/// There is none; says where it was named.
pub(crate) fn check(target: &Target) -> Result<(), LiveError> {
    let Source::Command(command) = &target.source else { return Ok(()) };
    let path = command.env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH"));
    match command.program() {
        Some(program) if !is_there(program, path.as_deref()) => Err(LiveError::Start {
            name: target.name.clone(),
            why: missing(command, program),
            stderr: String::new(),
        }),
        _ => Ok(()),
    }
}

fn missing(command: &Command, program: &str) -> String {
    let looked = if program.contains('/') { "" } else { " in PATH" };
    format!("{}: there is no program {program}{looked}; install it, or name its path", command.place)
}

/// Whether a program can be started, as `exec` looks for it: by its path, or in the folders of `path`.
fn is_there(program: &str, path: Option<&OsStr>) -> bool {
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    path.is_some_and(|path| std::env::split_paths(path).any(|folder| is_program(&folder.join(program))))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|there| there.is_file() && there.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_as_it_is_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let there = || is_there("tool", Some(dir.path().as_os_str()));
        assert!(!there(), "it cannot be run");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(there() && is_there(file.to_str().unwrap(), None));
        assert!(!is_there("tool", None) && !is_there("/no/such/tool", None));
        assert!(!is_there(dir.path().to_str().unwrap(), None), "a folder");
    }
}
