//! The LRU curve against a model that is too simple to be wrong: one list per cache, searched from the front.

use protocol::tokenizer::mix;

use super::Analysis;
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
    let mut analysis = Analysis::new(512);
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
    let mut analysis = Analysis::new(512);
    [row(0..1000), row(0..1000)].iter().for_each(|row| analysis.add(row));
    let info = analysis.finish("t", Format::Mooncake, true, Counts::default());
    assert_eq!(info.lru[0].hit_rate, 0.64, "640 of 1,000 blocks, the first ones");
}

#[test]
fn other_block_sizes_have_the_same_sizes_in_tokens() {
    let mut analysis = Analysis::new(16);
    analysis.add(&Row { input_tokens: 20, blocks: [1, 2].into(), ..Row::default() });
    let info = analysis.finish("t", Format::Bailian, true, Counts::default());
    assert_eq!(info.lru[0].blocks, 20_480);
    assert!(info.lru.iter().zip([640, 1_920, 5_856, 11_718, 97_657]).all(|(p, b)| p.tokens == b * 512));
}
