//! `requests.csv` and `summary.csv`.
//!
//! Times are whole microseconds, rounded to the nearest: fine enough for any latency here, exact in every reader, and
//! the same text on every machine. Parameters are one column of JSON.

use std::fmt::{Display, Write as _};
use std::io::Write;

use csv::{Error, Writer};
use protocol::record::RequestRecord;

use super::metric::METRICS;
use super::summary::RunSummary;
use crate::run::Run;

const COLUMNS: [&str; 23] = [
    "run",
    "mode",
    "policy",
    "params",
    "seed",
    "seq",
    "group",
    "intended_us",
    "sent_us",
    "first_us",
    "last_us",
    "worker",
    "reason",
    "prompt_tokens",
    "cached_tokens",
    "predicted_cached_tokens",
    "output_tokens",
    "status",
    "error",
    "prefill_worker",
    "rank",
    "session",
    "turn",
];

/// One row per request. `run` counts from 0 in the order of `summary.json`.
pub(super) fn write_requests(to: impl Write, runs: &[Run]) -> Result<(), Error> {
    let mut csv = Writer::from_writer(to);
    csv.write_record(COLUMNS)?;
    for (place, run) in runs.iter().enumerate() {
        let cell = cell(place, run);
        let mut row = Row { csv: &mut csv, digits: String::new() };
        for record in &run.records {
            for field in &cell {
                row.text(field)?;
            }
            row.record(record)?;
        }
    }
    csv.flush()?;
    Ok(())
}

/// What tells the rows of a run from those of others.
pub(super) fn cell(place: usize, run: &Run) -> [String; 5] {
    [
        place.to_string(),
        run.world.label().into(),
        run.router().to_owned(),
        json(&run.params),
        run.seed.to_string(),
    ]
}

/// The row that is being written. A file may have millions, so nothing is allocated for one.
struct Row<'a, W: Write> {
    csv: &'a mut Writer<W>,
    digits: String,
}

impl<W: Write> Row<'_, W> {
    fn record(&mut self, record: &RequestRecord) -> Result<(), Error> {
        self.number(Some(record.seq))?;
        self.number(record.group)?;
        self.number(Some(microseconds(record.intended_ns)))?;
        self.number(Some(microseconds(record.sent_ns)))?;
        self.number(record.first_ns.map(microseconds))?;
        self.number(Some(microseconds(record.last_ns)))?;
        self.number(record.worker)?;
        self.text(&record.reason)?;
        self.number(Some(record.prompt_tokens))?;
        self.number(Some(record.cached_tokens))?;
        self.number(record.predicted_cached_tokens)?;
        self.number(Some(record.output_tokens))?;
        self.number(Some(record.status))?;
        self.text(&record.error)?;
        self.number(record.prefill_worker)?;
        self.number(record.rank)?;
        self.number(record.session)?;
        self.number(record.turn)?;
        self.csv.write_record(None::<&[u8]>)
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        self.csv.write_field(text)
    }

    fn number(&mut self, number: Option<impl Display>) -> Result<(), Error> {
        self.digits.clear();
        if let Some(number) = number {
            // Writing to a text cannot fail.
            let _ = write!(self.digits, "{number}");
        }
        self.csv.write_field(&self.digits)
    }
}

/// One row per run, with the figures of `summary.json` under the same names.
pub(super) fn write_summaries(to: impl Write, summaries: &[RunSummary]) -> Result<(), Error> {
    let mut csv = Writer::from_writer(to);
    csv.write_record(["mode", "policy", "params", "seed"].into_iter().chain(METRICS.iter().map(|m| m.name)))?;
    for summary in summaries {
        let cell = [
            summary.mode.label().into(),
            summary.policy.clone(),
            json(&summary.params),
            summary.seed.to_string(),
        ];
        let figures = METRICS.iter().map(|m| optional(m.number(summary)));
        csv.write_record(cell.into_iter().chain(figures))?;
    }
    csv.flush()?;
    Ok(())
}

fn json(params: &crate::run::Params) -> String {
    serde_json::Value::Object(params.clone().into_iter().collect()).to_string()
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |v| v.to_string())
}

fn microseconds(ns: u64) -> u64 {
    ns / 1000 + u64::from(ns % 1000 >= 500)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::fixture::{failed, record, run};

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_have_the_documented_columns() {
        let full = record(0).group(3).sent_ms(1, 2).first_ms(5).last_ms(9).worker(1).reason("hit");
        let mut only = run(
            "cache_aware",
            vec![
                full.tokens(10, 4, 2).predicted(3).prefill_worker(0).rank(1).turn(12, 3).build(),
                failed(1, 7, 8, 503, "no, \"worker\""),
            ],
        );
        only.params.insert("cache_threshold".into(), json!(0.3));
        only.records[0].last_ns += 1_500;
        let text = text(|to| write_requests(to, std::slice::from_ref(&only)).unwrap());
        let expected = "run,mode,policy,params,seed,seq,group,intended_us,sent_us,first_us,last_us,worker,reason,\
            prompt_tokens,cached_tokens,predicted_cached_tokens,output_tokens,status,error,prefill_worker,rank,session,turn\n\
            0,virtual,cache_aware,\"{\"\"cache_threshold\"\":0.3}\",1,0,3,1000,2000,5000,9002,1,hit,10,4,3,2,200,,0,1,12,3\n\
            0,virtual,cache_aware,\"{\"\"cache_threshold\"\":0.3}\",1,1,,7000,7000,,8000,,,0,0,,0,503,\"no, \"\"worker\"\"\",,,,\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn summaries_carry_the_figures_of_the_json() {
        let summary =
            RunSummary::of(&run("random", vec![record(0).tokens(3, 1, 2).last_ms(7).build()]), None);
        let text = text(|to| write_summaries(to, std::slice::from_ref(&summary)).unwrap());
        let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let row: std::collections::BTreeMap<&str, &str> =
            rows.next().unwrap().into_iter().zip(rows.next().unwrap()).collect();
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(row["hit_rate"].parse::<f64>().unwrap(), json["hit_rate"].as_f64().unwrap());
        assert_eq!(row["e2e_ms.p99"], json["e2e_ms"]["p99"].to_string());
        assert_eq!((row["policy"], row["slo_attainment"]), ("random", ""));
        assert_eq!(row.len(), 47);
        assert_eq!((row["send_lag_ms.p99"], row["service_ttft_ms.p50"]), ("0.0", "0.0"));
    }
}
