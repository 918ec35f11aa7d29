//! What a worker says: about itself, and of what it has done.

use serde_json::Value;

use super::CalibrateError;

/// What the worker says about itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    pub(super) model: String,
    pub(super) gpu: String,
    pub(super) gpus: u32,
    pub(super) kv_tokens: u64,
    pub(super) page_size: u32,
    pub(super) context_len: u32,
    pub(super) weight_bytes: f64,
    pub(super) kv_bytes_per_token: f64,
    /// Most tokens of a prefill step.
    pub(super) chunk: u64,
    pub(super) max_running: u64,
    pub(super) dp_size: u64,
}

/// More than these no worker has: whoever tells more does not tell the truth.
const MOST_GPUS: u32 = 4096;
const MOST_PAGE: u32 = 1 << 16;
const MOST_KV_TOKENS: u64 = 1 << 40;
/// With less, the prompts that tell the times of steps apart do not fit.
const LEAST_CONTEXT: u64 = 256;
const LEAST_KV_TOKENS: u64 = 1024;
const LEAST_PAGES: u64 = 8;

/// Counters since the start of the worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Counters {
    /// Prompt tokens computed.
    pub(super) computed: u64,
    /// Time in prefill steps.
    pub(super) busy_us: f64,
    /// Decode steps, and sums over them.
    pub(super) steps: f64,
    pub(super) batch: f64,
    pub(super) us: f64,
}

impl Facts {
    /// From `/server_info`, `/v1/loads` and `/v1/models`, which tells the context length where nobody has set it.
    pub(super) fn read(info: &Value, loads: &Value, models: &Value) -> Result<Self, CalibrateError> {
        let number = |key: &'static str, most: u64| match info[key].as_u64().filter(|number| *number > 0) {
            None => Err(CalibrateError::Missing { key }),
            Some(value) if value > most => Err(CalibrateError::Impossible { key, value, most }),
            Some(value) => Ok(value),
        };
        let small = |key, most: u32| number(key, most.into()).map(|number| number as u32);
        // One that is not told is 1.
        let count = |key| if info[key].is_null() { Ok(1) } else { small(key, MOST_GPUS) };
        let kv_tokens = number("max_total_num_tokens", MOST_KV_TOKENS)?;
        let of_model =
            models["data"][0]["max_model_len"].as_u64().and_then(|length| u32::try_from(length).ok());
        let context_len = match small("context_length", u32::MAX) {
            Err(CalibrateError::Missing { key }) => of_model.ok_or(CalibrateError::Missing { key })?,
            told => told?,
        };
        let gpus = count("tp_size")?;
        let page_size = small("page_size", MOST_PAGE)?;
        let too_small = |what, value, least| Err(CalibrateError::TooSmall { what, value, least });
        if u64::from(context_len) < LEAST_CONTEXT {
            return too_small("a context", context_len.into(), LEAST_CONTEXT);
        }
        let least = LEAST_KV_TOKENS.max(LEAST_PAGES * u64::from(page_size));
        if kv_tokens < least {
            return too_small("KV", kv_tokens, least);
        }
        let memory = &loads["loads"][0]["memory"];
        let gib =
            |key: &str| memory[key].as_f64().unwrap_or(0.0).max(0.0) * f64::from(1 << 30) * f64::from(gpus);
        Ok(Self {
            model: info["served_model_name"]
                .as_str()
                .or(info["model_path"].as_str())
                .unwrap_or("unknown")
                .to_owned(),
            gpu: loads["accelerator"].as_str().unwrap_or("unknown").to_owned(),
            gpus,
            kv_tokens,
            page_size,
            context_len,
            weight_bytes: gib("weight_gb"),
            kv_bytes_per_token: gib("kv_cache_gb") / kv_tokens as f64,
            // -1 is no chunks at all.
            chunk: info["chunked_prefill_size"].as_u64().filter(|chunk| *chunk > 0).unwrap_or(u64::MAX),
            max_running: info["max_running_requests"].as_u64().unwrap_or(u64::MAX),
            dp_size: count("dp_size")?.into(),
        })
    }

    /// One line.
    pub(super) fn describe(&self) -> String {
        let Self { model, gpu, gpus, kv_tokens, page_size, context_len, dp_size, .. } = self;
        format!(
            "{model} on {gpus} × {gpu}: {kv_tokens} tokens of KV in pages of {page_size}, context {context_len}, \
             {dp_size} rank(s)"
        )
    }
}

impl Counters {
    /// Whether an entry of `/v1/loads` has them. What decode steps took is told only once there have been any.
    pub(super) fn are_in(entry: &Value) -> bool {
        entry["total_prefill_busy_us"].is_u64() && entry["total_prefill_uncached_tokens"].is_u64()
    }

    /// From an entry of `/v1/loads`.
    pub(super) fn read(entry: &Value) -> Self {
        let moment = |at: usize| entry["decode_moments"][at].as_f64().unwrap_or(0.0);
        Self {
            computed: entry["total_prefill_uncached_tokens"].as_u64().unwrap_or(0),
            busy_us: entry["total_prefill_busy_us"].as_f64().unwrap_or(0.0),
            steps: moment(0),
            batch: moment(1),
            us: moment(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_told_has_a_fallback_or_is_missed_by_name() {
        let info = json!({"max_total_num_tokens": 10_000, "page_size": 16, "context_length": null,
            "chunked_prefill_size": -1});
        let models = json!({"data": [{"max_model_len": 512}]});
        let facts = Facts::read(&info, &Value::Null, &models).unwrap();
        assert_eq!((facts.context_len, facts.gpus, facts.chunk), (512, 1, u64::MAX));
        let error = Facts::read(&info, &Value::Null, &Value::Null).unwrap_err();
        assert!(error.to_string().contains("context_length"), "{error}");
    }

    #[test]
    fn a_size_of_nothing_is_no_size() {
        for key in ["max_total_num_tokens", "page_size"] {
            let mut info = json!({"max_total_num_tokens": 10_000, "page_size": 16, "context_length": 512});
            info[key] = 0.into();
            let error = Facts::read(&info, &Value::Null, &Value::Null).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn what_no_worker_has_is_not_believed() {
        let cases = [
            ("page_size", json!(1_000_000_000_000_u64), "page_size is 1000000000000; at most 65536"),
            ("tp_size", json!(1_000_000_000), "tp_size is 1000000000"),
            ("tp_size", json!(0), "no tp_size above 0"),
            ("dp_size", json!(0), "no dp_size above 0"),
            ("max_total_num_tokens", json!(1_u64 << 63), "max_total_num_tokens is"),
            ("context_length", json!(u64::MAX), "context_length is"),
            ("max_total_num_tokens", json!(100), "KV of 100 tokens; at least 1024"),
            ("context_length", json!(100), "a context of 100 tokens; at least 256"),
        ];
        for (key, value, words) in cases {
            let mut info = json!({"max_total_num_tokens": 10_000, "page_size": 16, "context_length": 512});
            info[key] = value;
            let error = Facts::read(&info, &Value::Null, &Value::Null).unwrap_err().to_string();
            assert!(error.contains(words), "{key}: {error}");
        }
    }

    #[test]
    fn counters_are_there_or_not() {
        let entry = json!({"total_prefill_busy_us": 1, "total_prefill_uncached_tokens": 2});
        assert!(Counters::are_in(&entry));
        for (key, value) in
            [("total_prefill_busy_us", json!(-1)), ("total_prefill_uncached_tokens", Value::Null)]
        {
            let mut lacking = entry.clone();
            lacking[key] = value;
            assert!(!Counters::are_in(&lacking), "{lacking}");
        }
    }
}
