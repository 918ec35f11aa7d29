//! The file and the environment beside the command line.

use std::ffi::OsString;
use std::io::Write as _;

use router_core::{OptionKind, OptionValue, POLICIES, PolicyConfig, Role};

use super::super::args::{Parsed, parse};
use super::super::check::report;
use super::super::file_workers::KEYS;
use super::super::policy_section;
use super::super::reload::{Reloaded, reload};
use super::super::stop::Stop;

/// A file that is there as long as this.
fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn arguments(config: Option<&tempfile::NamedTempFile>, args: &[&str]) -> Vec<OsString> {
    let config = config.map(|file| ["--config".into(), file.path().as_os_str().to_owned()]);
    let args = args.iter().map(OsString::from);
    std::iter::once("router".into()).chain(config.into_iter().flatten()).chain(args).collect()
}

/// What is read of a file's text, variables and arguments. A file of that name in messages is `FILE`.
fn read(text: Option<&str>, variables: &[(&str, &str)], args: &[&str]) -> Result<Parsed, String> {
    let file = text.map(file);
    let environment = |name: &str| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(*value))
    };
    let path = file.as_ref().map_or_else(String::new, |file| file.path().display().to_string());
    parse(arguments(file.as_ref(), args).into_iter(), &environment).map_err(|stop: Stop| {
        if path.is_empty() { stop.message() } else { stop.message().replace(&path, "FILE") }
    })
}

fn parsed(text: &str, args: &[&str]) -> Parsed {
    read(Some(text), &[], args).unwrap_or_else(|message| panic!("{text}: {message}"))
}

fn refusal(text: &str, args: &[&str]) -> String {
    read(Some(text), &[], args).expect_err(text)
}

fn option(parsed: &Parsed, key: &str) -> String {
    let mut options = parsed.config.policies.get(Role::Regular).options();
    options.find(|(spec, _)| spec.key == key).expect("an option").1.as_argument()
}

#[test]
fn a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default() {
    let name = "SGLANG_ROUTER_P2C_LOAD_METRIC";
    let file = "[policy]\nname = \"power_of_two\"\nload_metric = \"requests\"\n";
    let bare = "[policy]\nname = \"power_of_two\"\n";
    let flag = ["--load-metric", "tokens"];
    let env = [(name, "least_requests")];
    for (text, variables, args, expected) in [
        (bare, &[][..], &[][..], "tokens"),
        (file, &[], &[], "requests"),
        (file, &[(name, "")], &[], "requests"),
        (file, &env, &[], "least_requests"),
        (bare, &env, &[], "least_requests"),
        (file, &env, &flag, "tokens"),
        (file, &[], &flag, "tokens"),
    ] {
        let parsed = read(Some(text), variables, args).expect(text);
        assert_eq!(option(&parsed, "load_metric"), expected, "{text} {variables:?} {args:?}");
    }
}

#[test]
fn lists_and_switches_of_a_file_are_defaults_too() {
    let text = "disable_retries = false\nretry_statuses = [503]\ncb_try_least_bad = true\nrequest_id_headers = \"x-a\"\n\
                [limits]\nmax_concurrent_requests = -1\n";
    let parsed = parsed(text, &["--request-id-headers", "x-b", "x-c"]);
    let settings = &parsed.config.settings;
    assert_eq!(settings.retry.statuses.iter().collect::<Vec<_>>(), [503]);
    assert!(settings.retry.max_attempts > 1);
    assert!(parsed.config.breaker.as_ref().expect("a breaker").try_least_bad);
    assert_eq!(settings.request_id_headers, ["x-b", "x-c"]);
    let none = self::parsed("retry_statuses = []\n", &[]).config.settings.retry.statuses;
    assert_eq!(none.iter().count(), 0);
}

#[test]
fn numbers_have_every_form_of_toml() {
    let text =
        "port = 0x10\nmax_payload_size = 1_000\nretry_jitter_factor = 1e-1\nload_poll_interval_secs = 2\n";
    let config = parsed(text, &[]).config;
    assert_eq!((config.listen.port(), config.settings.max_payload_size), (16, 1000));
    assert_eq!((config.settings.retry.jitter, config.load_poll_interval.as_secs()), (0.1, 2));
}

#[test]
fn workers_are_tables() {
    let text = "[fleet]\nworker_urls = [\"http://a:1\"]\n[[workers]]\nurl = \"http://b:1/\"\napi_key = \"k\"\nmodel_id = \"m\"\n\
                priority = 7\ncost = 2.5\nworker_type = \"regular\"\nlabels = {zone = \"z\"}\ndisable_health_check = true\n\
                [[workers]]\nurl = \"http://c:1\"\nmodel_id = \"\"\n";
    let parsed = parsed(text, &[]);
    let workers = &parsed.config.workers;
    assert_eq!(
        workers.iter().map(|worker| worker.address.url.as_str()).collect::<Vec<_>>(),
        ["http://a:1", "http://b:1", "http://c:1"]
    );
    let (b, c) = (&workers[1], &workers[2]);
    assert_eq!((b.priority, b.cost, b.health_check, b.model.as_deref()), (7, 2.5, false, Some("m")));
    assert!(b.api_key.is_some() && b.labels["zone"] == "z");
    assert_eq!((c.priority, c.cost, c.health_check, c.model.as_deref()), (50, 1.0, true, None));
    let flags = self::parsed(text, &["--worker-urls", "http://d:1"]).config.workers;
    assert_eq!(flags.len(), 1, "the flag takes the place of all");
}

#[test]
fn the_defaults_of_a_workers_keys_are_those_that_are_told() {
    let plain = parsed("[[workers]]\nurl = \"http://a:1\"\n", &[]).config.workers;
    let mut stated = String::from("[[workers]]\nurl = \"http://a:1\"\n");
    for key in KEYS {
        let (name, default) = (key.name, key.default.trim_matches('`'));
        if format!("x = {default}").parse::<toml::Table>().is_ok() {
            stated.push_str(&format!("{name} = {default}\n"));
        }
    }
    assert!(stated.lines().count() == 5, "priority, cost, health check: {stated}");
    assert_eq!(parsed(&stated, &[]).config.workers, plain);
}

/// A file, and what is said of it behind its name.
const WRONG: &[(&str, &str)] = &[
    ("a =", "1: "),
    ("seed = 1\nseed = 2", "2: duplicate key"),
    ("seed = 1\nport_ = 2", "2: `port_` is no key (did you mean `port`?)"),
    ("[limits]\nqueue_sizes = 1", "2: `queue_sizes` is no key of [limits] (did you mean `queue_size`?)"),
    ("[limit]\nqueue_size = 1", "1: `limit` is no key (did you mean `limits`?)"),
    ("[limits]\n\nport = 1", "3: `port` belongs in the section [traffic]"),
    ("port = 1\n[traffic]\nport = 1", "3: `port` is set already, at FILE:1"),
    ("traffic = 1", "1: `traffic` is a section; write [traffic] above its keys"),
    (
        "[traffic]\nport = 70000",
        "2: invalid value '70000' for '--port <PORT>': not a whole number from 0 to 65535",
    ),
    ("port = \"x\"", "1: invalid value 'x' for '--port <PORT>': not a whole number from 0 to 65535"),
    ("port = 1.5", "1: invalid value '1.5' for '--port <PORT>': not a whole number from 0 to 65535"),
    ("port = \"1\"", "1: `port` takes one number, without quotes"),
    ("port = [1]", "1: `port` takes one number, without quotes"),
    ("port = 1979-05-27", "1: `port` takes one number, without quotes"),
    ("host = 1", "1: `host` takes one text, in quotes"),
    ("log_level = \"loud\"", "1: invalid value 'loud' for '--log-level <LEVEL>'"),
    ("disable_retries = \"true\"", "1: `disable_retries` takes true or false, without quotes"),
    ("disable_retries = 1", "1: `disable_retries` takes true or false, without quotes"),
    ("retry_on_reset = \"true\"", "1: `retry_on_reset` takes true or false, without quotes"),
    ("retry_statuses = [[503]]", "1: `retry_statuses` takes a list"),
    ("[retries]\nretry_statuses = [503, 200]", "2: --retry-statuses: `200` is not a status from 400 to 599"),
    ("\nretry_initial_backoff_ms = 40000", "2: --retry-max-backoff-ms: 30000 is less than"),
    ("extra_endpoints = [\"/generate\"]", "1: --extra-endpoints: `/generate` is served already"),
    ("tls_key_path = \"k\"", "1: --tls-key-path: needs --tls-cert-path beside it"),
    ("model_path = \"m\"", "1: `model_path` has no effect here: "),
    ("mini_lb = true", "1: --mini-lb: the SGLang gateway has this option"),
    ("config = \"other\"", "1: `config` is no key"),
    ("[traffic]\nprot = 1", "2: `prot` is no key of [traffic] (did you mean `port`?)"),
    ("[policy]\npolicy = \"random\"", "2: `policy` is called `name` in its section"),
    ("[fleet]\nworker_urls = [\"http://a:1,http://b:1\"]", "2: --worker-urls: there is a comma"),
    ("shutdown_pause_secs = 9\nshutdown_grace_period_secs = 5", "1: --shutdown-pause-secs: 9 is more than"),
    ("prometheus_port = 30000", "1: --prometheus-port: 30000 is that of --port too"),
    ("name = \"random\"", "1: `name` belongs in the section [policy]"),
    ("[policy]\nname = \"randm\"", "2: invalid value 'randm' for '--policy <POLICY>'"),
    (
        "[policy]\ncache_treshold = 1",
        "2: `cache_treshold` is no key of [policy] (did you mean `cache_threshold`?)",
    ),
    (
        "[policy]\ncache_threshold = 2",
        "2: invalid value '2' for '--cache-threshold <VALUE>': not a number from 0 to 1",
    ),
    (
        "[policy]\nname = \"random\"\ncache_threshold = 1",
        "3: --cache-threshold: no effect under --policy random (it is for cache_aware)",
    ),
    ("[policy]\nload_metric = \"tokens\"", "2: --load-metric: no effect under --policy cache_aware"),
    ("[workers]\nurl = \"http://a\"", "1: `workers` are tables; write [[workers]] above the keys of each"),
    ("[[workers]]\ncost = 1", "1: a worker needs a `url`"),
    ("[[workers]]\nurl = \"a\"", "2: worker URL `a`: no scheme"),
    (
        "[[workers]]\nurl = \"http://a\"\npriorty = 1",
        "3: `priorty` is no key of [[workers]] (did you mean `priority`?)",
    ),
    (
        "[[workers]]\nurl = \"http://a\"\npriority = -1",
        "3: `priority` is not a whole number from 0 to 4294967295",
    ),
    ("[[workers]]\nurl = \"http://a\"\ncost = inf", "3: `cost` is not a number of 0 or more"),
    (
        "[[workers]]\nurl = \"http://a\"\nrole = \"whole\"",
        "3: `role` takes \"regular\", \"prefill\" or \"decode\"",
    ),
    (
        "[[workers]]\nurl = \"http://a\"\nworker_type = \"prefill\"\nrole = \"decode\"",
        "4: `role` is not what the other key says",
    ),
    (
        "[[workers]]\nurl = \"http://a\"\nrole = \"prefill\"\nbootstrap_port = 0",
        "4: `bootstrap_port` is not a whole number from 1 to 65535",
    ),
    (
        "[[workers]]\nurl = \"http://a\"\nbootstrap_port = 8998\nrole = \"decode\"",
        "3: `bootstrap_port` is of prefill workers only",
    ),
    ("[[workers]]\nurl = \"http://a\"\nlabels = {a = 1}", "3: `a` takes one text, in quotes"),
    (
        "[[workers]]\nurl = \"http://a\"\n\n[[workers]]\nurl = \"http://A:80\"",
        "4: `http://A:80` is there already, at FILE:1",
    ),
];

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line() {
    for (text, said) in WRONG {
        let message = refusal(text, &[]);
        assert!(message.starts_with(&format!("FILE:{said}")), "{text:?}: {message}");
        assert!(!message.contains('\n'), "{text:?}: {message}");
    }
}

#[test]
fn a_wrong_value_is_wrong_although_a_flag_wins() {
    assert!(refusal("port = 70000", &["--port", "1"]).starts_with("FILE:1: "));
}

#[test]
fn what_is_wrong_on_the_command_line_is_not_blamed_on_the_file() {
    let message = refusal("retry_statuses = [503]", &["--retry-statuses", "200"]);
    assert!(message.starts_with("--retry-statuses: `200`"), "{message}");
    let message = refusal("port = 1", &["--seed", "-1"]);
    assert!(message.starts_with("invalid value '-1'"), "{message}");
}

#[test]
fn a_flag_may_choose_another_policy_than_the_file() {
    let parsed = parsed("[policy]\nname = \"cache_aware\"\ncache_threshold = 0.4\n", &["--policy", "random"]);
    assert_eq!(parsed.config.policies.get(Role::Regular).name(), "random");
    let warnings = parsed.warnings.join("\n");
    assert!(warnings.contains("--cache-threshold has no effect under --policy random"), "{warnings}");
}

#[test]
fn a_wrong_variable_is_named() {
    let variable = ("SGLANG_ROUTER_P2C_LOAD_METRIC", "tokenz");
    let message = read(None, &[variable], &["--policy", "random"]).expect_err("no metric");
    let expected = "SGLANG_ROUTER_P2C_LOAD_METRIC: invalid value 'tokenz' for '--load-metric <VALUE>': not one of tokens, \
                    requests, least_requests";
    assert_eq!(message, expected);
    let message = read(None, &[("CONTROL_PLANE_API_KEYS", "a:b:c:sk-secret")], &[]).expect_err("no role");
    assert!(
        message.starts_with("CONTROL_PLANE_API_KEYS: --control-plane-api-keys: key 1 has a role"),
        "{message}"
    );
    assert!(!message.contains("sk-secret"), "{message}");
}

#[test]
fn operators_keys_are_read() {
    let keys = [("CONTROL_PLANE_API_KEYS", "a:Ann:admin:k:1 b:Bob:user:k2")];
    let config = read(None, &keys, &[]).expect("keys").config;
    assert_eq!(format!("{:?}", config.settings.admin_keys), "AdminKeys([a:Ann:admin:…, b:Bob:user:…])");
}

const MANY: &str = "seed = 7\n[policy]\nname = \"power_of_two\"\n[security]\napi_key = \"sk-secret\"\n[[workers]]\n\
                    url = \"http://a:1\"\napi_key = \"sk-worker\"\nlabels = {\"a b\" = \"c\"}\n";

#[test]
fn check_tells_each_value_with_its_source() {
    let variables =
        [("SGLANG_ROUTER_P2C_LOAD_METRIC", "requests"), ("CONTROL_PLANE_API_KEYS", "a:b:admin:sk-admin")];
    let parsed = read(Some(MANY), &variables, &["--port", "0", "--load-poll-interval-secs", ".5"]);
    let parsed = parsed.expect("all is well");
    let text = report(&parsed);
    let file = parsed.config.config_file.as_ref().expect("a file").display().to_string();
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ").replace(&file, "FILE");
    let lines: Vec<String> = text.lines().map(squeezed).collect();
    for expected in [
        "host = \"0.0.0.0\" # default",
        "port = 0 # --port",
        "load_poll_interval_secs = 0.5 # --load-poll-interval-secs",
        "seed = 7 # FILE:1",
        "name = \"power_of_two\" # FILE:3",
        "load_metric = \"requests\" # SGLANG_ROUTER_P2C_LOAD_METRIC",
        "# api_key = (set) # FILE:5",
        "# control_plane_api_keys = (set) # CONTROL_PLANE_API_KEYS",
        "# worker_api_key is not set",
        "retry_statuses = [408, 429, 500, 502, 503, 504] # default",
        "disable_retries = false # default",
        "[[workers]] # FILE:6",
        "url = \"http://a:1\"",
        "labels = { \"a b\" = \"c\" }",
    ] {
        assert!(lines.iter().any(|line| line == expected), "no {expected:?} in {text}");
    }
    assert!(!text.contains("sk-"), "{text}");
    assert!(!text.contains("cache_threshold"), "an option of another policy: {text}");
}

#[test]
fn what_check_prints_is_a_file_that_means_the_same() {
    let args = ["--retry-statuses", "503", "--retry-backoff-multiplier", "1e2"];
    let first = parsed(MANY, &args);
    let again = parsed(&report(&first), &[]).config;
    let first = first.config;
    assert_eq!(first.settings.retry, again.settings.retry);
    for role in Role::ALL {
        assert!(first.policies.get(role).options().eq(again.policies.get(role).options()));
    }
    assert_eq!((first.seed, first.listen), (again.seed, again.listen));
    assert_eq!(first.workers[0].labels, again.workers[0].labels);
    assert_eq!(again.settings.api_key, None, "what is not shown is not there");
}

#[test]
fn a_written_policy_is_read_as_the_same() {
    for row in POLICIES {
        let mut configs = vec![PolicyConfig::of(row)];
        for spec in row.options {
            let values: Vec<OptionValue> = match spec.kind {
                OptionKind::Integer { min, max } => [min, min + 1, max].map(Into::into).into(),
                OptionKind::Float { min, max } => {
                    [min, min + 1.0 / 3.0, 1e300_f64.min(max)].map(Into::into).into()
                }
                OptionKind::Choice(words) => words.iter().map(|word| (*word).into()).collect(),
            };
            configs.extend(values.into_iter().map(|value| {
                let mut config = PolicyConfig::of(row);
                config.set(spec.key, value).expect("allowed");
                config
            }));
        }
        for config in configs {
            let text = policy_section(&config);
            let parsed = parsed(&text, &[]);
            let read = &parsed.config.policies.get(Role::Regular);
            assert_eq!(read.name(), row.name, "{text}");
            assert!(read.options().eq(config.options()), "{text}");
            // What the router's own defaults are later must not matter.
            assert_eq!(read.overrides().count(), row.options.len(), "{text}");
            assert_eq!(text.matches("# the default").count() + config.overrides().count(), row.options.len());
        }
    }
}

#[test]
fn nothing_shows_a_key() {
    let parsed =
        read(Some(MANY), &[("CONTROL_PLANE_API_KEYS", "a:b:admin:sk-admin")], &["--worker-api-key", "sk-w"]);
    assert!(!format!("{parsed:?}").contains("sk-"));
    for text in [
        "api_key = sk-secret",
        "[security]\napi_key = \"sk-secret",
        "api_key = [\"sk-secret\"]",
        "api_key = \"sk-secret \"",
    ] {
        let message = refusal(text, &[]);
        assert!(!message.contains("sk-"), "{message}");
    }
    for args in [
        &["--api-key", "sk-é"][..],
        &["--control-plane-api-keys", "a:b:admin"],
        &["--control-plane-api-keys", "sk-x:y"],
    ] {
        let message = read(None, &[], args).expect_err("no key");
        assert!(!message.contains("sk-"), "{message}");
    }
}

#[test]
fn a_file_is_read_again() {
    let file = file("seed = 1\n[[workers]]\nurl = \"http://a:1\"\n");
    let arguments = arguments(Some(&file), &["--policy", "random"]);
    let before = reload(&arguments).expect("a configuration").config;
    assert_eq!(before.source.arguments, arguments);
    std::fs::write(
        file.path(),
        "seed = 2\n[policy]\ncache_threshold = 7\n[[workers]]\nurl = \"http://b:1\"\n",
    )
    .expect("written");
    let error = reload(&arguments).expect_err("a value that is not allowed");
    assert!(error.contains(":3: invalid value '7' for '--cache-threshold <VALUE>'"), "{error}");
    std::fs::write(file.path(), "seed = 2\nport = 1\n[[workers]]\nurl = \"http://b:1\"\n").expect("written");
    let Reloaded { config, warnings } = reload(&arguments).expect("a configuration");
    assert_eq!(config.workers[0].address.url, "http://b:1");
    assert_eq!((config.policies.get(Role::Regular).name(), warnings.len()), ("random", 0));
    assert_eq!(before.source.changes(&config.source), ["--port", "--seed"]);
}
