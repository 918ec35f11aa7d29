//! The budget of one prefill batch (SGLang's PrefillAdder).

use super::request::Request;
use crate::cache::KvCache;
use crate::config::EngineConfig;

/// What is left for the prefill batch that is being put together.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// Tokens of KV that are spoken for: output still to come of running requests, and all of admitted ones.
    reserved: u64,
    /// Tokens that the step should compute at most.
    input: u64,
    /// Tokens that the step may compute at most, if prompts are cut.
    chunk: Option<u64>,
    /// Most tokens of the request whose prefill is in progress.
    limit: Option<u64>,
    /// Whether a prompt may be cut: only one at a time may be.
    may_cut: bool,
    page: u64,
}

/// The answer to a request that asks to join the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It computes so many tokens in this step.
    Take(usize),
    /// Not with the KV there is.
    NoTokens,
    /// Not in this step.
    Stop,
}

impl Budget {
    /// `rows` of the step are running requests that make a token each.
    pub(crate) fn new(config: &EngineConfig, reserved: u64, rows: u64) -> Self {
        Self {
            reserved: reserved + rows,
            input: u64::from(config.max_prefill_tokens).saturating_sub(rows),
            chunk: config.chunked_prefill.map(|chunk| u64::from(chunk).saturating_sub(rows)),
            limit: None,
            may_cut: true,
            page: u64::from(config.page_size),
        }
    }

    /// The request whose prefill is in progress, with `rest` to go, leaves room for those of `waiting` that are shorter, in
    /// their order, as far as a page is left for it; and if it is cut, no other one may be
    /// (`shortest_prefill_chunk_limit` in `schedule_policy.py`).
    pub(crate) fn spare<'a>(&mut self, rest: u64, waiting: impl Iterator<Item = &'a Request>) {
        self.may_cut = false;
        let Some(chunk) = self.chunk.filter(|chunk| *chunk >= 2 * self.page) else { return };
        let mut spared = 0;
        for request in waiting {
            let work = request.prefill_work();
            let paged = work.next_multiple_of(self.page);
            if work >= rest || spared + paged > chunk - self.page {
                break;
            }
            spared += paged;
        }
        if spared > 0 {
            let limit = chunk - spared;
            self.limit = Some(limit - limit % self.page);
        }
    }

    /// The next tokens of the request whose prefill is in progress, with `rest` to go.
    pub(crate) fn go_on(&mut self, request: &Request, rest: u64) -> usize {
        let room = self.chunk.unwrap_or(rest).min(self.limit.unwrap_or(u64::MAX));
        if rest <= room {
            self.charge(rest, request.reserve(request.produced));
            self.may_cut = true;
            return rest as usize;
        }
        let part = room - room % self.page;
        self.charge(part, 0);
        part as usize
    }

    /// Whether a request joins of which `matched` tokens are cached and locked.
    pub(crate) fn offer(&mut self, cache: &KvCache, request: &Request, matched: u64, first: bool) -> Verdict {
        self.offer_with_host(cache, request, matched, 0, first)
    }

    /// The same with `on_host` more tokens that take KV, but need not be computed.
    pub(crate) fn offer_with_host(
        &mut self,
        cache: &KvCache,
        request: &Request,
        matched: u64,
        on_host: u64,
        first: bool,
    ) -> Verdict {
        let rest = request.len() as u64 - matched;
        let reserve = request.reserve(request.produced);
        if rest + reserve + self.page >= self.total(cache) {
            return Verdict::NoTokens;
        }
        let rest = rest - on_host;
        let paged = rest.next_multiple_of(self.page);
        let Some(chunk) = self.chunk else {
            if !first && paged >= self.input {
                return Verdict::Stop;
            }
            self.charge(rest, reserve);
            return Verdict::Take(rest as usize);
        };
        if paged <= chunk {
            self.charge(rest, reserve);
            return Verdict::Take(rest as usize);
        }
        let part = chunk - chunk % self.page;
        if part == 0 || !self.may_cut {
            return Verdict::Stop;
        }
        self.charge(part, 0);
        self.chunk = Some(0);
        Verdict::Take(part as usize)
    }

    /// Whether the batch is complete, and why: [`Verdict::NoTokens`] or [`Verdict::Stop`].
    pub(crate) fn spent(&self, cache: &KvCache) -> Option<Verdict> {
        if self.total(cache) == 0 {
            return Some(Verdict::NoTokens);
        }
        (self.input == 0 || self.chunk == Some(0)).then_some(Verdict::Stop)
    }

    /// Tokens of KV that `request` needs beyond those that are not spoken for; below 0 if there are enough.
    pub(crate) fn lacking(&self, cache: &KvCache, request: &Request) -> i64 {
        let needs = request.prefill_work() + request.reserve(request.produced);
        needs as i64 + self.reserved as i64 - (cache.free() + cache.evictable()) as i64
    }

    /// Output of a running request is not to come any more.
    pub(crate) fn release(&mut self, reserved: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
    }

    /// Tokens of KV that are not spoken for. What a request locks is no longer evictable, so this is asked anew.
    fn total(&self, cache: &KvCache) -> u64 {
        (cache.free() + cache.evictable()).saturating_sub(self.reserved)
    }

    fn charge(&mut self, tokens: u64, reserve: u64) {
        let paged = tokens.next_multiple_of(self.page);
        self.reserved += paged + self.page + reserve;
        self.input = self.input.saturating_sub(paged);
        self.chunk = self.chunk.map(|chunk| chunk.saturating_sub(paged));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{CacheConfig, Eviction};
    use crate::engine::{RequestId, Submit};
    use crate::preset::preset;

    fn request(prompt: usize, max_new: u32) -> Request {
        let submit = Submit::new(RequestId(0), vec![7; prompt].into(), max_new);
        Request::new(submit, max_new, 0)
    }

    /// A budget and an empty cache of 10,000 tokens, of which `reserved` are spoken for.
    fn setup(page_size: u32, chunk: Option<u32>, max_prefill: u32, reserved: u64) -> (Budget, KvCache) {
        let config = EngineConfig {
            page_size,
            chunked_prefill: chunk,
            max_prefill_tokens: max_prefill,
            ..EngineConfig::of(preset("a100-80g-llama3-8b").unwrap())
        };
        let capacity_tokens = 10_000;
        let cache = KvCache::new(CacheConfig {
            page_size,
            capacity_tokens,
            eviction: Eviction::Lru,
            disabled: false,
        });
        (Budget::new(&config, reserved, 0), cache)
    }

    #[test]
    fn kv_must_be_there_for_prompt_reply_and_a_page() {
        let offer = |prompt, max_new, reserved| {
            let (mut budget, cache) = setup(1, None, 16_384, reserved);
            budget.offer(&cache, &request(prompt, max_new), 0, true)
        };
        assert_eq!(offer(5000, 4998, 0), Verdict::Take(5000), "a reply counts 4096 at most");
        assert_eq!(offer(5902, 4096, 0), Verdict::Take(5902), "9999 are less than 10,000");
        assert_eq!(offer(5903, 4096, 0), Verdict::NoTokens);
        assert_eq!(offer(5902, 4096, 1), Verdict::NoTokens);
    }

    #[test]
    fn every_request_is_charged_with_its_page_and_reply() {
        let (mut budget, cache) = setup(16, Some(8192), 16_384, 0);
        assert_eq!(budget.offer(&cache, &request(100, 50), 0, true), Verdict::Take(100));
        assert_eq!(budget.total(&cache), 10_000 - (112 + 16 + 50));
        assert_eq!((budget.input, budget.chunk), (16_384 - 112, Some(8192 - 112)));
        assert_eq!(budget.offer(&cache, &request(100, 50), 64, false), Verdict::Take(36));
        assert_eq!((budget.input, budget.chunk), (16_384 - 112 - 48, Some(8192 - 112 - 48)));
        assert_eq!(budget.spent(&cache), None);
    }

    #[test]
    fn without_chunks_the_input_limit_spares_the_first() {
        let (mut budget, cache) = setup(1, None, 1000, 0);
        assert_eq!(budget.offer(&cache, &request(900, 1), 0, true), Verdict::Take(900));
        assert_eq!(
            budget.offer(&cache, &request(100, 1), 0, false),
            Verdict::Stop,
            "it must stay below the limit"
        );
        assert_eq!(budget.offer(&cache, &request(99, 1), 0, false), Verdict::Take(99));
        let (mut budget, cache) = setup(1, None, 1000, 0);
        assert_eq!(budget.offer(&cache, &request(3000, 1), 0, true), Verdict::Take(3000));
        assert_eq!(budget.spent(&cache), Some(Verdict::Stop));
    }

    #[test]
    fn a_cut_prompt_ends_the_batch_and_is_not_charged_with_its_reply() {
        let (mut budget, cache) = setup(16, Some(100), 16_384, 0);
        assert_eq!(budget.offer(&cache, &request(50, 10), 0, true), Verdict::Take(50));
        assert_eq!(
            budget.offer(&cache, &request(500, 10), 0, false),
            Verdict::Take(32),
            "36 are left, in whole pages"
        );
        assert_eq!(budget.total(&cache), 10_000 - (64 + 16 + 10) - (32 + 16));
        assert_eq!(budget.spent(&cache), Some(Verdict::Stop));
        let (mut budget, cache) = setup(16, Some(100), 16_384, 0);
        assert_eq!(budget.offer(&cache, &request(90, 10), 0, true), Verdict::Take(90));
        assert_eq!(
            budget.offer(&cache, &request(50, 10), 0, false),
            Verdict::Stop,
            "not even a page is left"
        );
    }

    #[test]
    fn the_rest_of_a_cut_prompt_comes_first() {
        let (mut budget, _) = setup(16, Some(100), 16_384, 0);
        assert_eq!(budget.go_on(&request(500, 10), 404), 96);
        assert_eq!((budget.chunk, budget.reserved), (Some(4), 96 + 16));
        let (mut budget, _) = setup(16, Some(100), 16_384, 0);
        assert_eq!(budget.go_on(&request(500, 10), 20), 20);
        assert_eq!((budget.chunk, budget.reserved), (Some(68), 32 + 16 + 10));
    }
}
