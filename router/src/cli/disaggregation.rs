//! Workers that do one half of a request each, and when a request is given to two of them.

use clap::{ArgAction, Args};
use router_core::{PairPreference, Role};

use super::readers::whole;
use super::stop::Stop;
use super::workers::{address, flag_of, plain};
use crate::config::{BootstrapPort, StaticWorker};
use crate::upstream::without_userinfo;

const SWITCH: &str = "--pd-disaggregation";

#[derive(Debug, Args)]
#[command(next_help_heading = "Prefill and decode")]
pub(super) struct PairArgs {
    /// Give each request to a prefill and a decode worker
    #[arg(long)]
    pd_disaggregation: bool,
    /// URL of a prefill worker, and behind it the port of its bootstrap server, or `none` to name none to anybody; without it
    /// the worker is asked. A repeated flag adds [default: none]
    #[arg(long, value_name = "URL [PORT]", num_args = 1.., action = ArgAction::Append)]
    prefill: Vec<String>,
    /// URL of a decode worker; a repeated flag adds [default: none]
    #[arg(long, value_name = "URL", num_args = 1.., action = ArgAction::Append)]
    decode: Vec<String>,
    /// Decode streams at a time that come from one prefill worker (with --dp-aware, from each of its ranks), each until its end; 0: any number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u32::MAX))]
    decode_dispatch_limit: u32,
    /// Where regular workers serve a model too, give its requests to pairs, unless x-prefer-pd says otherwise
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    prefer_pd: bool,
    /// Where regular workers serve a model too, they get requests with fewer prompt tokens to compute than this; 0: none
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u64::MAX))]
    pd_least_uncached_tokens: u64,
}

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) workers: Vec<StaticWorker>,
    pub(super) rule: Rule,
    pub(super) preference: PairPreference,
    pub(super) decode_dispatch_limit: Option<u32>,
}

/// Who has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Nobody in particular.
    Free,
    /// Prefill and decode workers.
    Both,
}

impl PairArgs {
    /// # Errors
    /// What is no URL of a worker or no port, or workers without the switch.
    pub(super) fn resolve(self) -> Result<Pairs, Stop> {
        let mut workers = prefill(&self.prefill)?;
        workers.extend(decode(&self.decode)?);
        if let Some(worker) = workers.first().filter(|_| !self.pd_disaggregation) {
            let remedy = format!("needs {SWITCH} beside it; workers that do both go to --worker-urls");
            return Err(Stop::wrong(flag_of(worker.role), remedy));
        }
        let limit = self.decode_dispatch_limit;
        Ok(Pairs {
            workers,
            rule: if self.pd_disaggregation { Rule::Both } else { Rule::Free },
            preference: PairPreference {
                prefer: self.prefer_pd,
                least_uncached_tokens: self.pd_least_uncached_tokens,
            },
            decode_dispatch_limit: (limit > 0).then_some(limit),
        })
    }
}

impl Rule {
    /// Whether the workers that were named are enough to begin with.
    ///
    /// # Errors
    /// A role that has to be there has nobody.
    pub(super) fn check(self, workers: &[StaticWorker], warnings: &mut Vec<String>) -> Result<(), Stop> {
        let has = |role| workers.iter().any(|worker| worker.role == Some(role));
        let missing = [Role::Prefill, Role::Decode].into_iter().filter(|role| !has(*role));
        let missing: Vec<_> = missing.collect();
        match (self, &missing[..]) {
            (_, []) | (Self::Free, [_, _]) => Ok(()),
            (Self::Both, _) => {
                let flags = missing.iter().map(|role| flag_of(Some(*role))).collect::<Vec<_>>().join(" and ");
                let problem = format!("needs prefill and decode workers; name some with {flags}");
                Err(Stop::wrong(SWITCH, problem))
            }
            (Self::Free, [missing, ..]) => {
                let role = missing.label();
                warnings.push(format!(
                    "no {role} workers are named: the others of a pair get no requests without"
                ));
                Ok(())
            }
        }
    }
}

/// What was given, word by word. An argument that was left empty by mistake is a word too, so that it is told of.
fn words(given: &[String]) -> impl Iterator<Item = &str> {
    given.iter().flat_map(|argument| {
        let is_empty = argument.trim().is_empty();
        is_empty.then_some("").into_iter().chain(argument.split_whitespace())
    })
}

/// Tells of flags about pairs that do nothing with the workers that are named.
pub(super) fn warn_unused(
    limit: Option<u32>,
    preference: PairPreference,
    workers: &[StaticWorker],
    warnings: &mut Vec<String>,
) {
    let has = |role| workers.iter().any(|worker| worker.role.unwrap_or(Role::Regular) == role);
    let missing = |roles: &[Role]| roles.iter().copied().find(|role| !has(*role));
    let halves = [Role::Prefill, Role::Decode];
    let all = [Role::Prefill, Role::Decode, Role::Regular];
    for (flag, is_given, roles, purpose) in [
        ("--decode-dispatch-limit", limit.is_some(), &halves[..], "bounds what pairs do"),
        (
            "--pd-least-uncached-tokens",
            preference.least_uncached_tokens > 0,
            &all,
            "chooses between pairs and regular workers",
        ),
        ("--prefer-pd false", !preference.prefer, &all, "chooses between pairs and regular workers"),
    ] {
        if let Some(role) = missing(roles).filter(|_| is_given) {
            let role = role.label();
            warnings.push(format!("{flag} {purpose}, and no {role} workers are named so far"));
        }
    }
}

/// URLs, each with a port behind it or without.
fn prefill(given: &[String]) -> Result<Vec<StaticWorker>, Stop> {
    let mut workers = Vec::<StaticWorker>::new();
    let mut takes_port = false;
    for word in words(given) {
        match workers.last_mut().filter(|_| takes_port && !word.contains("://")) {
            Some(worker) => {
                worker.bootstrap_port = port(word)?;
                takes_port = false;
            }
            None => {
                workers.push(worker(word, Role::Prefill)?);
                takes_port = true;
            }
        }
    }
    Ok(workers)
}

fn port(word: &str) -> Result<BootstrapPort, Stop> {
    if word.eq_ignore_ascii_case("none") {
        return Ok(BootstrapPort::Unnamed);
    }
    let digits = Some(word).filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    let port = digits.and_then(|digits| whole(1..=u16::MAX)(digits).ok());
    port.map(BootstrapPort::Given).ok_or_else(|| {
        let problem = format!(
            "`{}` is neither a URL, with http:// before it, nor a bootstrap port",
            without_userinfo(word)
        );
        Stop::wrong(
            flag_of(Some(Role::Prefill)),
            format!("{problem}: a whole number from 1 to 65535, or none"),
        )
    })
}

fn decode(given: &[String]) -> Result<Vec<StaticWorker>, Stop> {
    words(given).map(|url| worker(url, Role::Decode)).collect()
}

fn worker(url: &str, role: Role) -> Result<StaticWorker, Stop> {
    Ok(StaticWorker { role: Some(role), ..plain(address(url, Some(role))?) })
}
