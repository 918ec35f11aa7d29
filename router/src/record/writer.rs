//! The thread that writes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use serde::Serialize;

use super::Tape;
use super::facts::Facts;
use super::line::{Header, Line};
use super::place::{self, aside};
use super::tape::Item;

/// Between two looks into the channel: whoever puts something in need not wake us.
const PAUSE: Duration = Duration::from_millis(10);

/// Into one file, and another one when that is full.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    max_bytes: u64,
    tape: Arc<Tape>,
    facts: Facts,
    /// Absent once something could not be written.
    out: Option<Out>,
}

#[derive(Debug)]
struct Out {
    file: BufWriter<File>,
    bytes: u64,
}

impl Writer {
    pub(super) fn open(path: &Path, max_bytes: u64, header: Header, tape: Arc<Tape>) -> io::Result<Self> {
        let mut out = Out::begin(path)?;
        out.line(&header)?;
        out.file.flush()?;
        let facts = Facts::new(header);
        Ok(Self { path: path.to_owned(), max_bytes, tape, facts, out: Some(out) })
    }

    /// Writes until the end is told, and then what is still there.
    pub(super) fn run(&mut self, lines: &Receiver<Item>, ending: &AtomicBool) {
        loop {
            let is_ending = ending.load(Ordering::Acquire);
            let is_over = self.drain(lines);
            self.flush();
            if is_over || is_ending {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Writes what there is; whether nothing can come any more.
    pub(super) fn drain(&mut self, lines: &Receiver<Item>) -> bool {
        loop {
            match lines.try_recv() {
                Ok(Item { missing, line }) => {
                    self.tape.taken(&line);
                    self.tell_missing(missing);
                    self.take(line);
                }
                Err(TryRecvError::Empty) => {
                    // Nothing may come for a long time that would tell it.
                    self.tell_missing(self.tape.take_missing());
                    return false;
                }
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn tell_missing(&mut self, missing: u64) {
        if missing > 0 {
            self.write(|out| out.line(&Line::Dropped { dropped: missing }));
        }
    }

    fn take(&mut self, mut line: Line) {
        if let Line::Plan(plan) = &mut line
            && let Some(target) = &plan.target
        {
            plan.target = Some(self.facts.target(target).unwrap_or_else(|| "?".into()));
        }
        self.facts.learn(&line);
        let is_written = self.write(|out| out.line(&line));
        self.tape.wrote(is_written);
        if self.out.as_ref().is_some_and(|out| out.bytes >= self.max_bytes) {
            self.rotate();
        }
    }

    /// Puts the file aside and goes on in another one.
    fn rotate(&mut self) {
        let (header, lines) = self.facts.restate();
        let path = self.path.clone();
        self.write(|out| {
            out.file.flush()?;
            *out = Out::begin(&path)?;
            out.line(&header)?;
            lines.iter().try_for_each(|line| out.line(line))?;
            // A fleet that fills a file by itself must not turn it over with each line.
            out.bytes = 0;
            Ok(())
        });
    }

    pub(super) fn flush(&mut self) {
        self.write(|out| out.file.flush());
    }

    /// What cannot be written ends the recording, and that is told once.
    fn write(&mut self, write: impl FnOnce(&mut Out) -> io::Result<()>) -> bool {
        let Some(out) = &mut self.out else { return false };
        let written = write(out);
        if let Err(error) = &written {
            let path = self.path.display();
            tracing::error!("--record-trace {path}: {error}; nothing more is recorded until the next start");
            self.out = None;
        }
        written.is_ok()
    }
}

impl Out {
    /// A new file; the recording that is there is put aside, in place of the one that was put aside before.
    fn begin(path: &Path) -> io::Result<Self> {
        place::check(path)?;
        match fs::rename(path, aside(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::options().write(true).create_new(true).open(path)?;
        Ok(Self { file: BufWriter::with_capacity(1 << 16, file), bytes: 0 })
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.bytes += text.len() as u64;
        self.file.write_all(&text)
    }
}
