//! The driver against servers that follow a script.

use std::io::{Read, Write};
use std::net::TcpListener;

use protocol::record::RequestRecord;

use super::drive::{Trouble, drive};
use super::places::Places;
use crate::run::was_left;
use crate::scenario::Faults;
use crate::workload::chain::PREDECESSOR_FAILED;
use crate::workload::mishaps::Mishaps;
use crate::workload::{After, Pacing, Plan, PlannedRequest, Segment};

fn no_trouble() -> Trouble {
    Trouble { deeds: Vec::new(), faults: Faults::default(), mishaps: Mishaps::new(1) }
}

/// Four workers.
fn places() -> Places {
    Places::new((0..4).map(|worker| format!("http://worker-{worker}")).collect())
}

/// A server that answers every connection's one request with `answer` and closes.
fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            // The scripted requests fit into one read.
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

/// The same, which also tells what it was sent.
fn listening_server(answer: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or(0);
            let _ = tell.send(String::from_utf8_lossy(&request[..read]).into_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, told)
}

fn plan(requests: u64, pacing: Pacing) -> Plan {
    let request = |seq| PlannedRequest {
        seq,
        group: Some(7),
        session: None,
        turn: None,
        at_ns: seq * 1_000_000,
        prompt: Box::new([Segment::Text { block: seq, tokens: 8 }]),
        output_tokens: 2,
        after: None,
    };
    Plan { requests: (0..requests).map(request).collect(), pacing }
}

fn records(answer: &'static str) -> Vec<RequestRecord> {
    let url = server(answer);
    drive(&url, places(), plan(3, Pacing::Open), 1.0, no_trouble(), &mut || true, &mut |_| {})
        .unwrap()
        .records
}

fn stream(frames: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nx-router-worker-url: http://worker-3\r\nx-router-reason: turn\r\nconnection: close\r\n\r\n{frames}"
    )
}

const FIRST: &str = "data: {\"meta_info\":{\"prompt_tokens\":8,\"completion_tokens\":1,\"cached_tokens\":5,\"finish_reason\":null}}\n\n";
const LAST: &str = "data: {\"meta_info\":{\"prompt_tokens\":8,\"completion_tokens\":2,\"cached_tokens\":5,\
                    \"finish_reason\":{\"type\":\"length\",\"length\":2}}}\n\n";

#[test]
fn a_whole_stream_is_a_success_with_the_figures_of_its_last_frame() {
    let answer = stream(&format!("{FIRST}{LAST}data: [DONE]\n\n")).leak();
    for record in records(answer) {
        assert!(record.succeeded(), "{record:?}");
        assert_eq!((record.prompt_tokens, record.cached_tokens, record.output_tokens), (8, 5, 2));
        assert_eq!((record.worker, record.reason.as_str()), (Some(3), "turn"));
        assert!(record.first_ns.is_some_and(|first| first >= record.sent_ns && first <= record.last_ns));
        assert!(record.sent_ns >= record.intended_ns);
    }
}

#[test]
fn what_is_no_whole_answer_is_a_failure_that_says_why() {
    let abort = "data: {\"meta_info\":{\"prompt_tokens\":8,\"completion_tokens\":1,\
                 \"finish_reason\":{\"type\":\"abort\",\"message\":\"too long\"}}}\n\ndata: [DONE]\n\n";
    let cases = [
        ("no [DONE]", stream(&format!("{FIRST}{LAST}")), "[DONE]"),
        ("no token", stream("data: [DONE]\n\n"), "no token"),
        ("malformed", stream(&format!("{FIRST}data: {{\"meta\n\ndata: [DONE]\n\n")), "malformed"),
        ("aborted", stream(abort), "too long"),
        (
            "an error frame",
            stream("data: {\"error\":{\"message\":\"no room\"}}\n\ndata: [DONE]\n\n"),
            "no room",
        ),
        ("a status", "HTTP/1.1 503 Gone\r\ncontent-length: 4\r\n\r\nbusy".to_owned(), "status 503: busy"),
        ("no HTTP", "nonsense".to_owned(), ""),
        (
            "cut in mid-body",
            "HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\ndata: x".to_owned(),
            "the stream broke",
        ),
    ];
    for (case, answer, why) in cases {
        for record in records(answer.leak()) {
            assert!(!record.succeeded(), "{case}: {record:?}");
            assert!(!record.error.is_empty() && record.error.contains(why), "{case}: {record:?}");
        }
    }
}

#[test]
fn nobody_at_the_other_end_is_a_failure_of_each_request() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    for pacing in [Pacing::Open, Pacing::Closed { concurrency: 2 }] {
        let driven =
            drive(&nobody, places(), plan(3, pacing), 1.0, no_trouble(), &mut || true, &mut |_| {}).unwrap();
        assert_eq!(driven.records.iter().map(|r| r.seq).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(driven.records.iter().all(|r| r.status == 0 && r.error.contains("refused")), "{driven:?}");
    }
}

#[test]
fn a_dead_cluster_ends_the_run_long_before_its_schedule() {
    let url = server("HTTP/1.1 503 Gone\r\ncontent-length: 0\r\n\r\n");
    let mut plan = plan(2, Pacing::Open);
    plan.requests[1].at_ns = 3_600_000_000_000;
    let mut looks = 0;
    let mut is_alive = || {
        looks += 1;
        looks < 3
    };
    let driven = drive(&url, places(), plan, 1.0, no_trouble(), &mut is_alive, &mut |_| {}).unwrap();
    assert_eq!(driven.records[0].status, 503);
    assert!(driven.records[1].error.contains("given up"), "{:?}", driven.records[1]);
}

#[test]
fn speed_scales_the_schedule_and_the_figures_alike() {
    let url = server("HTTP/1.1 503 Gone\r\ncontent-length: 0\r\n\r\n");
    let mut plan = plan(2, Pacing::Open);
    // 20 s of the run, 0.2 s of wall time.
    plan.requests[1].at_ns = 20_000_000_000;
    let driven = drive(&url, places(), plan, 100.0, no_trouble(), &mut || true, &mut |_| {}).unwrap();
    let record = &driven.records[1];
    assert_eq!(record.intended_ns, 20_000_000_000);
    assert!(record.sent_ns >= record.intended_ns, "never before it is due: {record:?}");
}

#[test]
fn clients_that_leave_close_their_connections_and_are_no_failures() {
    // Answers nothing, and tells of every connection that the other end closes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (closed, closings) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let closed = closed.clone();
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {}
                let _ = closed.send(());
            });
        }
    });
    let trouble = Trouble { faults: Faults { client_gone: 1.0, ..Faults::default() }, ..no_trouble() };
    let driven =
        drive(&url, places(), plan(3, Pacing::Open), 100.0, trouble, &mut || true, &mut |_| {}).unwrap();
    for record in &driven.records {
        assert!(was_left(record) && !record.succeeded(), "{record:?}");
        let stayed_ns =
            Mishaps::new(1).client_leaves(&Faults { client_gone: 1.0, ..Faults::default() }, record.seq);
        assert!(record.last_ns - record.sent_ns >= stayed_ns.unwrap(), "{record:?}");
    }
    (0..3).for_each(|_| closings.recv_timeout(std::time::Duration::from_secs(30)).unwrap());
}

/// Two turns and a third of their own: the second goes on from the first one's prompt and reply after 30 ms.
fn two_turns(pacing: Pacing) -> Plan {
    let mut plan = plan(3, pacing);
    let reply = Segment::Reply { seq: 0, tokens: 2 };
    plan.requests[1].prompt =
        [plan.requests[0].prompt[0], reply, Segment::Text { block: 9, tokens: 3 }].into();
    plan.requests[1].after = Some(After { seqs: [0].into(), think_ns: 30_000_000 });
    plan
}

#[test]
fn a_later_turn_holds_the_reply_that_came_and_is_due_after_the_time_to_think() {
    // Once in increments, and once by an engine that says again what it has said.
    for second in [" tree", " some tree"] {
        let frame = |text: &str, tokens: u32| {
            let meta = format!(
                "{{\"prompt_tokens\":8,\"completion_tokens\":{tokens},\"cached_tokens\":5,\"finish_reason\":null}}"
            );
            format!("data: {{\"text\":\"{text}\",\"meta_info\":{meta}}}\n\n")
        };
        let answer = stream(&format!("{}{}data: [DONE]\n\n", frame(" some", 1), frame(second, 2)));
        for pacing in [Pacing::Open, Pacing::Closed { concurrency: 1 }] {
            let (url, bodies) = listening_server(answer.clone().leak());
            let plan = two_turns(pacing);
            let driven =
                drive(&url, places(), plan.clone(), 1.0, no_trouble(), &mut || true, &mut |_| {}).unwrap();
            assert!(driven.records.iter().all(RequestRecord::succeeded), "{:?}", driven.records);
            let (first, second) = (&driven.records[0], &driven.records[1]);
            assert_eq!(second.intended_ns, first.last_ns + 30_000_000);
            assert!(second.sent_ns >= second.intended_ns);
            let reply = protocol::tokenizer::encode(" some tree");
            let text = |seq: usize| {
                let tokens = plan.requests[seq].tokens(|_, tokens| tokens.extend(&reply));
                protocol::tokenizer::decode(&tokens)
            };
            let sent: Vec<String> = bodies.try_iter().collect();
            assert_eq!(sent.len(), 3);
            assert!((0..3).all(|seq| sent.iter().any(|body| body.contains(&text(seq)))), "{sent:?}");
        }
    }
}

#[test]
fn what_waits_for_a_failed_request_is_never_sent() {
    for pacing in [Pacing::Open, Pacing::Closed { concurrency: 1 }] {
        let (url, bodies) =
            listening_server("HTTP/1.1 503 Gone\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let plan = two_turns(pacing);
        let driven = drive(&url, places(), plan, 1.0, no_trouble(), &mut || true, &mut |_| {}).unwrap();
        let statuses: Vec<u16> = driven.records.iter().map(|record| record.status).collect();
        assert_eq!(statuses, [503, 0, 503]);
        assert_eq!(driven.records[1].error, PREDECESSOR_FAILED);
        assert_eq!(driven.records[1].intended_ns, driven.records[0].last_ns);
        assert_eq!(bodies.try_iter().count(), 2);
    }
}

#[test]
fn a_closed_loop_starts_with_its_clock() {
    let url = server(stream(&format!("{FIRST}{LAST}data: [DONE]\n\n")).leak());
    let plan = plan(3, Pacing::Closed { concurrency: 1 });
    let driven = drive(&url, places(), plan, 1.0, no_trouble(), &mut || true, &mut |_| {}).unwrap();
    for record in &driven.records {
        assert!(
            record.first_ns.is_some_and(|first| first > record.sent_ns),
            "no answer takes no time: {record:?}"
        );
    }
}
