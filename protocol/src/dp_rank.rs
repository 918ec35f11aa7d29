//! What an engine says of the data-parallel rank that a request names, where it refuses the request for its sake.

use serde_json::Value;

use crate::pd::each_frame;

/// Why a rank is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The engine has no such rank.
    Rank,
    /// The bootstrap room stands for another one of its ranks.
    Room,
}

/// The names of a rank in bodies and headers, in small letters.
const NAMES: [&str; 3] = ["routed_dp_rank", "data_parallel_rank", "x-data-parallel-rank"];

/// SGLang's words for a rank that is not the one for which the room stands.
const CONFLICT: &str = "follow_bootstrap_room conflict";

/// Whether an answer that is none of success is about the rank; it may be a stream that begins with an error. Errors have their
/// text in `error.message`, `error`, `message` or `detail`, by engine and path.
#[must_use]
pub fn refused(answer: &[u8]) -> Option<Refused> {
    let mut found = None;
    each_frame(answer, |_, item| found = found.or_else(|| of_item(item)));
    found
}

fn of_item(item: &[u8]) -> Option<Refused> {
    let answer: Value = serde_json::from_slice(item).ok()?;
    let places = [&answer["error"]["message"], &answer["error"], &answer["message"], &answer["detail"]];
    let message = places.into_iter().find_map(Value::as_str)?;
    if message.contains(CONFLICT) {
        return Some(Refused::Room);
    }
    let message = message.to_ascii_lowercase();
    NAMES.iter().any(|name| message.contains(name)).then_some(Refused::Rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_refused_in_these_words() {
        for (answer, expected) in [
            (
                r#"{"error":{"message":"data_parallel_rank is 2; it must be in the range [0, 2)."}}"#,
                Some(Refused::Rank),
            ),
            (
                r#"{"error":{"message":"X-Data-Parallel-Rank is 2; it must be in the range [0, 2)."}}"#,
                Some(Refused::Rank),
            ),
            (r#"{"message":"routed_dp_rank=5 is out of range [0, 4)"}"#, Some(Refused::Rank)),
            (r#"{"detail":"routed_dp_rank must be between 0 and 3"}"#, Some(Refused::Rank)),
            (
                r#"{"error":{"message":"follow_bootstrap_room conflict: routed_dp_rank is 1, but room 4 belongs to rank 0."}}"#,
                Some(Refused::Room),
            ),
            (r#"{"error":"follow_bootstrap_room conflict"}"#, Some(Refused::Room)),
            ("data: {\"error\":{\"message\":\"routed_dp_rank=5 is out of range\"}}\n\n", Some(Refused::Rank)),
            (r#"{"text":"data_parallel_rank"}"#, None),
            (r#"{"error":{"message":"the input is too long","param":"data_parallel_rank"}}"#, None),
            (r#"{"error":{"message":"Duplicate request ID detected: a"}}"#, None),
            (r#"{"error":{"message":7}}"#, None),
            ("data_parallel_rank", None),
            ("", None),
        ] {
            assert_eq!(refused(answer.as_bytes()), expected, "{answer}");
        }
    }
}
