//! Embeddings, classes, ranks and scores.

use serde_json::{Value, json};
use simworker::config::WorkerConfig;

use crate::client::{Worker, keys, prompt, words};

fn embedding(config: &mut WorkerConfig) {
    config.wire.is_embedding = true;
}

/// The error of an answer with status 400, whatever its form.
fn refusal(worker: &Worker, path: &str, body: &Value) -> String {
    let answer = worker.post(path, body);
    assert_eq!(answer.status, 400, "{path} {body}: {}", answer.body);
    let json = answer.json();
    json["message"].as_str().or(json["error"]["message"].as_str()).unwrap().to_owned()
}

#[test]
fn a_model_that_makes_text_is_no_embedding_model() {
    let worker = Worker::start();
    let cases = [
        ("/v1/embeddings", json!({"input": "x"})),
        ("/v1/classify", json!({"input": "x"})),
        ("/v1/rerank", json!({"query": "q", "documents": ["d"]})),
        ("/encode", json!({"text": "x"})),
        ("/classify", json!({"text": "x"})),
    ];
    for (path, body) in cases {
        assert!(refusal(&worker, path, &body).contains("`--is-embedding`"), "{path}");
    }
    assert_eq!(worker.get("/model_info").json()["is_generation"], true);
    assert_eq!(Worker::with(embedding).get("/model_info").json()["is_generation"], false);
}

#[test]
fn each_input_has_a_vector_and_equal_inputs_have_equal_ones() {
    let worker = Worker::with(embedding);
    let answer = worker.post("/v1/embeddings", &json!({"input": ["a b", "c d", "a b"], "model": "mock"}));
    assert_eq!(keys(&answer.body), words("data model object usage"));
    let (_, first) = answer.body.split_once("\"data\":[").unwrap();
    assert_eq!(keys(&first[..=first.find('}').unwrap()]), words("embedding index object"));
    let json = answer.json();
    let vector = |at: usize| json["data"][at]["embedding"].as_array().unwrap().clone();
    assert_eq!((vector(0).len(), json["model"].as_str()), (1024, Some("org/mock")));
    assert!(vector(0) == vector(2) && vector(0) != vector(1));
    let length: f64 = vector(0).iter().map(|number| number.as_f64().unwrap().powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-4, "{length}");
    assert_eq!(
        (&json["usage"]["prompt_tokens"], &json["usage"]["completion_tokens"]),
        (&json!(6), &json!(0))
    );
    let again = Worker::with(embedding).post("/v1/embeddings", &json!({"input": "a b"})).json();
    assert_eq!(again["data"][0]["embedding"], json["data"][0]["embedding"], "on every worker");
    let short = json!({"input": [1, 2, 3], "dimensions": 3, "encoding_format": "base64"});
    let text = worker.post("/v1/embeddings", &short).json()["data"][0]["embedding"].clone();
    assert_eq!(text.as_str().unwrap().len(), 16, "three floats have twelve bytes");
}

#[test]
fn an_input_goes_through_the_engine() {
    let worker = Worker::with(embedding);
    let text = prompt(1, 200);
    for path in ["/v1/embeddings", "/v1/classify"] {
        assert_eq!(worker.post(path, &json!({"input": text})).status, 200);
    }
    let load = worker.load();
    assert!(
        (200..=201).contains(&load["total_prefill_uncached_tokens"].as_u64().unwrap()),
        "the second hit: {load}"
    );
    assert_eq!(load["decode_moments"], Value::Null);
    let answer = worker.post("/encode", &json!({"text": text, "rid": "mine"}));
    assert_eq!(keys(&answer.body), words("embedding meta_info"));
    let (_, meta) = answer.body.split_once("\"meta_info\":").unwrap();
    let expected = "id finish_reason prompt_tokens weight_version num_retractions dp_rank e2e_latency \
        response_sent_to_client_ts";
    assert_eq!(keys(&meta[..meta.len() - 1]), words(expected));
    let json = answer.json();
    assert_eq!(
        (&json["meta_info"]["id"], &json["meta_info"]["prompt_tokens"]),
        (&json!("mine"), &json!(200))
    );
    assert_eq!(json["meta_info"]["finish_reason"], json!({"type": "length", "length": 0}));
    let batch = worker.post("/encode", &json!({"input_ids": [[1, 2], [3]]})).json();
    assert_eq!(batch[1]["meta_info"]["prompt_tokens"], 1);
    worker.wait_until_idle();
}

#[test]
fn classes_are_probabilities_and_the_best_is_named() {
    let worker = Worker::with(embedding);
    let answer = worker.post("/v1/classify", &json!({"input": ["a", "b"]}));
    assert_eq!(keys(&answer.body), words("id object created model data usage"));
    let json = answer.json();
    assert!(json["id"].as_str().unwrap().starts_with("classify-"));
    let probs: Vec<f64> =
        json["data"][1]["probs"].as_array().unwrap().iter().map(|prob| prob.as_f64().unwrap()).collect();
    assert!((probs.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    let best = if probs[1] > probs[0] { "LABEL_1" } else { "LABEL_0" };
    assert_eq!((&json["data"][1]["label"], &json["data"][1]["num_classes"]), (&json!(best), &json!(2)));
}

#[test]
fn documents_are_ranked_by_their_score() {
    let worker = Worker::with(embedding);
    let documents = ["one", "two", "three", "four"];
    let mut body = json!({"query": "q", "documents": documents});
    let all = worker.post("/v1/rerank", &body).json();
    let scores: Vec<f64> = all.as_array().unwrap().iter().map(|e| e["score"].as_f64().unwrap()).collect();
    assert!(scores.len() == 4 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let index = all[0]["index"].as_u64().unwrap() as usize;
    assert_eq!(all[0]["document"], documents[index]);
    assert!(all[0]["meta_info"]["prompt_tokens"].as_u64().unwrap() >= 2);
    body["top_n"] = 2.into();
    body["return_documents"] = false.into();
    let mut parts = body.clone();
    for document in parts["documents"].as_array_mut().unwrap() {
        *document = json!([{"type": "text", "text": document.clone()}]);
    }
    let scores = |all: &Value| -> Vec<Value> {
        all.as_array().unwrap().iter().map(|entry| entry["score"].clone()).collect()
    };
    assert_eq!(
        scores(&worker.post("/v1/rerank", &parts).json()),
        scores(&worker.post("/v1/rerank", &body).json()),
        "texts in parts are texts"
    );
    let best = worker.post("/v1/rerank", &body);
    let (entry, _) = best.body.trim_start_matches('[').split_once("\"meta_info\"").unwrap();
    assert_eq!(keys(&format!("{entry}\"meta_info\":0}}")), words("score index meta_info"));
    assert_eq!(best.json()[0]["score"], all[0]["score"]);
    assert_eq!(best.json().as_array().unwrap().len(), 2);
}

#[test]
fn labels_are_scored_by_models_that_make_text() {
    let worker = Worker::start();
    let mut body = json!({
        "query": "is it?", "items": [" yes", " no", " so"], "label_token_ids": [9, 5], "apply_softmax": true,
        "model": "mock",
    });
    let answer = worker.post("/v1/score", &body);
    assert_eq!(keys(&answer.body), words("scores pooled_hidden_states token_logprobs model usage object"));
    let json = answer.json();
    for row in json["scores"].as_array().unwrap() {
        let sum: f64 = row.as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{json}");
    }
    assert_eq!((json["scores"].as_array().unwrap().len(), &json["object"]), (3, &json!("scoring")));
    body["apply_softmax"] = false.into();
    body["return_token_logprobs"] = true.into();
    let json = worker.post("/v1/score", &body).json();
    let (score, logprob) = (json["scores"][2][1].as_f64().unwrap(), json["token_logprobs"][2][1].as_f64());
    assert!((score - logprob.unwrap().exp()).abs() < 1e-9, "{json}");
    let classes = json!({"query": "q", "items": ["x"]});
    let json = Worker::with(embedding).post("/v1/score", &classes).json();
    assert_eq!(json["scores"][0].as_array().unwrap().len(), 2, "a classifier scores its classes");
}

#[test]
fn wrong_inputs_are_told_in_sglangs_words() {
    let embedding = Worker::with(embedding);
    let cases = [
        ("/v1/embeddings", json!({"input": ""}), "Input cannot be empty"),
        ("/v1/embeddings", json!({"input": "  "}), "Input cannot be empty or whitespace only"),
        ("/v1/embeddings", json!({"input": []}), "Input cannot be empty"),
        (
            "/v1/embeddings",
            json!({"input": ["a", " "]}),
            "Input at index 1 cannot be empty or whitespace only",
        ),
        ("/v1/classify", json!({"input": [1, -2]}), "Token ID at index 1 must be non-negative"),
        (
            "/v1/embeddings",
            json!({"input": "x", "encoding_format": "int8"}),
            "encoding_format must be either 'float' or 'base64', got 'int8'",
        ),
        ("/v1/rerank", json!({"query": "", "documents": ["d"]}), "Query cannot be empty"),
        ("/v1/rerank", json!({"query": " ", "documents": ["d"]}), "Query cannot be empty or whitespace only"),
        ("/v1/rerank", json!({"query": "q", "documents": []}), "Documents cannot be empty"),
        ("/v1/rerank", json!({"query": "q", "documents": [""]}), "Each document must be a non-empty string"),
        (
            "/v1/rerank",
            json!({"query": "q", "documents": ["d", " "]}),
            "Each document cannot be empty or whitespace only",
        ),
    ];
    for (path, body, message) in cases {
        assert_eq!(refusal(&embedding, path, &body), message, "{path} {body}");
    }
    let worker = Worker::start();
    let cases = [
        (json!({"items": ["a"]}), "label_token_ids is required for generation (CausalLM) models."),
        (json!({"label_token_ids": [1]}), "items must be provided"),
        (json!({"items": ["a"], "label_token_ids": []}), "label_token_ids must be a nonempty list"),
        (
            json!({"items": ["a"], "label_token_ids": [[1], [2]]}),
            "label_token_ids must have one list per item",
        ),
        (
            json!({"items": ["a"], "label_token_ids": [1, 1]}),
            "label_token_ids must not contain duplicate tokens",
        ),
    ];
    for (body, message) in cases {
        assert_eq!(refusal(&worker, "/v1/score", &body), message, "{body}");
    }
    assert_eq!(embedding.post_text("/v1/embeddings", "text/plain", "{}").status, 400);
}

#[test]
fn prompts_that_are_too_long_are_cut_where_that_is_allowed() {
    let body = json!({"text": prompt(1, 700), "sampling_params": {"max_new_tokens": 20}});
    let short = |config: &mut WorkerConfig| config.engine.context_len = 512;
    assert_eq!(Worker::with(short).post("/generate", &body).status, 400);
    let worker = Worker::with(|config| {
        short(config);
        config.wire.allow_auto_truncate = true;
    });
    let meta = worker.post("/generate", &body).json()["meta_info"].clone();
    let tokens = |key: &str| meta[key].as_u64().unwrap();
    assert!(
        tokens("prompt_tokens") > 490 && tokens("prompt_tokens") + tokens("completion_tokens") <= 512,
        "{meta}"
    );
    assert!(tokens("completion_tokens") > 0);
}
