//! Clients that never rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{Client, Message, Router, wait_until};

/// Some clients in threads of their own, each with a connection that it keeps while it can.
pub(super) struct Traffic {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<Message>>>,
}

impl Traffic {
    /// Each client sends these bodies to `/generate`, in turn.
    pub(super) fn start(router: &Router, clients: usize, bodies: &[String]) -> Self {
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |number: usize| {
            let (over, answered, bodies) = (Arc::clone(&over), Arc::clone(&answered), bodies.to_vec());
            let address = router.address.clone();
            std::thread::spawn(move || {
                let mut answers = Vec::new();
                let mut client = Client::connect(&address);
                for turn in number.. {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    let answer = client.post("/generate", "", bodies[turn % bodies.len()].as_bytes());
                    if answer.header("connection") == Some("close") {
                        client = Client::connect(&address);
                    }
                    answers.push(answer);
                    answered.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                }
                answers
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { over, answered, clients }
    }

    /// Waits until this many more answers have come.
    pub(super) fn go_on(&self, answers: usize) {
        let goal = self.answered.load(Ordering::SeqCst) + answers;
        wait_until("traffic", || self.answered.load(Ordering::SeqCst) >= goal);
    }

    /// Stops; all answers.
    pub(super) fn stop(self) -> Vec<Message> {
        self.over.store(true, Ordering::SeqCst);
        self.clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    }
}

/// Checks that none of them has failed.
pub(super) fn assert_all_served(answers: &[Message]) {
    let failed: Vec<_> = answers.iter().filter(|answer| answer.status() != 200).collect();
    let first = failed.first().map(|answer| format!("{} {}", answer.first, answer.text()));
    assert!(failed.is_empty(), "{} of {} failed: {first:?}", failed.len(), answers.len());
}
