//! How long requests may be.

use crate::config::EngineConfig;
use crate::request::Refusal;

/// SGLang keeps so many tokens of the longest request back from its input.
const RESERVED_FOR_OUTPUT: u64 = 5;

/// The bounds on the length of requests that follow from context and KV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    context: u64,
    capacity: u64,
    page: u64,
}

impl Limits {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            context: u64::from(config.context_len),
            capacity: config.capacity(),
            page: u64::from(config.page_size),
        }
    }

    /// The most tokens that prompt and reply may have together (`max_req_len`).
    #[must_use]
    pub fn max_request_len(&self) -> u64 {
        (self.context - 1).min(self.capacity - 1)
    }

    /// The length that a prompt must stay below (`max_req_input_len`).
    #[must_use]
    pub fn max_input_len(&self) -> u64 {
        self.max_request_len() - RESERVED_FOR_OUTPUT
    }

    /// The longest reply to a prompt of `input` tokens; 0 when the prompt does not fit.
    #[must_use]
    pub fn max_output(&self, input: u64) -> u64 {
        let by_length = (self.max_request_len() - 1).saturating_sub(input);
        let by_capacity = self.capacity.saturating_sub(input.next_multiple_of(self.page) + self.page + 1);
        by_length.min(by_capacity)
    }

    /// The length that the reply will have, or why the request is refused.
    pub(crate) fn admit(&self, input: u64, output: u64) -> Result<u32, Refusal> {
        if input == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if input >= self.context {
            return Err(Refusal::InputTooLong { input, context: self.context });
        }
        let total = input + output;
        if total > self.context {
            return Err(Refusal::TotalTooLong { input, output, total, context: self.context });
        }
        let room = self.max_output(input);
        if input >= self.max_input_len() || room == 0 {
            return Err(Refusal::InputOverLimit { input, most: self.max_input_len() });
        }
        // SGLang looks for the end after the first token, so a reply has one even if none was asked for.
        Ok(u32::try_from(output.clamp(1, room)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::preset;

    fn limits(kv_tokens: u64, page_size: u32, context_len: u32) -> Limits {
        let preset = preset("a100-80g-llama3-8b").unwrap();
        Limits::new(&EngineConfig { kv_tokens, page_size, context_len, ..EngineConfig::of(preset) })
    }

    #[test]
    fn the_context_bounds_input_and_total() {
        let limits = limits(444_500, 1, 4096);
        assert_eq!(limits.admit(4096, 1), Err(Refusal::InputTooLong { input: 4096, context: 4096 }));
        let total = Refusal::TotalTooLong { input: 4000, output: 97, total: 4097, context: 4096 };
        assert_eq!(limits.admit(4000, 97), Err(total));
        assert_eq!(limits.admit(4090, 1), Err(Refusal::InputOverLimit { input: 4090, most: 4090 }));
        assert_eq!(limits.admit(4089, 7), Ok(5), "cut to 4095 − 4089 − 1");
        assert_eq!(limits.admit(0, 7), Err(Refusal::EmptyPrompt));
        assert_eq!(limits.admit(10, 0), Ok(1));
    }

    #[test]
    fn the_pool_bounds_them_in_whole_pages() {
        let limits = limits(1000, 16, 4096);
        assert_eq!(limits.max_request_len(), 991);
        assert_eq!(limits.admit(500, 3000), Ok(992 - 512 - 16 - 1));
        assert_eq!(
            limits.admit(970, 10),
            Err(Refusal::InputOverLimit { input: 970, most: 986 }),
            "no room to reply"
        );
        assert_eq!(limits.admit(986, 10), Err(Refusal::InputOverLimit { input: 986, most: 986 }));
    }
}
