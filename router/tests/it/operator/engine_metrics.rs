//! `/engine_metrics`.

use super::exposition::assert_valid;
use super::{OK, scripted, start};
use crate::common::Router;
use crate::common::worker::dead_url;

const PAGE: &str = "# HELP sglang:num_running_reqs Running.\n# TYPE sglang:num_running_reqs gauge\n\
    sglang:num_running_reqs{model_name=\"m\"} 3\n# TYPE sglang:ttft histogram\nsglang:ttft_bucket{le=\"1.0\"} 1\n\
    sglang:ttft_bucket{le=\"+Inf\"} 2\nsglang:ttft_sum 1.5\nsglang:ttft_count 2\n";
const ODD: &str = "this is no metric\n# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{worker_addr=\"x\"} 4\n\
    # TYPE own counter\nown 1 1700000000000\n";

#[test]
fn the_metrics_of_all_workers_are_one_page_that_prometheus_reads() {
    let (a, odd) = (scripted(&[("GET /metrics ", OK, PAGE)]), scripted(&[("GET /metrics ", OK, ODD)]));
    let b = scripted(&[("GET /metrics ", OK, PAGE)]);
    let (unable, html) = (scripted(&[]), scripted(&[("GET /metrics ", OK, "<html>\n<p>Hello</p>\n</html>")]));
    let dead = dead_url();
    let workers = [&a, &odd, &b, &unable, &html];
    let mut urls: Vec<String> = workers.iter().map(|worker| worker.url()).collect();
    urls.push(dead.clone());
    let router = Router::start(&urls, &[]);
    super::wait_until_ready(&router, workers.len());
    let page = router.get("/engine_metrics");
    assert_valid(&page);
    let text = page.text();
    let samples = |name: &str| {
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect::<Vec<_>>()
    };
    let (a, odd, b) = (a.url(), odd.url(), b.url());
    assert_eq!(
        samples("sglang_num_running_reqs{"),
        [
            format!("sglang_num_running_reqs{{worker_addr=\"{a}\",model_name=\"m\"}} 3"),
            format!("sglang_num_running_reqs{{worker_addr=\"{odd}\",exported_worker_addr=\"x\"}} 4"),
            format!("sglang_num_running_reqs{{worker_addr=\"{b}\",model_name=\"m\"}} 3"),
        ]
    );
    assert_eq!(samples("own{"), [format!("own{{worker_addr=\"{odd}\"}} 1")]);
    assert_eq!(samples("sglang_ttft_bucket{").len(), 4);
    let up = |worker: &str, up: u8| format!("smg_engine_metrics_up{{worker_addr=\"{worker}\"}} {up}");
    let expected =
        [up(&a, 1), up(&odd, 1), up(&b, 1), up(&unable.url(), 0), up(&html.url(), 0), up(&dead, 0)];
    assert_eq!(samples("smg_engine_metrics_up{"), expected);
}

#[test]
fn who_asks_for_open_metrics_gets_it() {
    let page = "# TYPE sglang:cached_tokens_total counter\nsglang:cached_tokens_total 3\n";
    let script: super::Script =
        Box::leak(Box::new([("GET /metrics ", OK, page), ("GET /v1/loads?format=prometheus ", OK, page)]));
    let worker = scripted(script);
    let router = start(&[&worker], &[]);
    for path in ["/engine_metrics", "/v1/loads?format=prometheus"] {
        let open = super::send(&router, "GET", path, "Accept: application/openmetrics-text\r\n");
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert_eq!((open.status(), open.header("content-type")), (200, Some(kind)), "{path}");
        let sample = format!("sglang_cached_tokens_total{{worker_addr=\"{}\"}} 3\n", worker.url());
        let family = format!("# TYPE sglang_cached_tokens counter\n{sample}");
        assert!(open.text().starts_with(&family) && open.text().ends_with("\n# EOF\n"), "{}", open.text());
        let plain = router.get(path);
        assert_valid(&plain);
        assert!(plain.text().starts_with(&format!("# TYPE sglang_cached_tokens_total counter\n{sample}")));
    }
    let asked = worker.seen().into_iter().filter(|request| request.first.starts_with("GET /metrics "));
    assert!(asked.into_iter().all(|request| request.header("accept") == Some("text/plain;version=0.0.4")));
}

#[test]
fn without_any_page_there_is_none() {
    let unable = scripted(&[]);
    start(&[&unable], &[]).get("/engine_metrics").assert_refused(503, "no_worker_response");
    Router::start(&[], &[]).get("/engine_metrics").assert_refused(503, "no_workers");
}
