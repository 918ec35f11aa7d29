//! The files of an experiment.
//!
//! All of them are first written under temporary names in the same folder and only then renamed, so that a full disk
//! or an interrupt leaves the results of the last run as they were.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::experiment::Experiment;
use super::summary::RunSummary;
use super::winner::{MARK, Winner, winners};
use super::{histograms, html, markdown, requests, workers};
use crate::scenario::Fingerprint;

/// Results that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; choose another folder with --out", path.display())]
pub struct ReportError {
    path: PathBuf,
    source: io::Error,
}

/// The files that there are only where requests were kept.
const OF_REQUESTS: [&str; 4] = ["requests.csv", "timeseries.csv", "workers.csv", "reach.csv"];

/// Makes sure that results can be written to a folder, creating it if need be. To be called before a long run.
///
/// # Errors
/// If the folder cannot be created or no file can be created in it.
pub fn prepare(dir: &Path) -> Result<(), ReportError> {
    let fail = |source| ReportError { path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(fail)?;
    let mut staging = Staging::new(dir);
    staging.stage("writable", |_| Ok(()))
}

/// Writes `summary.json`, `summary.csv`, `summary.md`, `requests.csv`, `timeseries.csv`, `workers.csv`, `reach.csv`,
/// `hist/*.hlog`, `environment.json`, `report.html` and the winners' files into the folder, which is created if need be. Files of an earlier run are replaced only when all new ones are complete.
///
/// # Errors
/// If the folder or one of the files cannot be written; the message names it.
pub fn write(dir: &Path, experiment: &Experiment) -> Result<(), ReportError> {
    prepare(dir)?;
    let mut staging = Staging::new(dir);
    staging.stage("requests.csv", |to| {
        requests::write_requests(to, experiment.runs()).map_err(io::Error::other)
    })?;
    staging.stage("timeseries.csv", |to| {
        workers::write_timeseries(to, experiment.runs()).map_err(io::Error::other)
    })?;
    staging
        .stage("workers.csv", |to| workers::write_workers(to, experiment.runs()).map_err(io::Error::other))?;
    staging.stage("reach.csv", |to| workers::write_reach(to, experiment.runs()).map_err(io::Error::other))?;
    let histograms = histograms::files(experiment);
    for (name, text) in &histograms {
        staging.stage(name, |to| to.write_all(text.as_bytes()))?;
    }
    publish(staging, experiment, &winners(experiment))?;
    remove_other_histograms(dir, |name| histograms.iter().any(|(path, _)| path.ends_with(name)))
}

/// The same without the files about requests and workers, for runs whose requests were not kept; `winner` says whether the best becomes a file.
///
/// # Errors
/// As [`write()`].
pub fn write_figures(dir: &Path, experiment: &Experiment, winner: bool) -> Result<(), ReportError> {
    prepare(dir)?;
    let winners = if winner { winners(experiment) } else { Vec::new() };
    publish(Staging::new(dir), experiment, &winners)?;
    remove_other_histograms(dir, |_| false)?;
    OF_REQUESTS.iter().try_for_each(|name| remove(&dir.join(name)))
}

/// Writes files of other contents, all of them or none, and removes those whose content is `None`.
///
/// # Errors
/// As [`write()`].
pub fn write_others(dir: &Path, files: &[(&str, Option<String>)]) -> Result<(), ReportError> {
    let mut staging = Staging::new(dir);
    for (name, text) in files.iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
        staging.stage(name, |to| to.write_all(text.as_bytes()))?;
    }
    staging.publish()?;
    let mut gone = files.iter().filter(|(_, text)| text.is_none());
    gone.try_for_each(|(name, _)| remove(&dir.join(name)))
}

/// Removes what an earlier run has left: beside new results it would pass for theirs.
fn remove(path: &Path) -> Result<(), ReportError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ReportError { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn publish(mut staging: Staging<'_>, experiment: &Experiment, winners: &[Winner]) -> Result<(), ReportError> {
    let dir = staging.dir;
    staging.stage("summary.json", |to| json(to, &SummaryFile::of(experiment)))?;
    staging.stage("summary.csv", |to| {
        requests::write_summaries(to, experiment.summaries()).map_err(io::Error::other)
    })?;
    staging.stage("summary.md", |to| to.write_all(markdown::summary(experiment).as_bytes()))?;
    staging.stage("environment.json", |to| json(to, experiment.environment()))?;
    staging.stage("report.html", |to| {
        let page = html::render(experiment).map_err(io::Error::other)?;
        to.write_all(page.as_bytes())
    })?;
    for winner in winners {
        staging.stage(&winner.file, |to| to.write_all(winner.text.as_bytes()))?;
    }
    staging.publish()?;
    remove_other_winners(dir, |name| winners.iter().any(|winner| winner.file == name))
}

/// Removes the histograms of earlier runs, and their folder if nothing else is in it.
fn remove_other_histograms(dir: &Path, is_new: impl Fn(&str) -> bool) -> Result<(), ReportError> {
    let folder = dir.join(histograms::FOLDER);
    let fail = |path: &Path, source| ReportError { path: path.to_owned(), source };
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|source| fail(&folder, source))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_ours = || File::open(&path).is_ok_and(histograms::is_ours);
        if name.ends_with(".hlog") && !is_new(&format!("/{name}")) && is_ours() {
            fs::remove_file(&path).map_err(|source| fail(&path, source))?;
        }
    }
    // It stays where other files are in it.
    drop(fs::remove_dir(&folder));
    Ok(())
}

/// Removes the winners of earlier runs: beside new results they would pass for theirs.
fn remove_other_winners(dir: &Path, is_new: impl Fn(&str) -> bool) -> Result<(), ReportError> {
    let fail = |path: &Path, source| ReportError { path: path.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(|source| fail(dir, source))? {
        let path = entry.map_err(|source| fail(dir, source))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("winner") && name.ends_with(".toml") && !is_new(name) && is_winner(&path) {
            fs::remove_file(&path).map_err(|source| fail(&path, source))?;
        }
    }
    Ok(())
}

/// Whether we wrote it. What cannot be read is none of ours.
fn is_winner(path: &Path) -> bool {
    let mut start = [0; MARK.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == MARK.as_bytes()
}

/// `summary.json`.
#[derive(Serialize)]
struct SummaryFile<'a> {
    schema: u32,
    scenario: &'a str,
    runs: &'a [RunSummary],
    fingerprint: &'a Fingerprint,
    invalid: &'a [String],
    disturbed: &'a [String],
    warnings: &'a [String],
}

impl<'a> SummaryFile<'a> {
    fn of(experiment: &'a Experiment) -> Self {
        Self {
            schema: 1,
            scenario: &experiment.about().name,
            runs: experiment.summaries(),
            fingerprint: &experiment.about().fingerprint,
            invalid: experiment.invalid(),
            disturbed: experiment.disturbed(),
            warnings: experiment.warnings(),
        }
    }
}

fn json(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *to, value)?;
    writeln!(to)
}

/// Files written under temporary names; what was not published is removed on drop.
struct Staging<'a> {
    dir: &'a Path,
    pending: Vec<(PathBuf, PathBuf)>,
}

impl<'a> Staging<'a> {
    fn new(dir: &'a Path) -> Self {
        Self { dir, pending: Vec::new() }
    }

    fn stage(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let path = self.dir.join(name);
        let (folder, file) = name
            .rsplit_once('/')
            .map_or((self.dir.to_owned(), name), |(folder, file)| (self.dir.join(folder), file));
        let temporary = folder.join(format!(".{file}.{}.tmp", std::process::id()));
        let result = fs::create_dir_all(&folder).and_then(|()| File::create(&temporary)).and_then(|file| {
            self.pending.push((temporary, path.clone()));
            let mut to = BufWriter::new(file);
            fill(&mut to)?;
            to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        });
        result.map_err(|source| ReportError { path, source })
    }

    fn publish(mut self) -> Result<(), ReportError> {
        for (temporary, path) in std::mem::take(&mut self.pending) {
            let renamed = fs::rename(&temporary, &path);
            renamed.map_err(|source| ReportError { path, source })?;
        }
        Ok(())
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        for (temporary, _) in &self.pending {
            // Nothing can be done about a file that cannot be removed, and it harms nobody.
            drop(fs::remove_file(temporary));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report::About;
    use crate::report::fixture::{disturbed, record, run};
    use crate::run::{Run, World};

    fn experiment() -> Experiment {
        let about = About { name: "small".into(), ..About::default() };
        let runs =
            vec![run("random", vec![record(0).tokens(3, 1, 2).first_ms(2).last_ms(7).worker(0).build()])];
        Experiment::new(about, runs, None, &[], json!({"commit": "abc"}))
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn all_files_and_nothing_else_and_the_same_bytes_twice() {
        let parent = tempfile::tempdir().unwrap();
        let (one, two) = (parent.path().join("a/b"), parent.path().join("c"));
        write(&one, &experiment()).unwrap();
        write(&two, &experiment()).unwrap();
        write(&two, &experiment()).unwrap();
        let expected = [
            "environment.json",
            "hist",
            "reach.csv",
            "report.html",
            "requests.csv",
            "summary.csv",
            "summary.json",
            "summary.md",
            "timeseries.csv",
            "workers.csv",
        ];
        assert_eq!(names(&one), expected);
        assert_eq!(names(&two), expected);
        for name in expected.into_iter().filter(|name| *name != "hist").chain(["hist/virtual-random.hlog"]) {
            assert_eq!(fs::read(one.join(name)).unwrap(), fs::read(two.join(name)).unwrap(), "{name}");
        }
        assert_eq!(names(&one.join("hist")), ["virtual-random.hlog"]);
    }

    #[test]
    fn histograms_of_the_last_run_go_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let of = |policy: &str| {
            let runs = vec![run(policy, vec![record(0).first_ms(2).last_ms(7).build()])];
            Experiment::new(About::default(), runs, None, &[], Value::Null)
        };
        write(dir.path(), &of("random")).unwrap();
        fs::write(dir.path().join("hist/mine.hlog"), "#[Histogram log format version 1.3]\n").unwrap();
        write(dir.path(), &of("round_robin")).unwrap();
        assert_eq!(names(&dir.path().join("hist")), ["mine.hlog", "virtual-round_robin.hlog"]);
        write_figures(dir.path(), &of("round_robin"), false).unwrap();
        assert_eq!(names(&dir.path().join("hist")), ["mine.hlog"]);
        fs::remove_file(dir.path().join("hist/mine.hlog")).unwrap();
        write_figures(dir.path(), &of("round_robin"), false).unwrap();
        assert!(!dir.path().join("hist").exists());
    }

    #[test]
    fn winners_of_the_last_run_go_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let two = |names: [&str; 2]| {
            let only = || vec![record(0).tokens(3, 1, 2).first_ms(2).last_ms(7).build()];
            let runs = names.map(|name| run(name, only()));
            Experiment::new(About::default(), runs.into(), None, &[], Value::Null)
        };
        fs::write(dir.path().join("winner-of-mine.toml"), "[policy]\n").unwrap();
        write(dir.path(), &two(["random", "round_robin"])).unwrap();
        let winner = || fs::read_to_string(dir.path().join("winner.toml")).unwrap();
        assert!(winner().contains("name = \"random\""), "{}", winner());
        write(dir.path(), &two(["round_robin", "random"])).unwrap();
        assert!(winner().contains("name = \"round_robin\""), "{}", winner());
        write(dir.path(), &experiment()).unwrap();
        let left: Vec<String> = names(dir.path()).into_iter().filter(|n| n.starts_with("winner")).collect();
        assert_eq!(left, ["winner-of-mine.toml"], "one policy has beaten nobody");
    }

    #[test]
    fn a_disturbed_run_leaves_no_winner_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let write = |of: fn(Run) -> Run| {
            let runs =
                ["random", "bucket"].map(|policy| of(run(policy, experiment().runs()[0].records.clone())));
            write(dir.path(), &Experiment::new(About::default(), runs.into(), None, &[], Value::Null))
                .unwrap();
            let file: Value =
                serde_json::from_slice(&fs::read(dir.path().join("summary.json")).unwrap()).unwrap();
            (dir.path().join("winner.toml").exists(), file["disturbed"].clone())
        };
        assert_eq!(write(|run| Run { world: World::Live, ..run }), (true, json!([])));
        let (winner, why) = write(disturbed);
        assert!(!winner, "that of the run before goes");
        let [random, bucket] = [0, 1].map(|place| why[place].as_str().unwrap());
        assert!(random.starts_with("live random seed 1: ") && bucket.starts_with("live bucket seed 1: "));
    }

    #[test]
    fn numbers_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let experiment = experiment();
        write(dir.path(), &experiment).unwrap();
        let file: Value =
            serde_json::from_slice(&fs::read(dir.path().join("summary.json")).unwrap()).unwrap();
        assert_eq!((&file["schema"], &file["scenario"]), (&json!(1), &json!("small")));
        let (got, want) = (&file["runs"][0], &experiment.summaries()[0]);
        assert_eq!(got["hit_rate"].as_f64().unwrap().to_bits(), want.hit_rate.to_bits());
        assert_eq!(got["input_tok_s"].as_f64().unwrap().to_bits(), want.input_tok_s.to_bits());
    }

    #[test]
    fn a_failure_names_the_path_and_keeps_the_old_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("taken");
        fs::write(&file, "x").unwrap();
        let error = write(&file, &experiment()).unwrap_err().to_string();
        assert!(error.contains("taken") && error.contains("--out"), "{error}");
        // A folder in the way of the last file: nothing of this run appears half written.
        let dir = tempfile::tempdir().unwrap();
        let mut staging = Staging::new(dir.path());
        fs::write(dir.path().join("old"), "old").unwrap();
        staging.stage("old", |to| to.write_all(b"new")).unwrap();
        assert!(staging.stage("next", |_| Err(io::Error::other("disk full"))).is_err());
        drop(staging);
        assert_eq!(names(dir.path()), ["old"]);
        assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"old");
    }
}
