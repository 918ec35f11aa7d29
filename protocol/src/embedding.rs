//! Answers that hold numbers instead of text: embeddings, classes, ranks and scores. Keys and their order are SGLang's.

use serde::Serialize;

use crate::openai::Usage;
use crate::sglang::FinishReason;

/// The answer to `/v1/embeddings`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmbeddingResponse<'a> {
    /// One for each input.
    pub data: Vec<EmbeddingObject>,
    /// The model's path.
    pub model: &'a str,
    /// `list`.
    pub object: &'static str,
    /// What it cost.
    pub usage: Usage,
}

/// The vector of one input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmbeddingObject {
    /// The vector.
    pub embedding: Embedding,
    /// Place of the input.
    pub index: usize,
    /// `embedding`.
    pub object: &'static str,
}

/// A vector in one of its two spellings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Embedding {
    /// Numbers.
    Floats(Vec<f32>),
    /// The bytes of little-endian floats in base64 (RFC 4648, section 4).
    Base64(String),
}

impl Embedding {
    /// The vector in base64.
    #[must_use]
    pub fn base64(vector: &[f32]) -> Self {
        let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self::Base64(base64(&bytes))
    }
}

/// The answer to `/v1/classify`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassifyResponse<'a> {
    /// Names the answer.
    pub id: &'a str,
    /// `list`.
    pub object: &'static str,
    /// Seconds since the epoch.
    pub created: u64,
    /// The served name of the model.
    pub model: &'a str,
    /// One for each input.
    pub data: Vec<ClassifyData>,
    /// What it cost.
    pub usage: Usage,
}

/// The class of one input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassifyData {
    /// Place of the input.
    pub index: usize,
    /// The most probable class.
    pub label: String,
    /// The probability of each class.
    pub probs: Vec<f32>,
    /// How many classes there are.
    pub num_classes: usize,
}

impl ClassifyData {
    /// The most probable of the classes `LABEL_0`, `LABEL_1` and so on, of equals the first.
    #[must_use]
    pub fn of(index: usize, probs: Vec<f32>) -> Self {
        let better = |best: usize, at: usize| if probs[at] > probs[best] { at } else { best };
        let best = (0..probs.len()).reduce(better).unwrap_or_default();
        Self { index, label: format!("LABEL_{best}"), num_classes: probs.len(), probs }
    }
}

/// One entry of the answer to `/v1/rerank`, which is a list of them.
#[derive(Debug, Clone, Serialize)]
pub struct RerankEntry<'a> {
    /// How well the document fits the query.
    pub score: f64,
    /// The document, unless it is not to be returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<&'a str>,
    /// Place of the document in the request.
    pub index: usize,
    /// What the engine says about the pair.
    pub meta_info: Option<EmbeddingMeta<'a>>,
}

/// The answer to `/v1/score`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoreResponse<'a> {
    /// For each item the scores of its labels.
    pub scores: Vec<Vec<f64>>,
    /// Always `null`: there are no hidden states.
    pub pooled_hidden_states: Option<()>,
    /// The logarithms of the probabilities, if they were asked for.
    pub token_logprobs: Option<Vec<Vec<f64>>>,
    /// The model as the request names it.
    pub model: &'a str,
    /// What it cost.
    pub usage: Usage,
    /// `scoring`.
    pub object: &'static str,
}

/// The answer of `/encode` and `/classify` to one input.
#[derive(Debug, Clone, Serialize)]
pub struct Encoded<'a> {
    /// The vector.
    pub embedding: Vec<f32>,
    /// What the engine says about it.
    pub meta_info: EmbeddingMeta<'a>,
}

/// What the engine says about a request that makes no tokens.
#[derive(Debug, Clone, Serialize)]
pub struct EmbeddingMeta<'a> {
    /// The request's id.
    pub id: &'a str,
    /// Why it ended.
    pub finish_reason: FinishReason<'a>,
    /// Tokens of the input.
    pub prompt_tokens: u32,
    /// The version of the weights.
    pub weight_version: &'static str,
    /// How often the request was retracted.
    pub num_retractions: u32,
    /// The data-parallel rank that served it.
    pub dp_rank: u32,
    /// Seconds from arrival to the end.
    pub e2e_latency: Option<f64>,
    /// When the answer was handed to HTTP, seconds since the epoch.
    pub response_sent_to_client_ts: f64,
}

/// What inputs cost that make no tokens.
#[must_use]
pub fn usage(prompt_tokens: u32) -> Usage {
    Usage {
        prompt_tokens,
        total_tokens: prompt_tokens,
        completion_tokens: 0,
        prompt_tokens_details: None,
        reasoning_tokens: 0,
        completion_tokens_details: None,
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for sextet in 0..4 {
            let is_there = sextet <= three.len();
            let symbol = BASE64[(bits >> (18 - 6 * sextet) & 63) as usize];
            text.push(if is_there { char::from(symbol) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_that_of_its_rfc() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(Embedding::base64(&[1.0]), Embedding::Base64("AACAPw==".into()), "little-endian");
    }

    #[test]
    fn of_equal_classes_the_first_is_told() {
        assert_eq!(ClassifyData::of(3, vec![0.2, 0.4, 0.4]).label, "LABEL_1");
        assert_eq!(ClassifyData::of(3, vec![0.5, 0.5]).num_classes, 2);
    }
}
