//! How long another try is waited for, and when there is none because it would come too late.

use std::io::Read;
use std::time::{Duration, Instant};

use super::{BODY, QUICK, Troupe, sent};
use crate::common::{Router, Worker, noise, wait_until};

#[test]
fn retry_after_sets_the_wait_before_the_same_worker() {
    let troupe = Troupe::of(1, |turn| match turn {
        0 => ("503 Busy", "Retry-After: 1\r\n"),
        _ => ("200 OK", ""),
    });
    let router = troupe.patient_router(&[]);
    let sent = Instant::now();
    let answer = router.post("/generate", BODY);
    assert_eq!((answer.status(), answer.header("x-router-attempts")), (200, Some("2")));
    assert!(sent.elapsed() >= Duration::from_secs(1), "after {:?}", sent.elapsed());
}

#[test]
fn a_retry_after_that_is_too_long_to_wait_for_goes_out_at_once() {
    for field in ["Retry-After: 30\r\n", "Retry-After: Fri, 31 Dec 2100 23:59:59 GMT\r\n"] {
        let troupe = Troupe::of(1, move |turn| if turn == 0 { ("503 Busy", field) } else { ("200 OK", "") });
        let router = troupe.router(&[]);
        let sent = Instant::now();
        let answer = router.post("/generate", BODY);
        assert!(sent.elapsed() < Duration::from_secs(10), "{field} after {:?}", sent.elapsed());
        assert_eq!((answer.status(), answer.text().as_str()), (503, "{\"turn\":  0}"));
        assert_eq!(answer.header("retry-after"), field.trim().strip_prefix("Retry-After: "));
        assert_eq!(router.post("/generate", BODY).status(), 200, "another request is not held off");
        assert_eq!(troupe.asked(), [0, 0]);
    }
}

#[test]
fn an_answer_that_was_kept_while_another_try_was_considered_is_whole() {
    let body = noise(11, 3 << 20);
    let long = body.clone();
    let worker = Worker::start(move |conn, _| {
        conn.answer("503 Busy", "Retry-After: 600\r\nContent-Encoding: br\r\n", &long);
        true
    });
    let router = Router::start(&[worker.url()], &QUICK);
    let answer = router.post("/generate", BODY);
    assert_eq!((answer.status(), answer.header("content-encoding")), (503, Some("br")));
    assert!(answer.body == body, "{} bytes of {}", answer.body.len(), body.len());
    assert_eq!(worker.count("POST"), 1);
}

#[test]
fn a_client_that_leaves_between_two_tries_ends_them() {
    let troupe = Troupe::of(1, |_| ("503 Busy", "Retry-After: 4\r\n"));
    let router = troupe.patient_router(&["--max-concurrent-requests", "1"]);
    let client = sent(&router, BODY);
    wait_until("the first try", || troupe.asked().len() == 1 && router.loads() == [0]);
    let leaving = Instant::now();
    drop(client);
    wait_until("the permit to be back", || router.metric("smg_router_admitted_requests") == Some(0.0));
    assert!(leaving.elapsed() < Duration::from_millis(3500), "after {:?}", leaving.elapsed());
    std::thread::sleep(Duration::from_millis(4200));
    assert_eq!(troupe.asked(), [0]);
}

#[test]
fn retry_after_keeps_other_requests_off_no_worker() {
    let troupe = Troupe::of(2, |turn| match turn {
        0 => ("503 Busy", "Retry-After: 600\r\n"),
        _ => ("200 OK", ""),
    });
    let router = troupe.router(&[]);
    for _ in 0..4 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    assert_eq!(
        troupe.asked(),
        [0, 1, 0, 1, 0],
        "the first one moves on at once, and later ones come in turn"
    );
}

#[test]
fn one_time_limit_holds_for_all_tries() {
    let slow = Worker::start(|conn, _| {
        std::thread::sleep(Duration::from_millis(2100));
        conn.answer("503 Busy", "", b"");
        true
    });
    let hanging = Worker::start(|conn, _| {
        let _ = conn.stream.read(&mut [0]);
        false
    });
    let router =
        Router::start(&[slow.url(), hanging.url()], &[&QUICK[..], &["--request-timeout-secs", "3"]].concat());
    let sent = Instant::now();
    router.post("/generate", BODY).assert_refused(504, "upstream_timeout");
    let took = sent.elapsed();
    assert_eq!((slow.count("POST"), hanging.count("POST")), (1, 1));
    assert!(took >= Duration::from_millis(2950) && took < Duration::from_millis(4900), "{took:?}");
}

#[test]
fn a_try_that_would_begin_after_the_time_limit_is_not_waited_for() {
    let troupe = Troupe::of(1, |_| ("503 Busy", "Retry-After: 4\r\n"));
    let router = troupe.patient_router(&["--request-timeout-secs", "7"]);
    let sent = Instant::now();
    let answer = router.post("/generate", BODY);
    assert_eq!((answer.status(), answer.retry_after()), (503, Some(4)));
    assert!(sent.elapsed() < Duration::from_millis(6900), "after {:?}", sent.elapsed());
    assert_eq!(troupe.asked().len(), 2);
}
