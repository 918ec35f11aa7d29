//! Workers come and go all the time.

use serde_json::json;

use super::traffic::assert_all_served;
use super::{Engine, Traffic, add, add_ready, is_gone, listed, prompt, remove, router, series};
use crate::common::wait_until;

const ROUNDS: usize = 50;

fn bodies() -> Vec<String> {
    let stream =
        |topic: usize| json!({"text": format!("topic{topic} ").repeat(80), "stream": true}).to_string();
    (0..6).flat_map(|topic| [prompt(&format!("topic{topic}")), stream(topic)]).collect()
}

#[test]
fn fifty_changes_of_the_fleet_cost_no_request_and_leave_nothing_behind() {
    for policy in ["cache_aware", "power_of_two"] {
        let engines: Vec<_> = (0..5).map(|_| Engine::start()).collect();
        let router = router(&["--disable-retries", "--policy", policy]);
        let files = router.open_files();
        let mut present = add_ready(&router, &engines[0].url());
        let traffic = Traffic::start(&router, 4, &bodies());
        for round in 1..=ROUNDS {
            let url = engines[round % engines.len()].url();
            // Some have their successor at once, some wait for it.
            let next = if round % 2 == 0 { add(&router, &url) } else { add_ready(&router, &url) };
            remove(&router, &present);
            if round % 3 == 0 {
                traffic.go_on(4);
            }
            wait_until("the former one to be gone", || is_gone(&router, &present));
            present = next;
        }
        traffic.go_on(20);
        let answers = traffic.stop();
        assert_all_served(&answers);
        let is_stream = |body: &str| body.starts_with("data: ");
        let streams: Vec<_> =
            answers.iter().map(|answer| answer.text()).filter(|body| is_stream(body)).collect();
        assert!(streams.len() > 10 && streams.iter().all(|body| body.ends_with("[DONE]\n\n")), "{policy}");
        assert!(engines.iter().all(|engine| engine.requests() > 0), "{policy}: all of them served");

        wait_until("the loads to be released", || router.loads() == [0]);
        let last = engines[ROUNDS % engines.len()].url();
        assert_eq!(listed(&router), [&*last]);
        for engine in engines.iter().filter(|engine| engine.url() != last) {
            assert_eq!(series(&router, &engine.url()), [] as [String; 0], "{policy}");
        }
        // A few to the one that is left.
        wait_until("its files to be closed", || router.open_files() <= files + 8);
    }
}
