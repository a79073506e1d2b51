//! `grapevine engine`: simulated engines as a process.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::config::{DEFAULT_MODEL, EngineConfig, Secret, prefill_per_block};
use super::fault::FaultRule;
use super::{Engine, EngineHandle};

/// Simulated engines: OpenAI API, prefix cache, vLLM's metrics, faults on demand.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Addresses to listen on, one engine each; port 0 takes a free one
    #[arg(long, value_name = "ADDR", value_delimiter = ',', default_value = "127.0.0.1:0")]
    pub listen: Vec<SocketAddr>,

    /// Ports on 127.0.0.1, one engine each, instead of --listen
    #[arg(long, value_name = "PORT", value_delimiter = ',', conflicts_with = "listen")]
    pub port: Vec<u16>,

    /// Blocks in the prefix cache; 0 switches it off
    #[arg(long, value_name = "N", default_value_t = EngineConfig::default().cache_blocks)]
    pub cache_blocks: usize,

    /// Bytes of prompt in a block; 4 bytes make a token
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..))]
    pub block_bytes: u32,

    /// Prefill speed of what is not cached [default: 12000]
    #[arg(long, value_name = "N", conflicts_with = "prefill_us_per_block", value_parser = positive)]
    pub prefill_tokens_per_second: Option<f64>,

    /// Prefill time of a block that is not cached, microseconds
    #[arg(long, value_name = "US", value_parser = not_negative)]
    pub prefill_us_per_block: Option<f64>,

    /// Time every prefill takes, milliseconds
    #[arg(long, value_name = "MS", default_value_t = millis(EngineConfig::default().base), value_parser = not_negative)]
    pub base_ms: f64,

    /// One prefill at a time, first come first served
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub serial_prefill: bool,

    /// Time from one output token to the next, milliseconds
    #[arg(long, value_name = "MS", default_value_t = millis(EngineConfig::default().decode_per_token),
          value_parser = not_negative)]
    pub decode_ms_per_token: f64,

    /// Sequences in prefill and decode at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: u32,

    /// Sequences that may wait; one more gets a 503
    #[arg(long, value_name = "N", default_value_t = EngineConfig::default().max_queue)]
    pub max_queue: usize,

    /// A model to serve; may be repeated
    #[arg(long, value_name = "NAME", default_value = DEFAULT_MODEL)]
    pub model: Vec<String>,

    /// Key that /v1 requests must carry as a bearer token
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<Secret>,

    /// Longest prompt, tokens
    #[arg(long, value_name = "N", default_value_t = EngineConfig::default().max_model_tokens)]
    pub max_model_tokens: u64,

    /// Output tokens of a request that sets no limit
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub default_max_tokens: u32,

    /// Output tokens do not enter the cache
    #[arg(long)]
    pub no_cache_output: bool,

    /// Leave usage.prompt_tokens_details out, as vLLM does by default
    #[arg(long)]
    pub no_prompt_tokens_details: bool,

    /// Close connections that are idle for so long, milliseconds
    #[arg(long, value_name = "MS", default_value_t = millis(EngineConfig::default().keep_alive_idle),
          value_parser = positive)]
    pub keep_alive_idle_ms: f64,

    /// On SIGTERM let requests in flight run for so long, milliseconds; new ones get a 500
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative)]
    pub shutdown_grace_ms: f64,

    /// Remember heads and body digests of the last so many requests for GET /requests
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub record_requests: usize,

    /// A fault from the start on, as in POST /faults: '{"kind":"stall","after_events":3,"next":1}'
    #[arg(long = "fault", value_name = "JSON")]
    pub faults: Vec<FaultRule>,
}

impl EngineArgs {
    /// The settings of the engine that listens on `listen`.
    pub fn config(&self, listen: SocketAddr) -> EngineConfig {
        let defaults = EngineConfig::default();
        let block_bytes = self.block_bytes as usize;
        let by_speed = self.prefill_tokens_per_second.map(|speed| prefill_per_block(speed, block_bytes));
        let by_block = self.prefill_us_per_block.map(|us| Duration::from_secs_f64(us / 1e6));
        EngineConfig {
            listen,
            models: self.model.clone(),
            api_key: self.api_key.clone(),
            cache_blocks: self.cache_blocks,
            block_bytes,
            base: from_millis(self.base_ms),
            prefill_per_block: by_block.or(by_speed).unwrap_or(defaults.prefill_per_block),
            serial_prefill: self.serial_prefill,
            decode_per_token: from_millis(self.decode_ms_per_token),
            slots: self.slots as usize,
            max_queue: self.max_queue,
            max_model_tokens: self.max_model_tokens,
            default_max_tokens: self.default_max_tokens,
            cache_output: !self.no_cache_output,
            prompt_tokens_details: !self.no_prompt_tokens_details,
            keep_alive_idle: from_millis(self.keep_alive_idle_ms),
            record_requests: self.record_requests,
            faults: self.faults.clone(),
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        if self.port.is_empty() {
            return self.listen.clone();
        }
        self.port.iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).collect()
    }
}

/// Runs engines until SIGTERM or SIGINT. For each prints a line `listening on http://ADDR`.
pub async fn run_engine(args: EngineArgs) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut engines = Vec::new();
    for addr in args.addresses() {
        let started = Engine::start(args.config(addr)).await;
        engines.push(started.map_err(|source| cannot_listen(addr, &source))?);
    }
    announce(&engines)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let grace = from_millis(args.shutdown_grace_ms);
    futures_util::future::join_all(engines.iter().map(|engine| engine.shut_down(grace))).await;
    Ok(())
}

fn cannot_listen(addr: SocketAddr, source: &io::Error) -> io::Error {
    io::Error::new(source.kind(), format!("cannot listen on {addr} (--listen or --port): {source}"))
}

fn announce(engines: &[EngineHandle]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for engine in engines {
        writeln!(out, "listening on {}", engine.url())?;
    }
    out.flush()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn from_millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n >= 0.0 => Ok(n),
        _ => Err("must be a number, 0 or more".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text).and_then(|n| if n > 0.0 { Ok(n) } else { Err("must be a number above 0".to_owned()) })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn config(args: &str) -> Result<EngineConfig, clap::Error> {
        let args = std::iter::once("engine").chain(args.split_whitespace());
        let engine = Cli::try_parse_from(args)?.engine;
        Ok(engine.config(engine.addresses()[0]))
    }

    #[test]
    fn the_command_lines_defaults_are_the_librarys() {
        let by_args = config("").unwrap();
        assert_eq!(format!("{by_args:?}"), format!("{:?}", EngineConfig::default()));
    }

    #[test]
    fn prefill_speed_is_given_either_way() {
        assert_eq!(
            config("--prefill-us-per-block 2000").unwrap().prefill_per_block,
            Duration::from_millis(2)
        );
        let by_speed = config("--prefill-tokens-per-second 16000 --block-bytes 64").unwrap();
        assert_eq!(by_speed.prefill_per_block, Duration::from_millis(1));
        assert!(config("--prefill-us-per-block 1 --prefill-tokens-per-second 1").is_err());
    }

    #[test]
    fn flags_read_as_documented() {
        let set =
            config(r#"--port 0 --serial-prefill false --model a --model b --fault {"kind":"hang"}"#).unwrap();
        assert_eq!((set.serial_prefill, set.models.len(), set.faults.len()), (false, 2, 1));
        assert!(config("--serial-prefill --slots 3").unwrap().serial_prefill);
        for wrong in ["--slots 0", "--base-ms -1", "--block-bytes 3", r#"--fault {"kind":"no"}"#] {
            assert!(config(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_key_does_not_print() {
        let config = config("--api-key hunter2").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
