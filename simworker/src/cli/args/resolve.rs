//! From what was typed to what it means.

use simworker_core::{EngineConfig, EngineRole, HandoffConfig, LoadBalance, Pace, Preset};

use super::Args;
use crate::config::{HostConfig, Mode, Roles, WatchConfig, WorkerConfig};

impl Args {
    /// What was typed, resolved.
    ///
    /// # Errors
    /// A combination that is wrong usage, in words.
    pub(in crate::cli) fn resolve(&self) -> Result<HostConfig, String> {
        check_ports("--port", self.port, "--workers", self.workers)?;
        let roles = self.roles()?;
        self.check_balance(roles)?;
        Ok(HostConfig {
            workers: self.workers,
            host: self.host.clone(),
            port: self.port,
            speed: self.speed,
            worker: self.worker(),
            roles,
            mode: match self.instant {
                true => Mode::Instant { interval_ns: self.instant_interval_ns },
                false => Mode::Engine,
            },
            watch: WatchConfig {
                control: self.control_port.map(|port| (self.control_host.clone(), port)),
                faults: self.fault.clone(),
                seed: self.fault_seed,
            },
        })
    }

    fn roles(&self) -> Result<Roles, String> {
        let Some(prefill) = self.prefill_workers else {
            if self.disaggregation_mode == EngineRole::Prefill {
                self.check_bootstrap_ports("--workers", self.workers)?;
            }
            return Ok(Roles::Same);
        };
        if prefill >= self.workers {
            return Err(format!(
                "--prefill-workers {prefill} leaves no decode workers of --workers {}; make it less, or choose \
                 --disaggregation-mode prefill",
                self.workers
            ));
        }
        self.check_bootstrap_ports("--prefill-workers", prefill)?;
        Ok(Roles::Split { prefill })
    }

    /// SGLang starts like that, and then has no rank for any request.
    fn check_balance(&self, roles: Roles) -> Result<(), String> {
        let follows = self.load_balance_method.0 == Some(LoadBalance::FollowBootstrapRoom);
        if follows && roles == Roles::Same && self.disaggregation_mode == EngineRole::Whole {
            return Err("--load-balance-method follow_bootstrap_room needs requests with bootstrap rooms, which only \
                        prefill and decode workers have; choose a --disaggregation-mode or another method"
                .into());
        }
        Ok(())
    }

    fn check_bootstrap_ports(&self, flag: &str, count: u32) -> Result<(), String> {
        check_ports("--disaggregation-bootstrap-port", self.disaggregation_bootstrap_port, flag, count)
    }

    fn worker(&self) -> WorkerConfig {
        let model_path = self.model_path.clone().unwrap_or_else(|| self.preset.model.name.to_owned());
        WorkerConfig {
            engine: self.engine(),
            preset: self.preset,
            served_model_name: self.served_model_name.clone().unwrap_or_else(|| model_path.clone()),
            model_path,
            stream_interval: self.stream_interval,
            incremental_streaming_output: self.incremental_streaming_output,
            enable_cache_report: self.enable_cache_report,
            health_generation: self.health_generation,
            legacy_loads: self.legacy_loads,
            request_overhead_ns: self.request_overhead_ns,
            dp_size: self.dp_size,
            dp_attention: self.enable_dp_attention,
            load_balance: self.load_balance_method.0,
            bootstrap_port: self.disaggregation_bootstrap_port,
        }
    }

    fn engine(&self) -> EngineConfig {
        let chosen = Preset {
            kv_tokens: self.kv_tokens.unwrap_or(self.preset.kv_tokens),
            // The default for the running limit divides by the context; 0 is refused with its own message.
            context_len: self.context_length.unwrap_or(self.preset.context_len).max(1),
            ..*self.preset
        };
        let defaults = EngineConfig::of(&chosen);
        EngineConfig {
            page_size: self.page_size,
            schedule: self.schedule_policy,
            share_chunks_first: self.share_chunks_first,
            eviction: self.radix_eviction_policy,
            disable_prefix_cache: self.disable_radix_cache,
            chunked_prefill: u32::try_from(self.chunked_prefill_size).ok(),
            max_prefill_tokens: self.max_prefill_tokens,
            max_running: self.max_running_requests.unwrap_or(defaults.max_running),
            max_queued: self.max_queued_requests,
            conservativeness: self.schedule_conservativeness,
            overlap: !self.disable_overlap_schedule,
            // Every token is delivered when it is made.
            pace: Pace::Step,
            role: self.disaggregation_mode,
            handoff: HandoffConfig {
                link: self.kv_link,
                num_reserved_decode_tokens: self.num_reserved_decode_tokens,
                decode_radix_cache: self.disaggregation_decode_enable_radix_cache,
                ..defaults.handoff
            },
            ..defaults
        }
    }
}

/// Whether that many ports can follow the first one.
fn check_ports(flag: &str, first: u16, of: &str, count: u32) -> Result<(), String> {
    if first != 0 && u32::from(first) + count - 1 > u32::from(u16::MAX) {
        return Err(format!("{flag} {first} leaves no ports for {of} {count}; the last port is 65535"));
    }
    Ok(())
}
