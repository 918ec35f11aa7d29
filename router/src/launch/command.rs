//! The command that starts a worker, with the places where its port and number belong.

use std::ffi::{OsStr, OsString};
use std::process::Command;

const PORT: &str = "{port}";
const INDEX: &str = "{index}";

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Template {
    /// # Errors
    /// There is no program, or no word has a place for the port.
    pub(super) fn new(words: Vec<OsString>) -> Result<Self, String> {
        let has_port = |word: &OsString| word.to_str().is_some_and(|text| text.contains(PORT));
        let is_told = words.iter().any(has_port);
        let mut words = words.into_iter();
        let Some(program) = words.next() else {
            return Err(format!(
                "no command for the workers; end with `-- COMMAND`, with {PORT} where its port belongs"
            ));
        };
        if !is_told {
            let program = program.display();
            return Err(format!(
                "`{program}` is not told where to listen; write {PORT} where its port belongs"
            ));
        }
        Ok(Self { program, arguments: words.collect() })
    }

    /// The command of one worker.
    pub(super) fn fill(&self, index: usize, port: u16) -> Command {
        let fill = |word: &OsString| filled(word, index, port);
        let mut command = Command::new(fill(&self.program));
        command.args(self.arguments.iter().map(fill));
        command
    }

    pub(super) fn program(&self) -> &OsStr {
        &self.program
    }
}

/// A word that is no text has no places.
fn filled(word: &OsString, index: usize, port: u16) -> OsString {
    match word.to_str() {
        Some(text) => text.replace(PORT, &port.to_string()).replace(INDEX, &index.to_string()).into(),
        None => word.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(words: &[&str]) -> Result<Template, String> {
        Template::new(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn every_place_is_filled() {
        let command = template(&["w{index}", "--port={port}", "{port}{port}", "{index}", "{other}"]);
        let command = command.expect("a command").fill(3, 81);
        assert_eq!(command.get_program(), "w3");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["--port=81", "8181", "3", "{other}"]);
    }

    #[test]
    fn a_command_is_told_its_port() {
        assert!(template(&[]).expect_err("nothing").contains("-- COMMAND"));
        assert!(template(&["serve", "--port", "{index}"]).expect_err("no port").contains("`serve`"));
    }
}
