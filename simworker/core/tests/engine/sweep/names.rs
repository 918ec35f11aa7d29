//! Pages told apart by names must give what tokens give, to the nanosecond.

use protocol::tokenizer::{block_token, reply_block};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use simworker_core::{EngineConfig, Pace, Prompt, RequestId, Run, Submit};

use super::{draw, drive, seeds};

/// The prompts of a script: many take up an earlier one with a part of its reply, as the turns of a conversation do.
#[derive(Default)]
struct Prompts(Vec<Vec<Run>>);

impl Prompts {
    fn next(&mut self, id: u64, own: &[(u64, u32)]) -> Vec<Run> {
        let own = own.iter().map(|(block, tokens)| Run { block: *block, tokens: *tokens });
        let earlier = self.0.get(id as usize / 2).filter(|_| id % 3 == 1);
        let runs: Vec<Run> = match earlier {
            Some(former) => {
                let reply = Run { block: reply_block(&tokens(former)), tokens: (id % 70) as u32 };
                former.iter().copied().chain([reply]).chain(own).collect()
            }
            None => own.collect(),
        };
        self.0.push(runs.clone());
        runs
    }
}

fn tokens(runs: &[Run]) -> Vec<u32> {
    runs.iter().flat_map(|run| (0..run.tokens).map(|i| block_token(run.block, i))).collect()
}

#[test]
fn pages_by_name_are_pages_by_token() {
    let (mut named, mut cached) = (0, 0);
    for seed in seeds() {
        println!("seed {seed}");
        let played = [false, true].map(|by_runs| {
            let mut rng = Pcg64::seed_from_u64(seed);
            let (config, dp) = draw::config(&mut rng);
            // Ranks that attend together share a chunk, which must hold a page of each.
            let longest = if dp.attention { 16 } else { 64 };
            let page_size = [8, 16, longest, 1][rng.random_range(0..4)];
            // What names blocks, or moves them to the host, looks at tokens.
            let config = EngineConfig {
                page_size,
                prompts_are_runs: by_runs,
                kv_events: None,
                host_tier: None,
                ..config
            };
            named += u32::from(config.names_pages());
            let mut prompts = Prompts::default();
            let script = draw::script_of(&mut rng, config.schedule.label() == "fcfs", |id, own, max_new| {
                let runs = prompts.next(id, own);
                let prompt = if by_runs {
                    Prompt::from(std::sync::Arc::<[Run]>::from(runs))
                } else {
                    Prompt::from(std::sync::Arc::<[u32]>::from(tokens(&runs)))
                };
                Submit::of_prompt(RequestId(id), prompt, max_new)
            });
            drive::play(&config, dp, &script, Pace::Stretch)
        });
        assert_eq!(played[0], played[1]);
        cached += played[0].totals.iter().map(|totals| totals.cached_tokens).sum::<u64>();
    }
    assert!(named > 50 && cached > 100_000 || std::env::var_os("ENGINE_SEED").is_some(), "{named} {cached}");
}
