//! The LRU curve against a model that is too simple to be wrong: one list per cache, searched from the front.

use protocol::tokenizer::mix;

use super::{Analysis, Fleet};
use crate::trace::{Counts, Format, Row};

/// Hit tokens of each row in an LRU cache of `size` blocks (of 512 tokens), which knows a block by its whole prefix.
fn naive(rows: &[Row], size: usize) -> Vec<u64> {
    let mut cache: Vec<Vec<u64>> = Vec::new();
    let mut hits = Vec::new();
    for row in rows {
        let prefixes: Vec<Vec<u64>> = (1..=row.blocks.len()).map(|n| row.blocks[..n].to_vec()).collect();
        let held = prefixes.iter().take_while(|prefix| cache.contains(prefix)).count();
        hits.push((held as u64 * 512).min(u64::from(row.input_tokens)));
        for prefix in prefixes.into_iter().rev() {
            cache.retain(|other| *other != prefix);
            cache.insert(0, prefix);
            cache.truncate(size);
        }
    }
    hits
}

/// Chats that grow, forks of them, and prompts of their own; ids do not name their prefix.
fn rows(count: u64) -> Vec<Row> {
    let mut prompts: Vec<Vec<u64>> = vec![vec![1]];
    let row = |i: u64| {
        let draw = mix(i);
        let mut blocks = prompts[(draw % prompts.len() as u64) as usize].clone();
        blocks.truncate(1 + (draw >> 16) as usize % (blocks.len() + 4));
        let own = 1 + (draw >> 32) % 30;
        // Few names, so that one name often has different prefixes.
        blocks.extend((0..own).map(|n| mix(draw ^ n) % 50));
        prompts.push(blocks.clone());
        let input_tokens = blocks.len() as u32 * 512 - (draw >> 50) as u32 % 512;
        Row { at_ns: i, input_tokens, output_tokens: 1, blocks: blocks.into(), ..Row::default() }
    };
    (0..count).map(row).collect()
}

#[test]
fn the_curve_is_what_a_naive_model_says() {
    let rows = rows(400);
    let mut analysis = Analysis::new(512, None);
    rows.iter().for_each(|row| analysis.add(row));
    let info = analysis.finish("t", Format::Mooncake, true, Counts::default());
    let rate = |size: usize, from: usize| {
        let input: u64 = rows[from..].iter().map(|row| u64::from(row.input_tokens)).sum();
        naive(&rows, size)[from..].iter().sum::<u64>() as f64 / input as f64
    };
    let sizes: Vec<u64> = info.lru.iter().map(|point| point.blocks).collect();
    assert_eq!(sizes, [640, 1_920, 5_856, 11_718, 97_657]);
    for point in &info.lru[..3] {
        let expected = rate(point.blocks as usize, 200);
        assert!((point.hit_rate - expected).abs() < 1e-12, "{point:?}, expected {expected}");
    }
    let reuse = info.reuse.unwrap();
    assert!((reuse.infinite_by_token - rate(usize::MAX, 0)).abs() < 1e-12);
    assert!((reuse.infinite_last_half - rate(usize::MAX, 200)).abs() < 1e-12);
    assert_eq!(info.lru[4].hit_rate, reuse.infinite_last_half, "everything fits into the largest");
    assert!(info.lru[0].hit_rate + 0.05 < info.lru[1].hit_rate, "the sizes matter here");
}

#[test]
fn a_row_longer_than_the_cache_keeps_its_beginning() {
    let row = |blocks: std::ops::Range<u64>| Row {
        input_tokens: 512 * (blocks.end - blocks.start) as u32,
        output_tokens: 1,
        blocks: blocks.collect(),
        ..Row::default()
    };
    let mut analysis = Analysis::new(512, None);
    [row(0..1000), row(0..1000)].iter().for_each(|row| analysis.add(row));
    let info = analysis.finish("t", Format::Mooncake, true, Counts::default());
    assert_eq!(info.lru[0].hit_rate, 0.64, "640 of 1,000 blocks, the first ones");
}

#[test]
fn other_block_sizes_have_the_same_sizes_in_tokens() {
    let mut analysis = Analysis::new(16, None);
    analysis.add(&Row { input_tokens: 20, blocks: [1, 2].into(), ..Row::default() });
    let info = analysis.finish("t", Format::Bailian, true, Counts::default());
    assert_eq!(info.lru[0].blocks, 20_480);
    assert!(info.lru.iter().zip([640, 1_920, 5_856, 11_718, 97_657]).all(|(p, b)| p.tokens == b * 512));
}

#[test]
fn a_fleet_adds_its_own_sizes_and_changes_no_other() {
    let rows = rows(400);
    let info = |fleet| {
        let mut analysis = Analysis::new(512, fleet);
        rows.iter().for_each(|row| analysis.add(row));
        analysis.finish("t", Format::Mooncake, true, Counts::default())
    };
    let without = info(None);
    assert!(without.lru_fleet.is_empty());
    let input: u64 = rows[200..].iter().map(|row| u64::from(row.input_tokens)).sum();
    // Between the sizes that are always there, below all of them, and one of them.
    for kv_tokens in [444_500, 20_000, 640 * 512] {
        let with = info(Some(Fleet { kv_tokens, workers: 8 }));
        assert_eq!((&with.lru, &with.reuse), (&without.lru, &without.reuse));
        let parts: Vec<(u32, u64)> = with.lru_fleet.iter().map(|p| (p.workers, p.cache.blocks)).collect();
        assert_eq!(parts, [(1, kv_tokens / 512), (8, kv_tokens * 8 / 512)]);
        for point in &with.lru_fleet {
            let hits: u64 = naive(&rows, point.cache.blocks as usize)[200..].iter().sum();
            assert!((point.cache.hit_rate - hits as f64 / input as f64).abs() < 1e-12, "{point:?}");
        }
    }
    let text = info(Some(Fleet { kv_tokens: 444_500, workers: 8 })).render(crate::trace::info::Width::Ascii);
    let place = |name: &str| text.find(name).unwrap_or_else(|| panic!("no {name}: {text}"));
    assert!(place("         640 ") < place("one worker") && place("one worker") < place(" 1,920 "), "{text}");
    assert!(place(" 5,856 ") < place("8 workers") && place("8 workers") < place(" 11,718 "), "{text}");
}

#[test]
fn what_has_no_name_takes_room_all_the_same() {
    let row = |at_ns, blocks: &[u64]| Row {
        at_ns,
        input_tokens: 100,
        output_tokens: 1,
        blocks: blocks.into(),
        ..Row::default()
    };
    let mut analysis = Analysis::new(16, None);
    [row(0, &[1, 2]), row(1, &[1, 2]), row(2, &[])].iter().for_each(|row| analysis.add(row));
    let reuse = analysis.finish("t", Format::Router, true, Counts::default()).reuse.unwrap();
    // Seven blocks each, of which five are the row's own; of the last row nothing is known.
    assert_eq!((reuse.references, reuse.distinct), (14, 12));
    assert_eq!((reuse.infinite_by_block, reuse.infinite_by_token), (2.0 / 14.0, 32.0 / 300.0));
}
