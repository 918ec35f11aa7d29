//! `timeseries.csv`, `workers.csv` and `reach.csv`: what the workers held over time, what each did in all, and where the hit
//! rate was lost. `run` counts as in `requests.csv`.

use std::io::Write;

use csv::{Error, Writer};

use super::requests::cell;
use crate::run::{EngineSample, Run, has_failed};
use crate::scenario::Pool;

/// Up to so many workers each has its rows in `timeseries.csv`; of a larger pool there are the lowest, the median and the
/// highest of every figure.
const MOST_WORKERS: usize = 64;

/// The rows of a larger pool: the word in place of a worker, and the share of the workers that are below it.
const SHARES: [(&str, f64); 3] = [("min", 0.0), ("median", 0.5), ("max", 1.0)];

/// Rows of `timeseries.csv` about which it is kept, whatever the number of runs; and the moments that each run keeps at least.
const MOST_ROWS: usize = 100_000;
const FEWEST_MOMENTS: usize = 12;

const RUN_COLUMNS: [&str; 5] = ["run", "mode", "policy", "params", "seed"];

/// One row per moment and worker. Where all runs together would have too many, each
/// has only every second moment, or every third, and so on.
pub(super) fn write_timeseries(to: impl Write, runs: &[Run]) -> Result<(), Error> {
    let mut csv = Writer::from_writer(to);
    let columns =
        ["time_us", "role", "worker", "in_flight", "queued_prefill_tokens", "cache_fill", "evicted_tokens"];
    csv.write_record(RUN_COLUMNS.into_iter().chain(columns))?;
    let step = runs.iter().map(rows).sum::<usize>().div_ceil(MOST_ROWS);
    for (place, run) in runs.iter().enumerate() {
        let cell = cell(place, run);
        let step = step.min(moments(run) / FEWEST_MOMENTS).max(1);
        let engines = &run.engines;
        for (moment, row) in engines.samples.iter().enumerate().step_by(step) {
            let time_us = engines.interval_ns * moment as u64 / 1000;
            write_moment(&mut csv, &cell, time_us, &run.pools, &|worker| row.get(worker).map(Figures::of))?;
        }
        if !engines.samples.is_empty() {
            continue;
        }
        // Nobody could look inside; what was in flight is known from the requests.
        for (moment, row) in run.load.samples.iter().enumerate().step_by(step) {
            let time_us = run.load.interval_ns * moment as u64 / 1000;
            let in_flight = |worker: usize| row.get(worker).map(|count| Figures::in_flight(*count));
            write_moment(&mut csv, &cell, time_us, &run.pools, &in_flight)?;
        }
    }
    csv.flush()?;
    Ok(())
}

/// The moments at which the workers of a run were looked at.
fn moments(run: &Run) -> usize {
    let engines = run.engines.samples.len();
    if engines == 0 { run.load.samples.len() } else { engines }
}

/// How many rows a run has with all of its moments.
fn rows(run: &Run) -> usize {
    let of_pool = |pool: &Pool| match pool.places.len() {
        workers if workers > MOST_WORKERS => SHARES.len(),
        workers => workers,
    };
    moments(run) * run.pools.iter().map(of_pool).sum::<usize>()
}

/// The figures of a worker at a moment, in the order of the columns.
struct Figures([Option<f64>; 4]);

impl Figures {
    fn of(sample: &EngineSample) -> Self {
        let EngineSample { in_flight, queued_tokens, fill, evicted_tokens } = *sample;
        Self([
            Some(f64::from(in_flight)),
            Some(queued_tokens as f64),
            Some(fill),
            Some(evicted_tokens as f64),
        ])
    }

    fn in_flight(count: u32) -> Self {
        Self([Some(f64::from(count)), None, None, None])
    }

    fn fields(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|figure| figure.map_or(String::new(), |figure| figure.to_string()))
    }
}

fn write_moment(
    csv: &mut Writer<impl Write>,
    cell: &[String],
    time_us: u64,
    pools: &[Pool],
    figures: &dyn Fn(usize) -> Option<Figures>,
) -> Result<(), Error> {
    for pool in pools {
        let of_pool: Vec<(u32, Figures)> =
            pool.places.clone().filter_map(|worker| Some((worker, figures(worker as usize)?))).collect();
        let mut write = |worker: String, figures: &Figures| {
            let place = [time_us.to_string(), pool.word().to_owned(), worker];
            csv.write_record(cell.iter().cloned().chain(place).chain(figures.fields()))
        };
        if of_pool.len() <= MOST_WORKERS {
            for (worker, figures) in &of_pool {
                write(worker.to_string(), figures)?;
            }
            continue;
        }
        for (word, share) in SHARES {
            write(word.to_owned(), &at_share(&of_pool, share))?;
        }
    }
    Ok(())
}

/// Each figure by itself, at a share of the workers.
fn at_share(of_pool: &[(u32, Figures)], share: f64) -> Figures {
    Figures([0, 1, 2, 3].map(|column| {
        let mut values: Vec<f64> = of_pool.iter().filter_map(|(_, figures)| figures.0[column]).collect();
        values.sort_by(f64::total_cmp);
        super::quantile(&values, share)
    }))
}

/// One row per worker of every run.
pub(super) fn write_workers(to: impl Write, runs: &[Run]) -> Result<(), Error> {
    let mut csv = Writer::from_writer(to);
    let columns = [
        "worker",
        "role",
        "requests",
        "failed",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "evicted_tokens",
    ];
    csv.write_record(RUN_COLUMNS.into_iter().chain(columns))?;
    for (place, run) in runs.iter().enumerate() {
        let cell = cell(place, run);
        let totals = totals(run);
        for pool in &run.pools {
            for worker in pool.places.clone() {
                let evicted = run.engines.last.get(worker as usize).map(|sample| sample.evicted_tokens);
                let name = [worker.to_string(), pool.word().to_owned()];
                let counts = totals.get(worker as usize).copied().unwrap_or_default();
                let evicted = evicted.map_or(String::new(), |tokens| tokens.to_string());
                let figures = counts.map(|count| count.to_string());
                csv.write_record(cell.iter().cloned().chain(name).chain(figures).chain([evicted]))?;
            }
        }
    }
    csv.flush()?;
    Ok(())
}

/// Of every worker: requests, failed ones, and of those that succeeded prompt, cached and output tokens. Where two workers
/// share a request, both have it, and each the tokens that it has worked on.
fn totals(run: &Run) -> Vec<[u64; 5]> {
    let mut totals = vec![[0; 5]; run.workers as usize];
    let mut add = |worker: Option<u32>, counts: [u64; 5]| {
        if let Some(total) = worker.and_then(|worker| totals.get_mut(worker as usize)) {
            total.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    };
    for record in &run.records {
        let (failed, good) = (u64::from(has_failed(record)), u64::from(record.succeeded()));
        let prompt = [good * record.prompt_tokens, good * record.cached_tokens];
        let output = good * record.output_tokens;
        match record.prefill_worker {
            Some(prefill) => {
                add(Some(prefill), [1, failed, prompt[0], prompt[1], 0]);
                add(record.worker, [1, failed, 0, 0, output]);
            }
            None => add(record.worker, [1, failed, prompt[0], prompt[1], output]),
        }
    }
    totals
}

/// One row per run whose prompts are known.
pub(super) fn write_reach(to: impl Write, runs: &[Run]) -> Result<(), Error> {
    let mut csv = Writer::from_writer(to);
    let columns = ["requests", "infinite_cache", "fleet_capacity", "policy", "delivered"];
    csv.write_record(RUN_COLUMNS.into_iter().chain(columns))?;
    for (place, run) in runs.iter().enumerate() {
        let Some(reach) = run.reach else { continue };
        let shares = [reach.infinite, reach.fleet, reach.policy, reach.delivered].map(|s| s.to_string());
        csv.write_record(cell(place, run).into_iter().chain([reach.requests.to_string()]).chain(shares))?;
    }
    csv.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{apart, failed, record, regular, run};
    use crate::run::{EngineTimeline, Reach};

    fn lines(write: impl Fn(&mut Vec<u8>)) -> Vec<String> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    fn sampled(workers: u32) -> Run {
        let mut run = run("random", vec![]);
        (run.workers, run.pools) = (workers, regular(workers));
        let sample = |worker: u32| EngineSample {
            in_flight: worker,
            queued_tokens: 10,
            fill: 0.5,
            evicted_tokens: u64::from(worker) * 7,
        };
        let row: Box<[EngineSample]> = (0..workers).map(sample).collect();
        run.engines =
            EngineTimeline { interval_ns: 2_000_000, samples: vec![row.clone(), row.clone()], last: row };
        run
    }

    #[test]
    fn few_workers_have_rows_and_many_have_a_band() {
        let few = lines(|to| write_timeseries(to, &[sampled(2)]).unwrap());
        assert_eq!(few.len(), 1 + 2 * 2);
        assert_eq!(few[4], "0,virtual,random,{},1,2000,regular,1,1,10,0.5,7");
        let many = lines(|to| write_timeseries(to, &[sampled(1001)]).unwrap());
        assert_eq!(many.len(), 1 + 2 * 3);
        assert_eq!(many[2], "0,virtual,random,{},1,0,regular,median,500,10,0.5,3500");
    }

    #[test]
    fn many_runs_have_coarser_steps_and_few_have_all() {
        let long = |moments: usize| {
            let mut run = sampled(8);
            run.engines.samples = vec![run.engines.last.clone(); moments];
            run
        };
        let rows = |runs: &[Run]| lines(|to| write_timeseries(to, runs).unwrap()).len() - 1;
        assert_eq!(rows(&vec![long(240); 52]), 52 * 240 * 8, "just below the bound");
        let many = lines(|to| write_timeseries(to, &vec![long(240); 200]).unwrap());
        assert_eq!(many.len() - 1, 200 * 60 * 8, "every fourth moment");
        assert!(many[9].contains(",8000,") && many[8].contains(",0,"), "{}", many[9]);
        let short = [vec![long(240); 200], vec![long(20)]].concat();
        assert_eq!(rows(&short), 200 * 60 * 8 + 20 * 8, "a short run is not thinned out");
        assert_eq!(rows(&vec![long(240); 2000]), 2000 * 12 * 8, "some of it is always seen");
    }

    #[test]
    fn where_nobody_can_look_only_what_is_in_flight_is_told() {
        let only = run("random", vec![record(0).worker(1).last_ms(60).build()]);
        let text = lines(|to| write_timeseries(to, std::slice::from_ref(&only)).unwrap());
        assert_eq!(text[2], "0,virtual,random,{},1,0,regular,1,1,,,");
    }

    #[test]
    fn a_pair_shares_a_request() {
        let mut pair = run(
            "random",
            vec![
                record(0).prefill_worker(0).worker(1).tokens(100, 40, 9).build(),
                failed(1, 0, 5, 503, "no worker"),
            ],
        );
        pair.pools = apart(1, 1);
        let text = lines(|to| write_workers(to, std::slice::from_ref(&pair)).unwrap());
        assert_eq!(text[1], "0,virtual,random,{},1,0,prefill,1,0,100,40,0,");
        assert_eq!(text[2], "0,virtual,random,{},1,1,decode,1,0,0,0,9,");
    }

    #[test]
    fn runs_whose_prompts_are_unknown_have_no_reach() {
        let mut known = run("random", vec![]);
        known.reach = Some(Reach {
            requests: 3,
            cut: false,
            infinite: 0.5,
            fleet: 0.25,
            policy: 0.125,
            delivered: 0.1,
        });
        let text = lines(|to| write_reach(to, &[run("random", vec![]), known.clone()]).unwrap());
        assert_eq!(text[1..], ["1,virtual,random,{},1,3,0.5,0.25,0.125,0.1"]);
    }
}
