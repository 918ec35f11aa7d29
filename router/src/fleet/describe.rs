//! What a worker says of itself: its model, its sizes, and which start of it this is. Until it has named a model it is
//! taken to serve every one.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::layout::{self, Unsettled};
use super::{Facts, Member, life, unlike};
use crate::shared::Shared;
use crate::upstream::{Probe, probe};

const MODELS: &str = "/v1/models";
/// Each with the name that older engines have.
const SERVER_INFO: [&str; 2] = ["/server_info", "/get_server_info"];
const MODEL_INFO: [&str; 2] = ["/model_info", "/get_model_info"];

/// What is another one after each start, by any of these names; SGLang's is `startup_time`.
const INSTANCE: &[&str] = &["instance_id", "startup_time", "start_time", "started_at"];

/// Longest text that a worker may say of itself: it becomes a label of metrics, and a part of lines.
const MAX_NAME_BYTES: usize = 1024;

/// For each thing that is asked.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Before the first answer, and while requests fail, the questions are repeated sooner; but not sooner than so.
const REPETITION: Duration = Duration::from_secs(1);

/// The form of OpenAI's list, as far as it is looked at.
#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    /// Of a LoRA adapter: the model that it changes.
    #[serde(default)]
    parent: Option<String>,
}

/// What came of asking once.
#[derive(Debug)]
#[must_use]
pub(super) struct Said {
    /// It told what it serves, or that it does not tell.
    models: bool,
    /// It described itself.
    server: bool,
    /// Whether it is known how it is addressed.
    pub(super) ranks: Result<(), Unsettled>,
}

impl Said {
    /// Whether it need not be asked again soon.
    pub(super) fn is_answer(&self) -> bool {
        self.models
    }
}

/// Asks one worker for ever, at once at first unless it `is_known`: it may come back as another one behind the same
/// address. What it does not say stays as it was known.
pub(super) async fn watch(shared: &Arc<Shared>, member: &Arc<Member>, is_known: bool) {
    let interval = shared.rounds.info_interval;
    let repetition = REPETITION.min(interval);
    let mut pause = if is_known { interval } else { Duration::ZERO };
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // What lost a request may have been the end of its process.
            _ = member.lost.next() => {}
        }
        let is_answered = once(shared, member).await.is_answer();
        tokio::time::sleep(repetition).await;
        pause = if is_answered { interval - repetition } else { Duration::ZERO };
    }
}

/// Asks a worker that was away. Unless it says that it is still the same one, its cache is not believed in.
pub(super) async fn anew(shared: &Arc<Shared>, member: &Arc<Member>) {
    let before = member.facts().instance;
    let said = once(shared, member).await;
    if !said.server || before.is_none() || member.facts().instance != before {
        shared.forget_cache(member);
    }
}

/// Asks once.
pub(super) async fn once(shared: &Arc<Shared>, member: &Arc<Member>) -> Said {
    let (models, server, model) = tokio::join!(
        answer(shared, member, &[MODELS]),
        answer(shared, member, &SERVER_INFO),
        answer(shared, member, &MODEL_INFO)
    );
    let answered = models.is_ok();
    let reached = answered || server.is_ok() || model.is_ok();
    let answers = [models, server, model].map(Result::unwrap_or_default);
    let barred = answers.iter().find_map(|answer| answer.barred.clone());
    let [models, server, model] = answers.map(|answer| answer.body);
    let object =
        |body: Option<Bytes>| body.and_then(|body| serde_json::from_slice::<Map<String, Value>>(&body).ok());
    let server = object(server);
    let has_server = server.is_some();
    let found =
        facts(models.as_deref(), server.as_ref().unwrap_or(&Map::new()), &object(model).unwrap_or_default());
    let before = member.facts();
    let barred = if reached { barred } else { before.barred.clone() };
    let latest = Facts { barred, ..found.after(before.clone(), has_server) };
    let is_news = unlike::is_news(&before, &latest);
    learn(shared, member, latest);
    let ranks = layout::settle(shared, member).await;
    if is_news && member.is_half() {
        unlike::tell(shared);
    }
    Said { models: answered, server: has_server, ranks }
}

impl Facts {
    /// With what was known before, where nothing is said: a question that was lost, or is not answered just now, is no
    /// news of a worker.
    fn after(self, before: Self, has_server: bool) -> Self {
        let model = self.model.clone().or_else(|| before.model.clone());
        let is_too_long = self.is_too_long || before.is_too_long;
        let latest = if has_server { self } else { before };
        Self { model, is_too_long, ..latest }
    }
}

/// Takes what a worker says of itself for true.
fn learn(shared: &Arc<Shared>, member: &Member, facts: Facts) {
    let before = member.facts();
    if before.instance.is_some() && before.instance != facts.instance {
        tracing::warn!(worker = %member.address.url, "was started anew; its cache is taken for empty");
        shared.forget_cache(member);
    }
    if facts.is_too_long && !before.is_too_long {
        let problem = "something that it says of itself is too long, and not taken over";
        tracing::warn!(worker = %member.address.url, limit_bytes = MAX_NAME_BYTES, "{problem}");
    }
    // Operators' word goes before it: whether they have given one is looked at under the lock under which they give it.
    let mut books = shared.books.lock();
    member.set_facts(facts.clone());
    // The role first: otherwise there would be workers of another role for its model, if only for a moment.
    let role = member.learned_role();
    let role = role.filter(|role| books.set_role(shared.clock.now_ns(), member, *role));
    let model = facts.model.clone().filter(|_| member.is_model_open());
    let is_news = model.is_some() && books.set_model(member, model.as_deref());
    drop(books);
    if let Some(role) = role {
        // What was noted of it was noted among the workers of another role.
        shared.belief.forget(&member.ids());
        tracing::info!(worker = %member.address.url, role = role.label(), "says what it does");
        shared.turns.notify_waiters();
    }
    if let Some(problem) = member.contradiction() {
        life::expel(shared, member, problem);
    }
    if let Some(model) = model.filter(|_| is_news) {
        tracing::info!(worker = %member.address.url, model, "serves");
        shared.turns.notify_waiters();
    }
    if let (None, Some(barred)) = (&before.barred, &facts.barred) {
        tracing::warn!(worker = %member.address.url, "{barred}");
    }
}

/// What came of a question.
#[derive(Debug, Default)]
struct Reply {
    body: Option<Bytes>,
    barred: Option<String>,
}

/// The body of the first of these paths that there is.
///
/// # Errors
/// Nobody answered in time.
async fn answer(shared: &Shared, member: &Member, paths: &[&'static str]) -> Result<Reply, ()> {
    let end = Instant::now() + TIMEOUT;
    let mut reply = Reply::default();
    for path in paths {
        let timeout = end.saturating_duration_since(Instant::now());
        let question = Probe { path: Uri::from_static(path), member, timeout };
        match probe(&shared.background.pool, question).await {
            Ok((status, body)) if status.is_success() => return Ok(Reply { body: Some(body), ..reply }),
            Ok((status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), _)) => {
                reply.barred.get_or_insert_with(|| barred(status, path));
            }
            Ok(_) => {}
            Err(_) => return Err(()),
        }
    }
    Ok(reply)
}

/// How a worker is told of that wants another key.
fn barred(status: StatusCode, path: &str) -> String {
    format!(
        "it refuses the router's own questions ({} on {path}), so its key is missing or wrong: see --worker-api-key, or \
         api_key of the worker",
        status.as_u16()
    )
}

/// What the three answers say.
fn facts(models: Option<&[u8]>, server: &Map<String, Value>, model: &Map<String, Value>) -> Facts {
    let is_too_long = Cell::new(false);
    let short = |text: String| {
        let is_short = text.len() <= MAX_NAME_BYTES;
        is_too_long.set(is_too_long.get() || !is_short);
        is_short.then_some(text)
    };
    let text = |from: &Map<String, Value>, key: &str| {
        let value = from.get(key)?;
        let text =
            value.as_str().map(str::to_owned).or_else(|| value.as_number().map(ToString::to_string))?;
        short(text)
    };
    let number = |key: &str| server.get(key).and_then(Value::as_u64);
    let one_of = |keys: &[&str]| keys.iter().find_map(|key| text(server, key));
    Facts {
        model: models
            .and_then(served)
            .and_then(short)
            .or_else(|| one_of(&["served_model_name", "model_path"]))
            .or_else(|| text(model, "model_path")),
        disaggregation_mode: one_of(&["disaggregation_mode"]),
        bootstrap_port: number("disaggregation_bootstrap_port")
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0),
        dp_size: number("dp_size").or_else(|| number("data_parallel_size")),
        nodes: number("nnodes"),
        load_balance_method: one_of(&["load_balance_method"]),
        tp_size: number("tp_size"),
        page_size: number("page_size"),
        token_capacity: number("max_total_num_tokens").or_else(|| number("max_total_tokens")),
        version: one_of(&["version"]),
        instance: one_of(INSTANCE),
        keeps_prefixes: keeps_prefixes(server),
        is_too_long: is_too_long.get(),
        barred: None,
    }
}

/// Whether an engine has a prefix cache, by SGLang's flags: decode engines have one only where they are told to.
fn keeps_prefixes(server: &Map<String, Value>) -> Option<bool> {
    let flag = |key: &str| server.get(key).and_then(Value::as_bool);
    let is_decode = server.get("disaggregation_mode").and_then(Value::as_str) == Some("decode");
    match (flag("disable_radix_cache"), flag("disaggregation_decode_enable_radix_cache")) {
        (Some(true), _) => Some(false),
        (_, Some(is_on)) if is_decode => Some(is_on),
        (is_off, _) => is_off.map(|is_off| !is_off),
    }
}

/// The model that a list begins with; adapters come behind it.
fn served(body: &[u8]) -> Option<String> {
    let models: Models = serde_json::from_slice(body).ok()?;
    models.data.into_iter().find(|model| model.parent.is_none()).map(|model| model.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).expect("an object")
    }

    #[test]
    fn the_model_is_the_first_that_is_no_adapter() {
        let list =
            br#"{"object":"list","data":[{"id":"a1","parent":"m"},{"id":"m","root":"m","parent":null}]}"#;
        assert_eq!(served(list).as_deref(), Some("m"));
        assert_eq!(served(br#"{"data":[]}"#), None);
        assert_eq!(served(b"not found"), None);
    }

    #[test]
    fn what_is_too_long_is_not_taken_over_and_that_is_told_once() {
        let named = |length: usize| {
            let list = format!(r#"{{"data":[{{"id":"{}"}}]}}"#, "m".repeat(length));
            let found = facts(Some(list.as_bytes()), &Map::new(), &Map::new());
            (found.model.as_ref().map(String::len), found)
        };
        let (long, most) = (named(MAX_NAME_BYTES + 1), named(MAX_NAME_BYTES));
        assert_eq!((long.0, long.1.is_too_long), (None, true));
        assert_eq!((most.0, most.1.is_too_long), (Some(MAX_NAME_BYTES), false));
        for has_server in [true, false] {
            assert!(most.1.clone().after(long.1.clone(), has_server).is_too_long, "it has been told");
            assert!(long.1.clone().after(most.1.clone(), has_server).is_too_long, "it is to be told");
        }
    }

    #[test]
    fn a_prefix_cache_is_there_unless_an_engine_says_otherwise() {
        for (said, keeps) in [
            ("{}", None),
            (r#"{"disable_radix_cache":false}"#, Some(true)),
            (r#"{"disable_radix_cache":true}"#, Some(false)),
            (
                r#"{"disaggregation_mode":"prefill","disable_radix_cache":false,"disaggregation_decode_enable_radix_cache":false}"#,
                Some(true),
            ),
            (
                r#"{"disaggregation_mode":"decode","disable_radix_cache":false,"disaggregation_decode_enable_radix_cache":false}"#,
                Some(false),
            ),
            (
                r#"{"disaggregation_mode":"decode","disable_radix_cache":false,"disaggregation_decode_enable_radix_cache":true}"#,
                Some(true),
            ),
            (
                r#"{"disaggregation_mode":"decode","disable_radix_cache":true,"disaggregation_decode_enable_radix_cache":true}"#,
                Some(false),
            ),
        ] {
            assert_eq!(facts(None, &object(said), &Map::new()).keeps_prefixes, keeps, "{said}");
        }
    }

    #[test]
    fn what_is_not_said_is_not_made_up() {
        assert_eq!(facts(None, &Map::new(), &Map::new()), Facts::default());
        let server = object(
            r#"{"served_model_name":"m","dp_size":2,"page_size":"x","max_total_num_tokens":9,"startup_time":1.5,
                "disaggregation_mode":"null","version":"0.5"}"#,
        );
        let found = facts(None, &server, &object(r#"{"model_path":"/m"}"#));
        let expected = Facts {
            model: Some("m".into()),
            disaggregation_mode: Some("null".into()),
            dp_size: Some(2),
            token_capacity: Some(9),
            version: Some("0.5".into()),
            instance: Some("1.5".into()),
            ..Facts::default()
        };
        assert_eq!(found, expected);
        assert_eq!(facts(None, &Map::new(), &object(r#"{"model_path":"/m"}"#)).model.as_deref(), Some("/m"));
    }
}
