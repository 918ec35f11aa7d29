//! `/v1/loads` and the older `/get_loads`: how busy each worker is, by its own word.

use http::Uri;
use protocol::loads::{LegacyLoad, RankSummary};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::ask::{self, Question, Told};
use super::engine_metrics::expose;
use super::{Answering, Asked, reply};
use crate::error::{Answer, Refusal};
use crate::fleet::{Member, Rank};
use crate::metrics::Format;
use crate::shared::Shared;

/// Where older engines tell their load.
const OLDER: &str = "/get_load";

/// What a worker without a readable report gets in the gateway's list.
const UNKNOWN: i64 = -1;

#[derive(Debug, Serialize)]
struct Loads {
    workers: Vec<WorkerLoad>,
}

#[derive(Debug, Serialize)]
struct WorkerLoad {
    worker: String,
    /// Tokens, or [`UNKNOWN`].
    load: i64,
    /// How it is, of one that was not asked because of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// `GET /get_loads`, in the gateway's shape.
pub(crate) fn token_loads(asked: Asked) -> Answering {
    let question =
        Question::get(&asked, Uri::from_static("/v1/loads?include=core")).or(Uri::from_static(OLDER));
    Box::pin(async move {
        Asked::wait(&asked.turn, async {
            let told = ask::fleet(&asked.context, question).await;
            reply::json(&Loads { workers: told.iter().flat_map(by_rank).collect() })
        })
        .await
    })
}

/// The load of each of an engine's workers.
fn by_rank(told: &Told) -> Vec<WorkerLoad> {
    let reported = told.answer.as_ref().ok().and_then(|said| RankSummary::parse(&said.body).ok());
    let row = |rank: &Rank| {
        let load = reported.as_ref().and_then(|ranks| told.member.load_of(rank, ranks));
        let load = load.and_then(|load| i64::try_from(load.total_tokens).ok()).unwrap_or(UNKNOWN);
        WorkerLoad { worker: rank.url.to_string(), load, state: told.state() }
    };
    told.member.ranks().iter().map(|rank| row(rank)).collect()
}

/// `GET /v1/loads`, in SGLang's shape with every rank of every worker; the query goes on to the workers.
pub(crate) fn loads(asked: Asked) -> Answering {
    let query = asked.request.uri().query();
    // A query that came in a target can stand in one.
    let target = query.and_then(|query| format!("/v1/loads?{query}").parse().ok());
    let question =
        Question::get(&asked, target.unwrap_or(Uri::from_static("/v1/loads"))).or(Uri::from_static(OLDER));
    let format = Format::wanted(asked.request.headers());
    let is_text = query.is_some_and(|query| query.split('&').any(|part| part == "format=prometheus"));
    Box::pin(async move {
        let shared = &asked.context.shared;
        if shared.members().is_empty() {
            return Refusal::NoWorkers { retry_after_secs: shared.settings.recovery_secs }.answer();
        }
        Asked::wait(&asked.turn, async {
            let told = ask::fleet(&asked.context, question).await;
            if is_text { expose(shared, &told, format) } else { tell(shared, &told) }
        })
        .await
    })
}

fn tell(shared: &Shared, told: &[Told]) -> Answer {
    let mut report = Report::default();
    for one in told {
        let url = &one.member.address.url;
        let problem = match &one.answer {
            Ok(said) => report.add(&one.member, &said.body, said.is_older).err().map(str::to_owned),
            Err(problem) => Some(problem.to_string()),
        };
        if let Some(error) = problem {
            let mut failed = json!({"worker": url, "error": error});
            if let Some(state) = one.state() {
                failed["state"] = state.into();
            }
            report.failed.push(failed);
        }
    }
    if report.failed.len() == told.len() {
        return ask::nobody(shared, told).answer_with("failed", report.failed.into());
    }
    reply::json(&report.render())
}

/// The ranks of all workers.
#[derive(Debug, Default)]
struct Report {
    /// What the first worker says beside its ranks, such as its version.
    facts: Option<Map<String, Value>>,
    ranks: Vec<Map<String, Value>>,
    failed: Vec<Value>,
}

impl Report {
    /// Adds an engine's ranks as it gives them, each with the URL of its worker.
    fn add(&mut self, member: &Member, body: &[u8], is_older: bool) -> Result<(), &'static str> {
        const UNREADABLE: &str = "the load report cannot be read";
        let (facts, ranks) = if is_older {
            let ranks: Vec<LegacyLoad> = serde_json::from_slice(body).map_err(|_| UNREADABLE)?;
            (Map::new(), ranks.iter().map(current).collect())
        } else {
            let mut facts: Map<String, Value> = serde_json::from_slice(body).map_err(|_| UNREADABLE)?;
            let Some(Value::Array(ranks)) = facts.remove("loads") else { return Err(UNREADABLE) };
            (facts, ranks)
        };
        let ranks = ranks.into_iter().map(|rank| match rank {
            Value::Object(rank) => Ok(rank),
            _ => Err(UNREADABLE),
        });
        let mut ranks = ranks.collect::<Result<Vec<_>, _>>()?;
        for rank in &mut ranks {
            let number = rank.get("dp_rank").and_then(Value::as_u64);
            rank.insert("worker".to_owned(), member.url_of_rank(number).into());
        }
        self.ranks.extend(ranks);
        self.facts.get_or_insert(facts);
        Ok(())
    }

    fn render(self) -> Map<String, Value> {
        let mut whole = self.facts.unwrap_or_default();
        whole.insert("dp_rank_count".to_owned(), self.ranks.len().into());
        whole.insert("aggregate".to_owned(), aggregate(&self.ranks));
        let ranks = self.ranks.into_iter().map(Value::Object).collect();
        whole.insert("loads".to_owned(), Value::Array(ranks));
        if !self.failed.is_empty() {
            whole.insert("failed".to_owned(), self.failed.into());
        }
        whole
    }
}

/// A rank of an older engine under the current names too.
fn current(load: &LegacyLoad) -> Value {
    json!({
        "dp_rank": load.dp_rank,
        "num_reqs": load.num_reqs,
        "num_waiting_reqs": load.num_waiting_reqs,
        "num_tokens": load.num_tokens,
        "num_running_reqs": load.num_reqs.saturating_sub(load.num_waiting_reqs),
        "num_total_reqs": load.num_reqs,
        "num_total_tokens": load.num_tokens,
    })
}

/// Sums and means under the names that SGLang 0.5 had for them. What a rank does not tell counts for nothing.
fn aggregate(ranks: &[Map<String, Value>]) -> Value {
    let values = |name: &'static str| ranks.iter().filter_map(move |rank| rank.get(name));
    let count = |name| values(name).filter_map(Value::as_u64).fold(0, u64::saturating_add);
    let mean = |name| {
        let told: Vec<f64> = values(name).filter_map(Value::as_f64).collect();
        if told.is_empty() { 0.0 } else { told.iter().sum::<f64>() / told.len() as f64 }
    };
    let (running, waiting) = (count("num_running_reqs"), count("num_waiting_reqs"));
    json!({
        "total_running_reqs": running,
        "total_waiting_reqs": waiting,
        "total_reqs": running.saturating_add(waiting),
        "total_used_tokens": count("num_used_tokens"),
        "total_tokens": count("num_total_tokens"),
        "avg_token_usage": mean("token_usage"),
        "avg_throughput": mean("gen_throughput"),
        "avg_utilization": mean("utilization"),
    })
}

#[cfg(test)]
mod tests {
    use router_core::ids::WorkerId;

    use super::*;
    use crate::fleet::Terms;
    use crate::upstream::Address;

    fn member(url: &str) -> Member {
        Member::new(WorkerId(0), Address::parse(url).expect(url), Terms::default(), 1)
    }

    #[test]
    fn ranks_of_both_forms_stand_in_one_list() {
        let mut report = Report::default();
        let current = br#"{"version":"0.5","loads":[
            {"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"num_used_tokens":80,"num_total_tokens":90,"token_usage":0.5,"gen_throughput":10.0},
            {"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0,"num_used_tokens":10,"num_total_tokens":10,"token_usage":0.1,"gen_throughput":20.0}],
            "aggregate":{"total_reqs":99},"dp_rank_count":2}"#;
        let older = br#"[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":700}]"#;
        assert_eq!(report.add(&member("http://a"), current, false), Ok(()));
        assert_eq!(report.add(&member("http://b"), older, true), Ok(()));
        let whole = Value::Object(report.render());
        assert_eq!((&whole["version"], &whole["dp_rank_count"]), (&json!("0.5"), &json!(3)));
        let of = |name: &str| -> Vec<&Value> {
            whole["loads"].as_array().expect("a list").iter().map(|rank| &rank[name]).collect()
        };
        assert_eq!(of("worker"), ["http://a", "http://a", "http://b"]);
        assert_eq!(of("dp_rank"), [0, 1, 0]);
        assert_eq!(of("num_running_reqs"), [3, 1, 3]);
        assert_eq!(of("num_total_tokens"), [90, 10, 700]);
        assert_eq!(whole["loads"][2]["num_tokens"], 700, "as it was given");
        let expected = json!({
            "total_running_reqs": 7, "total_waiting_reqs": 3, "total_reqs": 10, "total_used_tokens": 90,
            "total_tokens": 800, "avg_token_usage": 0.3, "avg_throughput": 15.0, "avg_utilization": 0.0,
        });
        assert_eq!(whole["aggregate"], expected);
    }

    #[test]
    fn what_is_no_report_adds_nothing() {
        let mut report = Report::default();
        for (body, is_older) in
            [(&b"{}"[..], false), (b"[]", false), (b"{\"loads\":[1]}", false), (b"{}", true)]
        {
            assert!(report.add(&member("http://w"), body, is_older).is_err());
        }
        assert!(report.ranks.is_empty() && report.facts.is_none());
    }
}
