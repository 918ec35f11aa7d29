//! Calibration: workers whose parameters are hidden are measured over HTTP, and every parameter is found again.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails by panicking")]

mod liar;
mod lies;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use protocol::tokenizer::mix;
use simworker::calibrate::{CalibrateError, Calibration, Target, calibrate};
use simworker::config::{HostConfig, Mode, Roles, WatchConfig, WorkerConfig};
use simworker::fault::Assigned;
use simworker::host::Host;
use simworker::preset_file::{PresetFile, rows};
use simworker_core::cost::{CostModel, StepTimes};
use simworker_core::{Preset, preset};

/// What a worker hides.
#[derive(Debug, Clone, Copy)]
struct Hidden {
    steps: StepTimes,
    gpus: u32,
    kv_tokens: u64,
    page_size: u32,
    overhead_ns: u64,
    speed: f64,
}

impl Hidden {
    /// Drawn from a seed: between half and twice the numbers of the hardware that there is.
    fn draw(seed: u64) -> Self {
        let mut state = seed;
        let mut between = |least: f64, most: f64| {
            state = mix(state);
            least * (most / least).powf((state >> 11) as f64 / (1_u64 << 53) as f64)
        };
        let gpus = if seed.is_multiple_of(2) { 1 } else { 4 };
        Self {
            steps: StepTimes {
                prefill_fixed_ns: between(2e6, 8e6),
                prefill_token_ns: between(15e3, 60e3),
                attention_pair_ns: between(0.5, 4.0),
                weights_ns: between(3e6, 10e6),
                decode_fixed_ns: between(0.7e6, 3e6),
                decode_sequence_ns: between(40e3, 150e3),
                decode_context_token_ns: between(20.0, 90.0),
                comm_token_ns: if gpus > 1 { between(5e3, 20e3) } else { 0.0 },
            },
            gpus,
            kv_tokens: between(200e3, 900e3) as u64 / 64 * 64,
            page_size: 1 << (mix(seed) % 5),
            overhead_ns: between(200e6, 600e6) as u64,
            speed: between(2.0, 5.0),
        }
    }

    fn start(&self) -> Host {
        let known = preset("a100-80g-llama3-8b").unwrap();
        let preset = Box::leak(Box::new(Preset {
            cost: CostModel::from_steps(&self.steps),
            gpus: self.gpus,
            kv_tokens: self.kv_tokens,
            ..*known
        }));
        let mut worker = WorkerConfig::mock(preset);
        worker.engine.page_size = self.page_size;
        worker.engine.overlap = true;
        worker.request_overhead_ns = self.overhead_ns;
        start(worker, self.speed)
    }
}

fn start(worker: WorkerConfig, speed: f64) -> Host {
    start_with(worker, speed, &[])
}

fn start_with(worker: WorkerConfig, speed: f64, faults: &[&str]) -> Host {
    let faults = faults.iter().map(|fault| Assigned::parse(fault).unwrap()).collect();
    Host::start(&HostConfig {
        workers: 1,
        host: "127.0.0.1".into(),
        port: 0,
        speed,
        worker,
        roles: Roles::Same,
        mode: Mode::Engine,
        watch: WatchConfig { faults, ..WatchConfig::default() },
    })
    .unwrap()
}

fn target(url: &str) -> Target {
    Target { url: url.to_owned(), api_key: None, limit: Duration::from_secs(300), seed: 7 }
}

fn measure(host: &Host) -> Result<Calibration, CalibrateError> {
    calibrate(&target(&host.urls().next().unwrap()), &mut |_| ())
}

fn assert_found(seed: u64) {
    let hidden = Hidden::draw(seed);
    let calibration = measure(&hidden.start()).unwrap();
    let found = &calibration.file.preset;
    let table = calibration.table();
    assert_eq!(
        (found.kv_tokens, found.page_size, found.gpus),
        (hidden.kv_tokens, hidden.page_size, hidden.gpus)
    );
    for ((name, found), (_, hidden)) in rows(&found.steps).into_iter().zip(rows(&hidden.steps)) {
        assert!(
            (found - hidden).abs() <= 0.05 * hidden,
            "seed {seed}: {name} is {hidden}, found {found}\n{table}"
        );
    }
    let (found, hidden) = (found.request_overhead_ns as f64, hidden.overhead_ns as f64);
    assert!(
        (found / hidden - 1.0).abs() < 0.05,
        "seed {seed}: the overhead is {hidden}, found {found}\n{table}"
    );
    assert!(calibration.residual.worst < 0.05, "{table}");
    assert_eq!(PresetFile::parse(&calibration.toml()).unwrap(), calibration.file, "the file says it all");
}

#[test]
fn hidden_parameters_are_found_0() {
    assert_found(10);
}

#[test]
fn hidden_parameters_are_found_1() {
    assert_found(11);
}

#[test]
fn hidden_parameters_are_found_2() {
    assert_found(12);
}

#[test]
fn hidden_parameters_are_found_3() {
    assert_found(13);
}

#[test]
fn hidden_parameters_are_found_4() {
    assert_found(14);
}

/// Steps that vary by 5 %, as those of real engines do. What one round of samples says of the fixed costs is off by tens of per cent then.
fn assert_found_in_noise(seed: u64) {
    let known = preset("a100-80g-llama3-8b").unwrap();
    let mut worker = WorkerConfig::mock(known);
    worker.engine.overlap = true;
    worker.live.jitter = 0.05;
    worker.live.jitter_seed = seed;
    let calibration = measure(&start(worker, 20.0)).unwrap();
    let hidden = StepTimes {
        prefill_fixed_ns: 4e6,
        prefill_token_ns: 74_552.0,
        attention_pair_ns: 3.3609,
        weights_ns: 9_195_467.0,
        decode_fixed_ns: 1.3e6,
        decode_sequence_ns: 80_128.0,
        decode_context_token_ns: 80.353,
        comm_token_ns: 0.0,
    };
    let table = calibration.table();
    for ((name, found), (_, hidden)) in rows(&calibration.file.preset.steps).into_iter().zip(rows(&hidden)) {
        assert!(
            (found - hidden).abs() <= 0.12 * hidden,
            "seed {seed}: {name} is {hidden}, found {found}\n{table}"
        );
        let figure = calibration.figures.iter().find(|figure| figure.name == name).unwrap();
        assert!(!figure.is_undecided(), "seed {seed}: {figure:?}\n{table}");
        assert!(figure.half_width_ns <= 0.1 * hidden, "seed {seed}: {figure:?}\n{table}");
    }
}

#[test]
fn repeats_find_the_times_of_steps_that_vary_0() {
    assert_found_in_noise(0);
}

#[test]
fn repeats_find_the_times_of_steps_that_vary_1() {
    assert_found_in_noise(1);
}

#[test]
fn what_time_does_not_suffice_for_is_called_undecided() {
    let mut worker = WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap());
    worker.live.jitter = 0.3;
    // Too few batches for a second look at the weights.
    worker.engine.max_running = 8;
    let host = start(worker, 20.0);
    let hurried = Target { limit: Duration::from_secs(20), ..target(&host.urls().next().unwrap()) };
    let calibration = calibrate(&hurried, &mut |_| ()).unwrap();
    let fixed = calibration.figures.iter().find(|figure| figure.name == "decode_fixed_ns").unwrap();
    assert!(fixed.is_undecided(), "{fixed:?}\n{}", calibration.table());
    for text in [calibration.table(), calibration.toml()] {
        let line = text.lines().find(|line| line.contains("decode_fixed_ns") && line.contains("undecided"));
        assert!(line.is_some(), "{text}");
    }
    assert!(PresetFile::parse(&calibration.toml()).is_ok());
}

#[test]
fn a_worker_that_is_too_small_is_told_so() {
    let small = |change: fn(&mut WorkerConfig), words: &str| {
        let mut worker = WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap());
        change(&mut worker);
        let error = measure(&start(worker, 20.0)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    small(|worker| worker.engine.kv_tokens = 100, "KV of 100 tokens; at least 1024");
    small(|worker| worker.engine.context_len = 100, "a context of 100 tokens; at least 256");
    small(|worker| worker.engine.max_queued = Some(1), "without a low --max-queued-requests");
}

#[test]
fn a_mock_without_an_engine_is_recognised() {
    let worker = WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap());
    let host = Host::start(&HostConfig {
        workers: 1,
        host: "127.0.0.1".into(),
        port: 0,
        speed: 1.0,
        worker,
        roles: Roles::Same,
        mode: Mode::Instant { interval_ns: 0 },
        watch: WatchConfig::default(),
    })
    .unwrap();
    let error = measure(&host).unwrap_err().to_string();
    assert!(error.contains("--instant"), "{error}");
}

/// An overhead as small as a real one's, at the speed of a real one. What wakes up for a request on either side, beyond
/// the way there and back, is a part of it: a quarter of a millisecond on a busy machine.
#[test]
fn a_small_overhead_is_found_within_half_a_millisecond() {
    let hidden = Hidden { overhead_ns: 3_000_000, speed: 1.0, ..Hidden::draw(15) };
    // A fast engine, so that the test is short.
    let StepTimes { prefill_fixed_ns, prefill_token_ns, decode_fixed_ns, .. } = hidden.steps;
    let steps = StepTimes {
        prefill_fixed_ns: prefill_fixed_ns / 4.0,
        prefill_token_ns: prefill_token_ns / 8.0,
        decode_fixed_ns: decode_fixed_ns / 2.0,
        weights_ns: 1e6,
        decode_sequence_ns: 10e3,
        ..hidden.steps
    };
    let calibration = measure(&Hidden { steps, ..hidden }.start()).unwrap();
    let found = calibration.file.preset.request_overhead_ns as f64;
    assert!((found - 3e6).abs() < 0.5e6, "{found} ns for 3 ms\n{}", calibration.table());
}

#[test]
fn a_worker_that_tells_no_step_times_is_timed_from_outside() {
    let mut worker = WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap());
    worker.engine.max_running = 64;
    let host = start_with(worker, 1.0, &["loads=404"]);
    let soon = Target { limit: Duration::from_secs(90), ..target(&host.urls().next().unwrap()) };
    let calibration = calibrate(&soon, &mut |_| ()).unwrap();
    assert!(
        calibration.notes.iter().any(|note| note.contains("tells no step times")),
        "{:?}",
        calibration.notes
    );
    let found = &calibration.file.preset;
    assert_eq!((found.kv_tokens, found.request_overhead_ns), (444_500, 0));
    // A prompt of 8,192 tokens takes 0.7 s; what the client adds to that is little, however busy the machine is.
    let token_ns = found.steps.prefill_token_ns;
    assert!((40e3..120e3).contains(&token_ns), "74.6 µs by the preset: {token_ns}\n{}", calibration.table());
}

#[test]
fn what_is_no_idle_worker_is_told_in_words() {
    let message = |result: Result<Calibration, CalibrateError>| result.unwrap_err().to_string();
    let at = |url: &str| message(calibrate(&target(url), &mut |_| ()));
    assert!(at("worker:1").contains("give one such as http://"), "{}", at("worker:1"));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = at(&format!("http://{closed}"));
    assert!(nobody.contains("/server_info") && nobody.contains("listening"), "{nobody}");
    let mut locked = WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap());
    locked.wire.api_key = Some("k".into());
    let locked = start(locked, 1.0);
    assert!(message(measure(&locked)).contains("--api-key"));
    let busy = start(WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap()), 1.0);
    let mut client = std::net::TcpStream::connect(busy.addresses()[0]).unwrap();
    let body = r#"{"text":"x","stream":true,"sampling_params":{"max_new_tokens":9000,"ignore_eos":true}}"#;
    let head = "POST /generate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    write!(client, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    // A first frame: it is in the engine.
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("data:") {
        let mut some = [0; 1024];
        let read = client.read(&mut some).unwrap();
        seen.extend_from_slice(&some[..read]);
    }
    // The first report that counts it comes with its fifteenth token.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        match measure(&busy) {
            Err(CalibrateError::Busy) => break,
            other => assert!(std::time::Instant::now() < deadline, "{other:?}"),
        }
    }
}

#[test]
fn the_binary_writes_a_file_that_the_binary_reads() {
    let hidden = Hidden { overhead_ns: 50_000_000, speed: 40.0, ..Hidden::draw(3) };
    let host = hidden.start();
    let file = std::env::temp_dir().join(format!("simworker-preset-{}.toml", std::process::id()));
    let binary = || Command::new(env!("CARGO_BIN_EXE_simworker"));
    let url = host.urls().next().unwrap();
    let output = binary().args(["calibrate", "--url", &url, "--out"]).arg(&file).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout.is_empty(), "{told}");
    assert!(
        told.contains("prefill 1 of") && told.contains("residual error of the step times: mean"),
        "{told}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("# Residual error of the step times") && text.contains("# prefill_fixed_ns"),
        "{text}"
    );
    let mut mock = binary()
        .args(["--preset"])
        .arg(&file)
        .args(["--port", "0", "--exit-with-stdin"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(mock.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    let address = line.split("http://").nth(1).unwrap().split('"').next().unwrap();
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    write!(connection, "GET /server_info HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut info = String::new();
    connection.read_to_string(&mut info).unwrap();
    assert!(info.contains(&format!("\"max_total_num_tokens\":{}", hidden.kv_tokens)), "{info}");
    assert!(info.contains(&format!("\"page_size\":{}", hidden.page_size)), "{info}");
    drop(mock.stdin.take());
    assert!(mock.wait().unwrap().success());
    std::fs::remove_file(&file).unwrap();
    let missing = binary().args(["--preset", "/nowhere/x.toml", "--port", "0"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read the preset /nowhere/x.toml"));
}
