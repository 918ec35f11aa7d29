//! `hist/*.hlog`: how the latencies of every variant are distributed, over all its seeds, as HDR histograms that other tools
//! read and add up.
//!
//! The format is version 1.3 of HdrHistogram's log, one line per latency, told apart by its tag; values are nanoseconds. The
//! encoding (V2: counts as ZigZag LEB128, runs of zeros as one negative number, in zlib, in base64) is written here, and
//! zlib's blocks are stored: the crate's own writer would bring a compressor for files of a few kilobytes.

use std::io::Read;

use hdrhistogram::Histogram;

use super::experiment::Experiment;
use super::summary::{e2e_ns, send_lag_ns, tpot_ns, ttft_ns};
use super::variant::{Variant, label};
use crate::run::{Run, World, latency_histogram};

/// How every file begins.
pub(super) const MARK: &str = "#[Histogram log format version 1.3]\n#[loadgen:";

/// The folder of the files.
pub(super) const FOLDER: &str = "hist";

/// Names of files are cut here.
const LONGEST_NAME: usize = 100;

/// The cookies of an encoded histogram, as it is and compressed.
const V2: u32 = 0x1c84_9313;
const V2_COMPRESSED: u32 = 0x1c84_9314;

/// The files, one for every variant of which requests were kept: its name below the folder of results, and its content.
pub(super) fn files(experiment: &Experiment) -> Vec<(String, String)> {
    let variants = experiment.variants();
    let mut files: Vec<(String, String)> = Vec::new();
    for (place, variant) in variants.iter().enumerate() {
        let runs: Vec<&Run> = variant.runs.iter().map(|run| &experiment.runs()[*run]).collect();
        if runs.iter().all(|run| run.records.is_empty()) {
            continue;
        }
        let mut name = file_name(variant.world, &label(&variants, variant));
        if name.len() > LONGEST_NAME || files.iter().any(|(known, _)| *known == path(&name)) {
            name.truncate(LONGEST_NAME);
            name = format!("{name}-{place}");
        }
        files.push((path(&name), log(variant, &label(&variants, variant), &runs)));
    }
    files
}

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}.hlog")
}

/// Letters, digits and a few signs that no file system minds.
fn file_name(world: World, label: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._=-".contains(c) { c } else { '_' };
    format!("{}-{}", world.label(), label.chars().map(plain).collect::<String>())
}

/// What a variant's runs measured, as a log.
fn log(variant: &Variant<'_>, label: &str, runs: &[&Run]) -> String {
    let seeds: Vec<String> = runs.iter().map(|run| run.seed.to_string()).collect();
    let mut log = format!("{MARK} {} {label}, seeds {}]\n", variant.world.label(), seeds.join(" "));
    log.push_str(
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
    );
    let span_ns: u64 = runs.iter().map(|run| span_ns(run)).sum();
    for (tag, histogram) in latencies(runs) {
        if !histogram.is_empty() {
            let (span_s, max_ms) = (span_ns as f64 / 1e9, histogram.max() as f64 / 1e6);
            log.push_str(&format!("Tag={tag},0.000,{span_s:.3},{max_ms:.3},{}\n", encode(&histogram)));
        }
    }
    log
}

/// From the first intended send to the last byte.
fn span_ns(run: &Run) -> u64 {
    let start = run.records.iter().map(|r| r.intended_ns).min().unwrap_or(0);
    run.records.iter().map(|r| r.last_ns).max().unwrap_or(start).saturating_sub(start)
}

/// The latencies of the requests that succeeded, by the names that they have in `summary.json`.
fn latencies(runs: &[&Run]) -> Vec<(&'static str, Histogram<u64>)> {
    let good = || runs.iter().flat_map(|run| run.records.iter().filter(|r| r.succeeded()));
    let of = |values: &mut dyn Iterator<Item = f64>| {
        let mut histogram = latency_histogram();
        values.for_each(|ns| histogram.saturating_record(ns as u64));
        histogram
    };
    let sum = |parts: &mut dyn Iterator<Item = &Histogram<u64>>| {
        let mut histogram = latency_histogram();
        for part in parts.flat_map(Histogram::iter_recorded) {
            histogram.saturating_record_n(part.value_iterated_to(), part.count_at_value());
        }
        histogram
    };
    let live = runs.iter().any(|run| run.world == World::Live);
    let mut latencies = vec![
        ("ttft", of(&mut good().filter_map(ttft_ns))),
        ("tpot", of(&mut good().filter_map(tpot_ns))),
        ("itl", sum(&mut runs.iter().map(|run| &run.itl_ns))),
        ("e2e", of(&mut good().map(e2e_ns))),
    ];
    if live {
        latencies.push(("send_lag", of(&mut good().map(send_lag_ns))));
        latencies
            .push(("router", sum(&mut runs.iter().filter_map(|run| Some(&run.beside.as_ref()?.router_ns)))));
    }
    latencies
}

/// A histogram as one word.
fn encode(histogram: &Histogram<u64>) -> String {
    let counts = counts(histogram);
    let mut plain = Vec::with_capacity(counts.len() + 40);
    plain.extend(V2.to_be_bytes());
    plain.extend((counts.len() as u32).to_be_bytes());
    plain.extend(0u32.to_be_bytes());
    plain.extend(u32::from(histogram.sigfig()).to_be_bytes());
    plain.extend(histogram.low().to_be_bytes());
    plain.extend(histogram.high().to_be_bytes());
    plain.extend(1f64.to_be_bytes());
    plain.extend(counts);
    let stored = zlib(&plain);
    let mut bytes = Vec::with_capacity(stored.len() + 8);
    bytes.extend(V2_COMPRESSED.to_be_bytes());
    bytes.extend((stored.len() as u32).to_be_bytes());
    bytes.extend(stored);
    base64(&bytes)
}

/// The counts of all buckets up to the highest value.
fn counts(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut zeros = 0i64;
    for bucket in histogram.iter_all() {
        match bucket.count_at_value() {
            0 => zeros += 1,
            count => {
                if zeros > 0 {
                    zig_zag(-zeros, &mut bytes);
                }
                zig_zag(count as i64, &mut bytes);
                zeros = 0;
            }
        }
    }
    bytes
}

/// Seven bits to a byte, the lowest first; a sign is the lowest bit. Numbers of more than eight such bytes do not occur.
fn zig_zag(number: i64, to: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest > 0x7f {
        to.push(rest as u8 & 0x7f | 0x80);
        rest >>= 7;
    }
    to.push(rest as u8);
}

/// A zlib stream whose blocks are stored as they are (RFC 1950, RFC 1951 section 3.2.4).
fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        stream.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    stream.extend((b << 16 | a).to_be_bytes());
    stream
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(sign) } else { '=' });
        }
    }
    text
}

/// Whether a file begins as ours do.
pub(super) fn is_ours(mut start: impl Read) -> bool {
    let mut bytes = [0; MARK.len()];
    start.read_exact(&mut bytes).is_ok() && bytes == MARK.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::About;
    use crate::report::fixture::{failed, gaps, record, run};
    use serde_json::json;

    #[test]
    fn words_are_those_of_the_standards() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        // Adler-32 of "Wikipedia" is 0x11E60398.
        let stream = zlib(b"Wikipedia");
        assert_eq!(stream[..7], [0x78, 1, 1, 9, 0, 0xf6, 0xff]);
        assert_eq!((&stream[7..16], &stream[16..]), (&b"Wikipedia"[..], &[0x11, 0xe6, 0x03, 0x98][..]));
        let long = zlib(&[7; 70_000]);
        assert_eq!((long[2], long[2 + 5 + 65_535]), (0, 1), "only the last block says that it is the last");
        let mut bytes = Vec::new();
        [0, -1, 1, 64, -300].into_iter().for_each(|number| zig_zag(number, &mut bytes));
        assert_eq!(bytes, [0, 1, 2, 0x80, 1, 0xd7, 4]);
    }

    /// Reads what [`encode`] wrote back: values at the lower ends of their buckets, with their counts.
    fn decode(word: &str) -> Vec<(u64, u64)> {
        let sign = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let signs: Vec<u8> = word.trim_end_matches('=').bytes().map(sign).collect();
        let bits = |i: usize| signs[i / 6] >> (5 - i % 6) & 1;
        let bytes: Vec<u8> = (0..signs.len() * 6 / 8)
            .map(|at| (0..8).fold(0, |byte, bit| byte << 1 | bits(at * 8 + bit)))
            .collect();
        // Two headers of 8 and 40 bytes, the stream's two and the block's five bytes, and four behind them.
        assert_eq!(
            (bytes[0..4].to_vec(), bytes[15..19].to_vec()),
            (V2_COMPRESSED.to_be_bytes().to_vec(), V2.to_be_bytes().to_vec())
        );
        let mut counts = bytes[8 + 2 + 5 + 40..bytes.len() - 4].iter();
        let lengths = latency_histogram();
        let (mut index, mut found) = (0, Vec::new());
        let lowest: Vec<u64> =
            lengths.iter_all().map(|bucket| lengths.lowest_equivalent(bucket.value_iterated_to())).collect();
        while let Some(first) = counts.next() {
            let (mut number, mut shift, mut byte) = (u64::from(first & 0x7f), 7, *first);
            while byte & 0x80 != 0 {
                byte = *counts.next().unwrap();
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
            }
            let count = (number >> 1) as i64 ^ -((number & 1) as i64);
            if count < 0 {
                index += usize::try_from(-count).unwrap();
            } else {
                found.push((lowest[index], count as u64));
                index += 1;
            }
        }
        found
    }

    #[test]
    fn a_histogram_comes_back_from_its_word() {
        let mut histogram = latency_histogram();
        for ns in [1, 5, 5, 2_000, 123_456_789, 3_600_000_000_000] {
            histogram.record(ns).unwrap();
        }
        let expected: Vec<(u64, u64)> = histogram
            .iter_recorded()
            .map(|bucket| (histogram.lowest_equivalent(bucket.value_iterated_to()), bucket.count_at_value()))
            .collect();
        assert_eq!(expected.len(), 5);
        assert_eq!(decode(&encode(&histogram)), expected);
    }

    #[test]
    fn every_variant_has_a_file_over_its_seeds_and_what_failed_is_not_in_it() {
        let seed = |threshold: f64, seed: u64, first: u64| {
            let answered =
                record(0).sent_ms(0, 0).first_ms(first).last_ms(first + 40).tokens(3, 0, 3).build();
            let mut run = run("cache_aware", vec![answered, failed(1, 0, 9_000, 503, "no")]);
            run.seed = seed;
            run.itl_ns = gaps(&[20_000_000, 20_000_000]);
            run.params.insert("cache_threshold".into(), json!(threshold));
            run
        };
        let runs = vec![seed(0.3, 1, 50), seed(0.5, 1, 70), seed(0.3, 2, 60)];
        let experiment = Experiment::new(About::default(), runs, None, &[], json!(null));
        let files = files(&experiment);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "hist/virtual-cache_aware_cache_threshold=0.3.hlog",
                "hist/virtual-cache_aware_cache_threshold=0.5.hlog"
            ]
        );
        let text = &files[0].1;
        assert!(is_ours(text.as_bytes()) && text.contains("seeds 1 2]"), "{text}");
        let tags: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("Tag=")?.split(',').next()).collect();
        assert_eq!(tags, ["ttft", "tpot", "itl", "e2e"]);
        let line = |tag: &str| text.lines().find(|line| line.starts_with(&format!("Tag={tag},"))).unwrap();
        let ttft = decode(line("ttft").rsplit(',').next().unwrap());
        assert_eq!(ttft.iter().map(|(_, count)| count).sum::<u64>(), 2, "both seeds, without the failures");
        assert!(
            ttft[0].0.abs_diff(50_000_000) < 50_000 && ttft[1].0.abs_diff(60_000_000) < 60_000,
            "{ttft:?}"
        );
        assert_eq!(decode(line("itl").rsplit(',').next().unwrap())[0].1, 4);
        assert!(line("e2e").starts_with("Tag=e2e,0.000,18.000,100."), "{}", line("e2e"));
    }

    #[test]
    fn names_that_are_long_or_meet_stay_apart() {
        let cell = |key: &str| {
            let mut run = run("random", vec![record(0).build()]);
            run.params.insert("workload.path".into(), json!(key));
            run
        };
        let long = "x".repeat(200);
        let runs = vec![cell("a b"), cell("a/b"), cell(&long)];
        let experiment = Experiment::new(About::default(), runs, None, &[], json!(null));
        let names: Vec<String> = files(&experiment).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[1], names[0].replace(".hlog", "-1.hlog"));
        assert!(names[2].ends_with("x-2.hlog") && names[2].len() < 120, "{names:?}");
    }
}
