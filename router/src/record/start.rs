//! How a recording begins: its file, its salt, its header and its thread. And how it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use router_core::{OptionValue, PairPreference, Policies};

use super::line::{Breaker, Header, Named, Pairing, Pieces, Roles, VERSION, WarmUp};
use super::salt::Salt;
use super::tape::MOST_LINES;
use super::writer::Writer;
use super::{Recorder, Tape};
use crate::clock::nanoseconds;
use crate::config::Config;

/// How long the end of the process waits for what is still to be written.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {error}; {remedy}", .path.display())]
pub(crate) struct Unwritable {
    flag: &'static str,
    path: PathBuf,
    error: std::io::Error,
    remedy: &'static str,
}

/// A recording that goes on. Dropping it ends the file.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) tape: Arc<Tape>,
    ending: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Unwritable {
    pub(super) fn new(flag: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self { flag, path: path.to_owned(), error, remedy: "name a file that can be written" }
    }

    pub(super) fn advising(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }
}

impl Recording {
    /// Begins the file, in place of the recording that was there: that is put aside as after a rotation.
    ///
    /// # Errors
    /// The file or that of the salt cannot be used, or is something else.
    pub(crate) fn start(recorder: &Recorder, header: Header) -> Result<Self, Unwritable> {
        let unwritable = |flag, path: &Path| {
            let path = path.to_owned();
            move |error| Unwritable::new(flag, &path, error)
        };
        // Before a salt is made.
        recorder.check_places()?;
        let salt = match &recorder.salt_file {
            Some(path) => Salt::kept_in(path).map_err(unwritable("--record-trace-salt-file", path))?,
            None => Salt::draw().map_err(unwritable("--record-trace", Path::new("/dev/urandom")))?,
        };
        let (tape, lines) = Tape::new(salt, MOST_LINES);
        let tape = Arc::new(tape);
        let cannot = || unwritable("--record-trace", &recorder.file);
        let writer = Writer::open(&recorder.file, recorder.max_bytes, header, Arc::clone(&tape));
        let mut writer = writer.map_err(cannot())?;
        let ending = Arc::new(AtomicBool::new(false));
        let (told, ended) = channel();
        let own = Arc::clone(&ending);
        let thread = std::thread::Builder::new().name("record".to_owned());
        thread
            .spawn(move || {
                writer.run(&lines, &own);
                // Nobody may be waiting any more.
                let _ = told.send(());
            })
            .map_err(cannot())?;
        Ok(Self { tape, ending, ended })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // A file system that hangs does not hold up the end.
        let _ = self.ended.recv_timeout(LAST_WAIT);
    }
}

/// The header of a recording under this configuration.
pub(crate) fn header(config: &Config) -> Header {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Header {
        router_trace: VERSION,
        part: 0,
        restated: 0,
        version: env!("CARGO_PKG_VERSION").into(),
        start_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
        seed: config.seed,
        bookings: 0,
        policies: named(&config.policies),
        load_poll_interval_ns: nanoseconds(config.load_poll_interval),
        breaker: config.breaker.map(|breaker| Breaker {
            failure_threshold: breaker.failure_threshold,
            success_threshold: breaker.success_threshold,
            open_ns: breaker.open_ns,
            half_open_permits: breaker.half_open_permits,
            try_least_bad: breaker.try_least_bad,
        }),
        warm_up: config
            .settings
            .warm_up
            .map(|warm_up| WarmUp { duration_ns: warm_up.duration_ns, share: warm_up.share }),
        pairing: pairing(config.decode_dispatch_limit, config.pair),
        pieces: Pieces::WRITTEN,
    }
}

/// Policies with all options.
pub(super) fn named(policies: &Policies) -> Roles<Named> {
    Roles::of(|role| {
        let policy = policies.get(role);
        let options = policy.options().map(|(spec, value)| (spec.key.into(), json(value))).collect();
        Named { name: policy.name().into(), options }
    })
}

pub(super) fn pairing(decode_dispatch_limit: Option<u32>, pair: PairPreference) -> Pairing {
    let PairPreference { prefer, least_uncached_tokens } = pair;
    Pairing { decode_dispatch_limit, prefer, least_uncached_tokens }
}

fn json(value: &OptionValue) -> serde_json::Value {
    match value {
        OptionValue::Bool(value) => (*value).into(),
        OptionValue::Integer(value) => (*value).into(),
        OptionValue::Float(value) => (*value).into(),
        OptionValue::Text(value) => value.as_ref().into(),
    }
}
