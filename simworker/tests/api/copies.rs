//! Several answers to one prompt: what is computed before them.

use serde_json::json;

use crate::client::{Worker, prompt, read};

#[test]
fn the_first_computation_of_a_prompt_with_several_answers_makes_no_token() {
    let worker = Worker::start();
    let body = json!({"text": prompt(1, 80), "sampling_params": {"max_new_tokens": 3, "n": 2}});
    let answer = worker.post("/generate", &body).json();
    assert_eq!(answer[0]["meta_info"]["cached_tokens"], 79);
    let text = worker.get("/metrics").body;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("sglang:{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert_eq!(value("generation_tokens_total"), 6.0);
    assert_eq!(value("time_to_first_token_seconds_count"), 2.0);
}

#[test]
fn when_the_first_computation_comes_to_nothing_there_are_no_answers() {
    let worker = Worker::at_speed(1.0, |config| config.engine.max_running = 1);
    let params = |n: u32| json!({"max_new_tokens": 100_000, "ignore_eos": true, "n": n});
    let place = worker.send("/generate", &json!({"text": "a", "sampling_params": params(1)}));
    worker.wait_until_running(1);
    let copies = [false, true].map(|stream| {
        worker.send("/generate", &json!({"text": "b", "sampling_params": params(2), "stream": stream}))
    });
    worker.wait_for("the first computations wait", |load| load["num_waiting_reqs"] == 2);
    worker.post("/abort_request", &json!({"abort_all": true}));
    let [whole, streamed] = copies.map(read);
    let whole = whole.json();
    for answer in streamed.events().iter().chain([&whole[0], &whole[1]]) {
        assert_eq!(answer["meta_info"]["finish_reason"]["type"], "abort", "{answer}");
        assert_eq!(answer["meta_info"]["completion_tokens"], 0);
    }
    read(place);
    worker.wait_until_idle();
}
