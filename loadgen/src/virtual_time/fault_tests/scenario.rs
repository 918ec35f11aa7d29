//! A scenario of every seed: sizes, policies, and which faults there are with which weights.

use router_core::Draws;

/// How many requests a scenario has.
pub(super) const REQUESTS: u64 = 10_000;

/// Shares of faults that a request may survive.
const SHARES: [&str; 4] = ["0.0", "0.001", "0.02", "0.2"];
/// Shares of those that cost timeouts.
const SLOW: [&str; 3] = ["0.0", "0.001", "0.01"];

/// A scenario in which everything that may go wrong does, some of it often.
pub(super) fn scenario(seed: u64) -> String {
    let text = format!("schema = 1\nname = \"faults\"\nseed = {seed}\n");
    let mut author = Author { draws: Draws::new(seed, 0), text };
    author.work();
    let fleet = author.fleet();
    let stalled = author.router(fleet);
    author.faults(stalled);
    author.outages(fleet);
    author.text
}

/// Writes a scenario line by line.
struct Author {
    draws: Draws,
    text: String,
}

/// What other tables go by.
#[derive(Clone, Copy)]
struct FleetDrawn {
    decoding: u32,
    has_regular: bool,
    has_ranks: bool,
}

impl Author {
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.draws.below(choices.len())]
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A key with one of some values.
    fn key(&mut self, key: &str, choices: &[&str]) {
        let value = self.pick(choices);
        self.line(&format!("{key} = {value}"));
    }

    fn work(&mut self) {
        self.line("[workload]\nkind = \"shared_prefix\"\ngroups = 100\nquestion_tokens = 7");
        self.line(&format!("prompts_per_group = {}", REQUESTS / 100));
        self.key("system_tokens", &["20", "60"]);
        self.key("output_tokens", &["1", "2", "5"]);
        self.line("[arrival]\nkind = \"poisson\"");
        self.key("rate", &["300.0", "1000.0", "4000.0"]);
    }

    fn fleet(&mut self) -> FleetDrawn {
        let (workers, regular) = (self.pick(&[4, 5]), self.pick(&[0, 0, 1]));
        self.line(&format!("[fleet]\nworkers = {workers}\nprefill = 2\nregular = {regular}"));
        self.key("kv_tokens", &["2000", "40000"]);
        self.key("reserved_decode_tokens", &["0", "4", "512"]);
        self.key("kv_link", &["\"nvlink\"", "\"25gbe\""]);
        self.key("decode_radix_cache", &["true", "false"]);
        self.key("max_running", &["16", "2048"]);
        self.key("chunked_prefill", &["32", "8192"]);
        let ranks = self.pick(&[1, 2, 3]);
        self.line(&format!("dp_size = {ranks}"));
        if ranks > 1 {
            self.key("dp_attention", &["true", "false"]);
        }
        FleetDrawn { decoding: workers - 2 - regular, has_regular: regular > 0, has_ranks: ranks > 1 }
    }

    /// Returns the share of legs that stall: they end with the router's patience only.
    fn router(&mut self, fleet: FleetDrawn) -> &'static str {
        self.line("[router]");
        let policies = ["[\"round_robin\"]", "[\"random\"]", "[\"power_of_two\"]", "[\"cache_aware\"]"];
        self.key("policies", &policies);
        self.key("decode_policy", &["\"round_robin\"", "\"random\"", "\"power_of_two\""]);
        self.key("decode_dispatch_limit", &["0", "0", "8", "40"]);
        if fleet.has_ranks {
            self.key("dp_aware", &["true", "false"]);
        }
        if fleet.has_regular {
            self.key("least_uncached_tokens", &["0", "40"]);
        }
        let stalled = self.pick(&SLOW);
        if stalled != "0.0" {
            self.key("first_byte_timeout", &["\"5s\"", "\"20s\"", "\"20s\""]);
        }
        stalled
    }

    fn faults(&mut self, stalled: &str) {
        self.line("[faults]");
        self.line(&format!("stalled = {stalled}"));
        for key in ["prefill_failure", "decode_failure", "transfer_failure", "client_gone"] {
            self.key(key, &SHARES);
        }
        self.key("busy", &["0.0", "0.001", "0.02", "0.1"]);
        self.key("handshake_lost", &["0.0", "0.002", "0.02"]);
        self.key("peer_lost", &["0.0", "0.002", "0.02"]);
        self.key("bad_room", &["0.0", "0.002", "0.02"]);
        self.key("late_legs", &["0.0", "0.02", "0.2"]);
    }

    fn outages(&mut self, fleet: FleetDrawn) {
        for (role, count) in [("prefill", 2), ("decode", fleet.decoding)] {
            let is_lost = self.pick(&[true, true, true, false]);
            if is_lost {
                self.key(&format!("{role}_lost"), &["\"0s\"", "\"1s\"", "\"2s\""]);
                self.key(&format!("{role}_back"), &["\"100ms\"", "\"3s\"", "\"20s\""]);
            }
            // Somebody is to be left.
            if count > 1 + u32::from(is_lost) && self.pick(&[true, true, false]) {
                self.key(&format!("{role}_drained"), &["\"500ms\"", "\"2s\""]);
            }
        }
    }
}
