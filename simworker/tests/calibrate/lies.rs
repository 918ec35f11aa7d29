//! Workers that do not tell the truth about themselves: what can be made of it, or one clear line, never a false preset.

use std::process::Command;

use serde_json::{Value, json};
use simworker::calibrate::{CalibrateError, Calibration, calibrate};

use crate::liar::{self, Lie};
use crate::target;

fn measured(lie: Lie) -> Result<Calibration, CalibrateError> {
    calibrate(&target(&format!("http://{}", liar::start("", lie))), &mut |_| ())
}

/// What is told of the load becomes this.
fn load(route: &str, answer: &mut Value, key: &str, told: Value) {
    if route == "/v1/loads" {
        answer["loads"][0][key] = told;
    }
}

/// What is told of the cached tokens becomes this.
fn cached(route: &str, answer: &mut Value, told: &Value) {
    if route == "/generate" {
        for reply in answer.as_array_mut().unwrap() {
            reply["meta_info"]["cached_tokens"] = told.clone();
        }
    }
}

fn no_time(route: &str, answer: &mut Value) {
    load(route, answer, "total_prefill_busy_us", json!(0));
    if route == "/v1/loads" {
        answer["loads"][0]["decode_moments"][2] = json!(0);
    }
}

#[test]
fn the_truth_is_measured() {
    let steps = measured(|_, _| ()).unwrap().file.preset.steps;
    assert!((steps.prefill_token_ns / 5e3 - 1.0).abs() < 0.01, "{steps:?}");
}

#[test]
fn false_counts_are_an_error_in_words() {
    let cases: [(&str, Lie, &str); 10] = [
        ("no time", no_time, "do not decide the step times: 0 prompts and 0 batches"),
        (
            "no decode time",
            |route, answer| load(route, answer, "decode_moments", json!([0, 0, 0])),
            "prompts and 0 batches",
        ),
        (
            "no numbers",
            |route, answer| load(route, answer, "decode_moments", json!("many")),
            "prompts and 0 batches",
        ),
        (
            "decode steps go back",
            |route, answer| {
                let moments = &answer["loads"][0]["decode_moments"];
                let back: Vec<f64> = (0..3).map(|at| -moments[at].as_f64().unwrap_or(0.0)).collect();
                load(route, answer, "decode_moments", json!(back));
            },
            "prompts and 0 batches",
        ),
        (
            "infinite decode time",
            |route, answer| {
                let steps = answer["loads"][0]["decode_moments"][0].as_f64().unwrap_or(0.0);
                load(route, answer, "decode_moments", json!([steps, steps, steps * 1e306]));
            },
            "prompts and 0 batches",
        ),
        ("all cached", |route, answer| cached(route, answer, &json!(32)), "32 tokens of a prompt of"),
        ("more cached", |route, answer| cached(route, answer, &json!(u64::MAX)), "of a prompt of 32 were"),
        (
            "nothing counted",
            |route, answer| load(route, answer, "total_prefill_uncached_tokens", json!(0)),
            "do not count the tokens that the worker computes (0 of",
        ),
        (
            "no pages",
            |route, answer| {
                if route == "/server_info" {
                    answer["page_size"] = json!(0);
                }
            },
            "no page_size above 0",
        ),
        (
            "no KV",
            |route, answer| {
                if route == "/server_info" {
                    answer["max_total_num_tokens"] = json!(-1);
                }
            },
            "no max_total_num_tokens above 0",
        ),
    ];
    for (case, lie, words) in cases {
        let said = measured(lie).expect_err(case).to_string();
        assert!(said.contains(words), "{case}: {said}");
    }
}

#[test]
fn what_is_not_told_or_makes_no_number_is_done_without() {
    let from_outside: [(&str, Lie); 2] = [
        ("no count", |route, answer| {
            if route == "/v1/loads" {
                answer["loads"][0].as_object_mut().unwrap().remove("total_prefill_uncached_tokens");
            }
        }),
        ("negative", |route, answer| load(route, answer, "total_prefill_busy_us", json!(-7))),
    ];
    for (case, lie) in from_outside {
        // Without decode times of its own it may not be decided; it is not measured by the counters in any case.
        match measured(lie) {
            Ok(calibration) => {
                assert!(calibration.notes.iter().any(|note| note.contains("no step times")), "{case}");
            }
            Err(error) => assert!(matches!(error, CalibrateError::Undecided { .. }), "{case}: {error}"),
        }
    }
    for told in [json!(-3), Value::Null, json!("all")] {
        let lie: Lie = match told {
            Value::Null => |route, answer| cached(route, answer, &Value::Null),
            Value::String(_) => |route, answer| cached(route, answer, &json!("all")),
            _ => |route, answer| cached(route, answer, &json!(-3)),
        };
        let steps = measured(lie).unwrap().file.preset.steps;
        assert!((steps.prefill_token_ns / 5e3 - 1.0).abs() < 0.01, "{told}: {steps:?}");
    }
    // A count beyond all numbers moves no more: the rest of what is told is used.
    measured(|route, answer| load(route, answer, "total_prefill_uncached_tokens", json!(u64::MAX))).unwrap();
}

#[test]
fn no_file_is_written_and_the_exit_code_says_so() {
    let file = std::env::temp_dir().join(format!("simworker-lie-{}.toml", std::process::id()));
    let url = format!("http://{}", liar::start("", no_time));
    let output = Command::new(env!("CARGO_BIN_EXE_simworker"))
        .args(["calibrate", "--url", &url, "--out"])
        .arg(&file)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.lines().last().unwrap().contains("do not decide the step times"), "{told}");
    assert!(output.stdout.is_empty() && !file.exists());
}

#[test]
fn a_path_in_the_url_stands_before_every_route() {
    let address = liar::start("/engine/one", |_, _| ());
    let at = |path: &str| calibrate(&target(&format!("http://{address}{path}")), &mut |_| ());
    at("/engine/one/").unwrap();
    let elsewhere = at("").unwrap_err();
    assert!(matches!(elsewhere, CalibrateError::NotSglang { status: 404, .. }), "{elsewhere}");
    let query = at("/engine/one?x=1").unwrap_err();
    assert!(query.to_string().contains("without a query"), "{query}");
}
