//! From what was typed to what it means.

use protocol::kv_events::Shape;
use simworker_core::{EngineConfig, EngineRole, HandoffConfig, LoadBalance, Pace, Preset};

use super::Args;
use super::preset::Chosen;
use crate::config::{Compat, HostConfig, KvEventsConfig, Mode, Roles, WatchConfig, WorkerConfig};

/// Tokenising, HTTP and IPC of a request.
const DEFAULT_OVERHEAD_NS: u64 = 3_000_000;

impl Args {
    /// What was typed, resolved.
    ///
    /// # Errors
    /// A combination that is wrong usage, in words.
    pub(in crate::cli) fn resolve(&self) -> Result<HostConfig, String> {
        let live = &self.live;
        check_ports("--port", self.port, "--workers", self.workers)?;
        let roles = self.roles()?;
        self.check_balance(roles)?;
        self.check_cache()?;
        Ok(HostConfig {
            workers: self.workers,
            host: self.host.clone(),
            port: self.port,
            speed: live.speed,
            worker: self.worker(),
            roles,
            mode: match self.instant {
                true => Mode::Instant { interval_ns: self.instant_interval_ns },
                false => Mode::Engine,
            },
            watch: WatchConfig {
                control: live.control_port.map(|port| (live.control_host.clone(), port)),
                faults: live.fault.clone(),
                seed: live.fault_seed,
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
        let (wire, live) = (&self.wire, &self.live);
        let Chosen { preset, request_overhead_ns, .. } = self.preset;
        let model_path = wire.model_path.clone().unwrap_or_else(|| preset.model.name.to_owned());
        WorkerConfig {
            engine: self.engine(),
            preset,
            served_model_name: wire.served_model_name.clone().unwrap_or_else(|| model_path.clone()),
            model_path,
            stream_interval: wire.stream_interval,
            incremental_streaming_output: wire.incremental_streaming_output,
            enable_cache_report: wire.enable_cache_report,
            wire: wire.resolve(self.instant, self.schedule.default_priority_value),
            request_overhead_ns: live
                .request_overhead_ns
                .or(request_overhead_ns)
                .unwrap_or(DEFAULT_OVERHEAD_NS),
            dp_size: self.dp_size,
            dp_attention: self.enable_dp_attention,
            load_balance: self.load_balance_method.0,
            bootstrap_port: self.disaggregation_bootstrap_port,
            live: live.resolve(),
            kv_events: self.kv_events(),
        }
    }

    fn kv_events(&self) -> Option<KvEventsConfig> {
        let config = self.cache.kv_events_config.as_ref()?.0.clone()?;
        let shape = match self.wire.compat {
            Compat::Current => Shape::Map,
            Compat::Older => Shape::Array,
        };
        Some(KvEventsConfig { shape, ..config })
    }

    fn check_cache(&self) -> Result<(), String> {
        if self.cache.enable_hierarchical_cache && self.cache.disable_radix_cache {
            return Err("--enable-hierarchical-cache and --disable-radix-cache exclude each other; leave one of them out"
                .into());
        }
        if self.instant && self.kv_events().is_some() {
            return Err("--kv-events-config and --instant exclude each other: without an engine there is nothing to publish; \
                        leave one of them out"
                .into());
        }
        match self.kv_events() {
            Some(config) => config
                .check_ports(self.workers * self.dp_size)
                .map_err(|message| format!("--kv-events-config: {message}")),
            None => Ok(()),
        }
    }

    fn engine(&self) -> EngineConfig {
        let (schedule, cache) = (&self.schedule, &self.cache);
        let Chosen { preset, page_size, .. } = self.preset;
        let chosen = Preset {
            kv_tokens: cache.kv_tokens.unwrap_or(preset.kv_tokens),
            // The default for the running limit divides by the context; 0 is refused with its own message.
            context_len: schedule.context_length.unwrap_or(preset.context_len).max(1),
            ..*preset
        };
        let defaults = EngineConfig::of(&chosen);
        EngineConfig {
            context_len: schedule.context_length.unwrap_or(preset.context_len),
            page_size: cache.page_size.or(page_size).unwrap_or(defaults.page_size),
            schedule: schedule.schedule_policy,
            queue: schedule.queue(),
            mixed_chunk: schedule.enable_mixed_chunk,
            prefill_max_requests: schedule.prefill_max_requests,
            prefill_interval: schedule.prefill_interval(),
            share_chunks_first: schedule.share_chunks_first,
            eviction: cache.radix_eviction_policy,
            disable_prefix_cache: cache.disable_radix_cache,
            chunked_prefill: u32::try_from(schedule.chunked_prefill_size).ok(),
            max_prefill_tokens: schedule.max_prefill_tokens,
            max_running: schedule.max_running_requests.unwrap_or(defaults.max_running),
            max_queued: schedule.max_queued_requests,
            conservativeness: schedule.schedule_conservativeness,
            overlap: !schedule.disable_overlap_schedule,
            load_report_steps: schedule.load_snapshot_publish_interval,
            decode_log_interval: schedule.decode_log_interval,
            // Every token is delivered when it is made.
            pace: Pace::Step,
            role: self.disaggregation_mode,
            handoff: HandoffConfig {
                link: self.kv_link,
                num_reserved_decode_tokens: self.num_reserved_decode_tokens,
                decode_radix_cache: self.disaggregation_decode_enable_radix_cache,
                ..defaults.handoff
            },
            host_tier: cache.host_tier(&chosen),
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
