//! Times that are long outside tests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::layout::lay_out;
use super::{Layout, Leave, Registered, Stage, Terms, drain, drain_all, register};
use crate::cli;
use crate::config::UpstreamTls;
use crate::shared::{Rounds, Shared};
use crate::stop::Stop;
use crate::tls::ClientTls;
use crate::upstream::Address;

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A router without workers, whose rounds are changed.
fn shared(change: impl FnOnce(&mut Rounds)) -> Arc<Shared> {
    let parsed =
        cli::parse_router_args([std::ffi::OsString::from("router")].into_iter()).expect("a configuration");
    let tls = ClientTls::new(&UpstreamTls::default()).expect("no files");
    let mut shared = Shared::new(&parsed.config, tls, watch::Sender::new(Stop::Run), None).expect("a policy");
    change(&mut Arc::get_mut(&mut shared).expect("nobody else has it yet").rounds);
    shared
}

fn add(shared: &Arc<Shared>, url: &str, health_check: bool) -> Arc<super::Member> {
    let terms = Terms { health_check, ..Terms::default() };
    match register(shared, &Address::parse(url).expect("a URL"), terms) {
        Registered::New(member) => member,
        other => panic!("{other:?}"),
    }
}

async fn wait_until(mut done: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("gave up waiting");
}

// sgl-project/sglang#38524
#[tokio::test]
async fn a_successor_that_does_not_come_is_waited_for_no_longer_than_so() {
    const SUCCESSION: Duration = Duration::from_millis(300);
    let shared = shared(|rounds| rounds.succession = SUCCESSION);
    let old = add(&shared, "http://127.0.0.1:1", false);
    wait_until(|| old.stage() == Stage::Ready).await;
    // Nobody is there.
    add(&shared, "http://127.0.0.1:2", true);
    let begun = std::time::Instant::now();
    assert_eq!(drain(&shared, &old, Duration::from_secs(3600)), Leave::Later(SUCCESSION));
    assert_eq!(old.stage(), Stage::Staying);
    assert_eq!(drain(&shared, &old, Duration::ZERO), Leave::Already);
    wait_until(|| shared.members().len() == 1).await;
    assert!(begun.elapsed() >= SUCCESSION);
}

#[tokio::test]
async fn those_that_are_sent_away_together_all_stay_until_another_one_is_there() {
    let shared = shared(|_| {});
    let old: Vec<_> =
        (1..4).map(|number| add(&shared, &format!("http://127.0.0.{number}:1"), false)).collect();
    wait_until(|| old.iter().all(|member| member.stage() == Stage::Ready)).await;
    add(&shared, "http://127.0.0.1:2", true);
    let told = drain_all(&shared, old.clone(), Duration::from_secs(3600));
    assert_eq!(told.len(), 3);
    assert!(old.iter().all(|member| member.stage() == Stage::Staying));
    assert_eq!(drain_all(&shared, old, Duration::from_secs(3600)).len(), 0);
    add(&shared, "http://127.0.0.1:3", false);
    wait_until(|| shared.members().len() == 2).await;
}

#[tokio::test]
async fn an_engine_that_was_taken_out_while_it_was_asked_is_laid_out_no_more() {
    let shared = shared(|_| {});
    let member = add(&shared, "http://127.0.0.1:1", false);
    let now_ns = shared.clock.now_ns();
    assert!(shared.books.lock().remove(now_ns, &member));
    let ranks = Layout::Ranks { first: 0, count: 4 };
    assert_eq!(lay_out(&shared, &member, ranks), Ok(()));
    assert_eq!((member.layout(), shared.standings().len()), (Layout::Whole, 0));
}
