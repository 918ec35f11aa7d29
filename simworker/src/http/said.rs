//! A reply as far as it has been said, ready to be said again: frames of `/generate` repeat all of it, so what has been
//! written once is kept as it was written, and a frame costs no more than its bytes.

use std::io::Write;

use protocol::sglang::MetaInfo;
use protocol::tokenizer::decode;

use super::write_json;
use crate::reply::Reply;

/// The text and the ids of a reply's first tokens, in JSON.
#[derive(Debug, Default)]
pub(super) struct Said {
    tokens: u32,
    /// Escaped, without quotes.
    text: Vec<u8>,
    /// With commas, without brackets.
    ids: Vec<u8>,
}

impl Said {
    /// Adds the reply's tokens up to `tokens`.
    pub(super) fn grow(&mut self, reply: &Reply, tokens: u32) {
        if tokens <= self.tokens {
            return;
        }
        let new = reply.ids(self.tokens, tokens);
        let mut quoted = Vec::new();
        write_json(&mut quoted, &decode(&new));
        self.text.extend_from_slice(&quoted[1..quoted.len() - 1]);
        for id in new {
            if !self.ids.is_empty() {
                self.ids.push(b',');
            }
            // Writing to memory cannot fail.
            let _ = write!(self.ids, "{id}");
        }
        self.tokens = tokens;
    }

    /// Writes a [`protocol::sglang::Generated`] with all of it as one event.
    pub(super) fn event(&self, meta_info: &MetaInfo<'_>, index: Option<u32>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: {\"text\":\"");
        out.extend_from_slice(&self.text);
        out.extend_from_slice(b"\",\"output_ids\":[");
        out.extend_from_slice(&self.ids);
        out.extend_from_slice(b"],\"meta_info\":");
        write_json(out, meta_info);
        if let Some(index) = index {
            let _ = write!(out, ",\"index\":{index}");
        }
        out.extend_from_slice(b"}\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::stream::event;
    use crate::reply::Wish;
    use protocol::sglang::{CachedTokensDetails, Generated};

    #[test]
    fn it_is_what_the_serialiser_would_write() {
        let reply = Reply::new(&[7], &Wish::exactly(1000), 1000);
        let mut said = Said::default();
        for (tokens, index) in [(1, None), (1, Some(0)), (4, None), (250, Some(3))] {
            said.grow(&reply, tokens);
            let meta_info = || MetaInfo {
                id: "r\"1",
                finish_reason: None,
                prompt_tokens: 3,
                weight_version: "default",
                num_retractions: 0,
                scheduled: None,
                reasoning_tokens: 0,
                completion_tokens: tokens,
                cached_tokens: 1,
                cached_tokens_details: CachedTokensDetails { device: 1, host: 0 },
                dp_rank: 0,
                logprobs: None,
                e2e_latency: None,
                served: None,
                response_sent_to_client_ts: 1.5,
            };
            let (mut by_hand, mut expected) = (Vec::new(), Vec::new());
            said.event(&meta_info(), index, &mut by_hand);
            let (text, ids) = (reply.text(0, tokens), reply.ids(0, tokens));
            event(
                &mut expected,
                &Generated {
                    text: &text,
                    output_ids: &ids,
                    meta_info: meta_info(),
                    prompt_token_ids: None,
                    index,
                },
            );
            assert_eq!(String::from_utf8(by_hand), String::from_utf8(expected));
        }
    }
}
