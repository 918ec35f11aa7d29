//! Log-probabilities as the OpenAI routes write them.

use protocol::openai::{ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob, TopTokens};
use protocol::sglang::{LogProb, LogProbs};

/// Those of a completion or of a chunk of it.
pub(super) fn of_completion(logprobs: LogProbs) -> CompletionLogprobs {
    let mut all = CompletionLogprobs::default();
    for LogProb(logprob, _, text) in
        logprobs.input_token_logprobs.into_iter().chain(logprobs.output_token_logprobs)
    {
        all.text_offset.push(-1);
        all.token_logprobs.push(logprob);
        all.tokens.push(text.unwrap_or_default());
    }
    let places = [logprobs.input_top_logprobs, logprobs.output_top_logprobs].into_iter().flatten().flatten();
    all.top_logprobs = places.map(|tops| Some(TopTokens(tops?.into_iter().map(named).collect()))).collect();
    all
}

/// Those of a chat answer or of a chunk of it.
pub(super) fn of_chat(logprobs: LogProbs) -> ChatLogprobs {
    let mut tops = logprobs.output_top_logprobs.unwrap_or_default().into_iter();
    let token = |entry: LogProb| {
        let (token, logprob) = named(entry);
        let top = tops.next().flatten().unwrap_or_default().into_iter().map(|entry| {
            let (token, logprob) = named(entry);
            TopLogprob { bytes: token.as_bytes().to_vec(), token, logprob }
        });
        let top_logprobs = top.collect();
        TokenLogprob { bytes: token.as_bytes().to_vec(), token, logprob, top_logprobs }
    };
    ChatLogprobs { content: logprobs.output_token_logprobs.into_iter().map(token).collect() }
}

/// The text of a token of a reply and its log-probability, which those always have.
fn named(LogProb(logprob, _, text): LogProb) -> (String, f64) {
    (text.unwrap_or_default(), logprob.unwrap_or_default())
}
