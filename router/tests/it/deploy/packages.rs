//! The unit, the image and the manifest start this binary as it wants to be started.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{default_of, shipped, text, yaml};
use crate::common::process::run_to_end;
use crate::common::worker::dead_url;
use crate::common::{Router, Worker, wait_until};

const BINARY: &str = "/usr/local/bin/router";

/// Seconds by which what kills the router has to outlast its own deadline.
const MARGIN_SECS: u64 = 10;

// === the unit ===

/// Every value of a key of the unit, in order.
fn settings(key: &str) -> Vec<String> {
    let unit = text("deploy/systemd/router.service");
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).collect()
}

fn setting(key: &str) -> String {
    settings(key).pop().unwrap_or_else(|| panic!("the unit has no {key}"))
}

#[test]
fn the_unit_checks_starts_reloads_and_ends_the_router() {
    let arguments = setting("ExecStart").strip_prefix(BINARY).expect("the binary").to_owned();
    let check = format!("{BINARY} check{arguments}");
    // A start checks itself; only its exit code, and not that of a command before it, is not tried again.
    assert_eq!(settings("ExecStartPre"), [] as [String; 0]);
    assert_eq!(settings("ExecReload"), [check, "/bin/kill -HUP $MAINPID".to_owned()]);
    assert_eq!(setting("KillSignal"), "SIGTERM");
    let patience: u64 = setting("TimeoutStopSec").parse().expect("seconds");
    assert!(patience >= default_of("--shutdown-grace-period-secs") + MARGIN_SECS, "{patience}");
    assert_eq!(setting("Restart"), "on-failure");
    for wrong in [&["--no-such-flag"][..], &["--ca-cert-paths", "/no/such"], &["--config", "/no/such"]] {
        let code = run_to_end(wrong).status.code().expect("an exit");
        assert_eq!(setting("RestartPreventExitStatus"), code.to_string(), "{wrong:?}");
    }
}

#[test]
fn the_unit_gives_the_router_no_more_than_it_needs() {
    for (key, value) in [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateDevices", "yes"),
        ("CapabilityBoundingSet", ""),
        ("MemoryDenyWriteExecute", "yes"),
    ] {
        assert_eq!(setting(key), value, "{key}");
    }
    let unit = text("deploy/systemd/router.service");
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
        let key = line.split('=').next().expect("a key");
        assert!(key.starts_with(|char: char| char.is_ascii_uppercase()) && line.contains('='), "{line}");
    }
}

// === the image ===

/// Instructions of the Dockerfile with their arguments; continued lines are one.
fn instructions() -> Vec<(String, String)> {
    let file = text("deploy/docker/Dockerfile");
    let joined = file
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| line.split_once(' ').expect("an argument"))
        .map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()))
        .collect()
}

fn arguments(instruction: &str) -> Vec<String> {
    instructions().into_iter().filter(|(name, _)| name == instruction).map(|(_, rest)| rest).collect()
}

/// The value of a key of the workspace's manifest, without its quotation marks.
fn manifest(key: &str) -> String {
    let manifest = text("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).expect(key);
    line.trim_matches('"').to_owned()
}

/// What the build stage copies out of the repository.
fn copied() -> Vec<String> {
    let copies = arguments("COPY").into_iter().filter(|copy| !copy.starts_with("--from"));
    copies
        .flat_map(|copy| {
            let mut paths: Vec<String> = copy.split_whitespace().map(str::to_owned).collect();
            paths.pop().expect("a target");
            paths
        })
        .collect()
}

#[test]
fn the_image_is_built_from_what_there_is_with_the_compiler_that_it_needs() {
    let stages = arguments("FROM");
    assert_eq!(stages.len(), 2);
    let release =
        stages[1].strip_prefix("debian:").and_then(|tag| tag.strip_suffix("-slim")).expect("Debian");
    assert_eq!(
        stages[0],
        format!("rust:{}-slim-{release} AS build", manifest("rust-version")),
        "one glibc in both"
    );
    for path in copied() {
        assert!(shipped(&path).exists(), "{path} is copied and not there");
    }
    for member in
        manifest("members").trim_matches(['[', ']']).split(", ").map(|member| member.trim_matches('"'))
    {
        let is_in = |path: &String| member == path || member.starts_with(&format!("{path}/"));
        assert!(copied().iter().any(is_in), "cargo wants {member} as well");
    }
    let ignore = text("deploy/docker/Dockerfile.dockerignore");
    let let_in: Vec<&str> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(ignore.lines().any(|line| line == "*"));
    assert_eq!(let_in, copied(), "what is copied, and nothing else, is sent to the builder");
    assert!(
        arguments("RUN")[0]
            .contains("cargo build --release --locked -p router && cp target/release/router /router")
    );
}

#[test]
fn the_image_runs_the_binary_on_its_default_ports_without_rights() {
    assert!(arguments("COPY").contains(&format!("--from=build /router {BINARY}")));
    assert_eq!(arguments("ENTRYPOINT"), [format!("[\"{BINARY}\"]")]);
    let ports = format!("{} {}", default_of("--port"), default_of("--prometheus-port"));
    assert_eq!(arguments("EXPOSE"), [ports]);
    let user: u32 = arguments("USER")[0].split(':').next().expect("a user").parse().expect("a number");
    assert_ne!(user, 0);
    assert_eq!(arguments("STOPSIGNAL"), ["SIGTERM"]);
}

/// The health check's command, against this port.
fn health_check(port: &str) -> bool {
    let check = arguments("HEALTHCHECK").remove(0);
    let words: Vec<String> =
        serde_json::from_str(check.split_once("CMD ").expect("a command").1).expect("a list");
    let default = format!("/{} ", default_of("--port"));
    let script = words[2].replace(&default, &format!("/{port} "));
    assert_ne!(script, words[2], "it asks the default port");
    let mut command = Command::new(&words[0]);
    command.args([&words[1], &script]).stdin(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap_or_else(|error| panic!("{}: {error}", words[0])).success()
}

#[test]
fn the_images_health_check_tells_a_router_from_none() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    let port = |address: &str| address.rsplit(':').next().expect("a port").to_owned();
    assert!(health_check(&port(&router.address)), "the router lives");
    let unwell = Worker::probed(|conn, _| {
        conn.answer("503 Service Unavailable", "", b"");
        true
    });
    assert!(!health_check(&port(&unwell.address)), "whatever answers 503 is unwell");
    assert!(!health_check(&port(&dead_url())), "nobody listens");
    wait_until("the router to see that the check has gone", || router.loads() == [0]);
}

// === the manifest ===

/// The configuration in the manifest's secret, as it is written there.
fn mounted_configuration() -> String {
    let manifest = text("deploy/kubernetes/router.yaml");
    let (_, rest) = manifest.split_once("  router.toml: |\n").expect("a configuration");
    let lines = rest.lines().take_while(|line| *line != "---");
    lines.fold(String::new(), |text, line| text + line.strip_prefix("    ").unwrap_or(line) + "\n")
}

/// What `router check` says of a configuration; panics if that is wrong.
fn checked(configuration: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(configuration.as_bytes()).expect("written");
    let checked = run_to_end(&["check", "--config", file.path().to_str().expect("UTF-8")]);
    assert!(checked.status.success(), "{}\n{configuration}", String::from_utf8_lossy(&checked.stderr));
    String::from_utf8(checked.stdout).expect("UTF-8")
}

#[test]
fn the_manifests_configuration_and_its_other_one_are_valid() {
    let regular = mounted_configuration();
    assert!(!checked(&regular).contains("pd_disaggregation = true"));
    // The remarks that are settings take the place of the regular workers.
    let (_, rest) = regular.split_once("# [disaggregation]\n").expect("another one");
    let pairs: Vec<&str> = rest.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let (_, others) = regular.split_once("\n[policy]").expect("a policy");
    let pairs = checked(&format!("[disaggregation]\n{}\n[policy]{others}", pairs.join("\n")));
    assert!(pairs.contains("pd_disaggregation = true") && pairs.contains("8998"), "{pairs}");
}

#[test]
fn kubernetes_knows_when_to_send_and_how_long_to_wait() {
    let documents = yaml::documents(&text("deploy/kubernetes/router.yaml"));
    let [secret, deployment, service] = &documents[..] else { panic!("{} documents", documents.len()) };
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let volume = &pod["volumes"][0];
    assert_eq!(volume["secret"]["secretName"], secret["metadata"]["name"]);
    assert_eq!(container["volumeMounts"][0]["name"], volume["name"]);
    let folder = container["volumeMounts"][0]["mountPath"].as_str().expect("a path");
    assert_eq!(container["args"], serde_json::json!(["--config", format!("{folder}/router.toml")]));
    let configuration = mounted_configuration();
    let after = |key: &str| -> u64 {
        let line = configuration.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.unwrap_or_else(|| panic!("no {key}")).parse().expect("seconds")
    };
    let patience = pod["terminationGracePeriodSeconds"].as_u64().expect("seconds");
    assert!(patience >= after("shutdown_grace_period_secs") + MARGIN_SECS);
    let probe = &container["readinessProbe"];
    let noticed = |probe: &Value| {
        probe["periodSeconds"].as_u64().unwrap() * probe["failureThreshold"].as_u64().unwrap()
    };
    assert!(after("shutdown_pause_secs") > noticed(probe), "new requests come until the probe has failed");
    assert_eq!(
        (&probe["httpGet"]["path"], &probe["httpGet"]["port"]),
        (&"/readiness".into(), &"http".into())
    );
    let probe = &container["livenessProbe"]["httpGet"];
    assert_eq!((&probe["path"], &probe["port"]), (&"/liveness".into(), &"http".into()));
    for (at, name, flag) in [(0, "http", "--port"), (1, "metrics", "--prometheus-port")] {
        let port = &container["ports"][at];
        assert_eq!((&port["name"], &port["containerPort"]), (&name.into(), &default_of(flag).into()));
        assert_eq!(service["spec"]["ports"][at]["targetPort"], name);
    }
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels, &deployment["spec"]["selector"]["matchLabels"]);
    assert_eq!(labels, &service["spec"]["selector"]);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
}
