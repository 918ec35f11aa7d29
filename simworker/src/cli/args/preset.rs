//! `--preset`: a name, or a file that `simworker calibrate` has written.

use std::ffi::OsStr;
use std::path::Path;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use simworker_core::{PRESETS, Preset, preset};

use crate::preset_file::PresetFile;

/// A preset, and what a file says beyond it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen {
    pub(super) preset: &'static Preset,
    pub(super) page_size: Option<u32>,
    pub(super) request_overhead_ns: Option<u64>,
}

/// Takes the names of presets, and paths that end in `.toml`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PresetParser;

impl TypedValueParser for PresetParser {
    type Value = Chosen;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Chosen, clap::Error> {
        let path = Path::new(value);
        if path.extension().is_some_and(|extension| extension == "toml") {
            let wrong = |message: String| {
                let place = arg.map(|arg| format!("{arg}: ")).unwrap_or_default();
                clap::Error::raw(ErrorKind::ValueValidation, format!("{place}{message}\n")).with_cmd(command)
            };
            let file = PresetFile::read(path).map_err(wrong)?;
            return Ok(Chosen {
                preset: file.leak(),
                page_size: Some(file.preset.page_size),
                request_overhead_ns: Some(file.preset.request_overhead_ns),
            });
        }
        let names = PossibleValuesParser::new(PRESETS.iter().map(|preset| preset.name));
        let known = names.try_map(|name| preset(&name).ok_or("an unknown preset"));
        let preset = known.parse_ref(command, arg, value)?;
        Ok(Chosen { preset, page_size: None, request_overhead_ns: None })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = PRESETS.iter().map(|preset| PossibleValue::new(preset.name));
        Some(Box::new(names.chain([PossibleValue::new("FILE.toml")])))
    }
}
