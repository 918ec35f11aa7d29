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
    pub(super) fn read(
        info: &Value,
        loads: &Value,
        models: &Value,
        dp_size: u64,
    ) -> Result<Self, CalibrateError> {
        let number = |key: &'static str| info[key].as_u64().ok_or(CalibrateError::Missing { key });
        let small = |key| number(key).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let kv_tokens = number("max_total_num_tokens")?;
        let of_model =
            models["data"][0]["max_model_len"].as_u64().and_then(|length| u32::try_from(length).ok());
        let context_len = small("context_length").or_else(|missing| of_model.ok_or(missing))?;
        let gpus = small("tp_size").unwrap_or(1);
        let memory = &loads["loads"][0]["memory"];
        let gib = |key: &str| memory[key].as_f64().unwrap_or(0.0) * f64::from(1 << 30) * f64::from(gpus);
        Ok(Self {
            model: info["served_model_name"]
                .as_str()
                .or(info["model_path"].as_str())
                .unwrap_or("unknown")
                .to_owned(),
            gpu: loads["accelerator"].as_str().unwrap_or("unknown").to_owned(),
            gpus,
            kv_tokens,
            page_size: small("page_size")?,
            context_len,
            weight_bytes: gib("weight_gb"),
            kv_bytes_per_token: gib("kv_cache_gb") / kv_tokens as f64,
            // -1 is no chunks at all.
            chunk: info["chunked_prefill_size"].as_u64().filter(|chunk| *chunk > 0).unwrap_or(u64::MAX),
            max_running: info["max_running_requests"].as_u64().unwrap_or(u64::MAX),
            dp_size,
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
        let info = json!({"max_total_num_tokens": 1000, "page_size": 16, "context_length": null,
            "chunked_prefill_size": -1});
        let models = json!({"data": [{"max_model_len": 512}]});
        let facts = Facts::read(&info, &Value::Null, &models, 1).unwrap();
        assert_eq!((facts.context_len, facts.gpus, facts.chunk), (512, 1, u64::MAX));
        let error = Facts::read(&info, &Value::Null, &Value::Null, 1).unwrap_err();
        assert!(error.to_string().contains("context_length"), "{error}");
    }
}
