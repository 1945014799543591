//! From what was written to what can be run; every fault names the flag or key it is about.

use std::{
    fmt::Display,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use shards::{clock::unix_s, topology::parse_cpu_list};

use super::{OperationEntry, Plan, ScenarioFault, Secrets, Text, operations};
use crate::{
    arrivals::{Arrivals, Shape},
    delay::Delay,
    era::Era,
    operation::{Check, Method, Operation, Sizes, parse_mix},
    run::{Pattern, Rhythm, RunOptions},
    search::SearchOptions,
    slo::Slo,
    tokens::{Claims, Signer, USERS_MAX, read_tokens},
    units::{parse_bytes, seconds_or_time},
};

/// Callers when there is a rate and nothing is said.
const RATE_CALLERS: u32 = 64;
/// Callers of a search.
const SEARCH_CALLERS: u32 = 256;
/// Length of a run when nothing is said.
const DURATION: Duration = Duration::from_secs(10);
const SOAK_DURATION: Duration = Duration::from_secs(3600);

/// How the load comes.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// One run.
    Run {
        /// Whether its end is compared with its beginning.
        is_soak: bool,
        /// Whether the report has a row for each stage.
        has_steps: bool,
    },
    /// A search for the highest rate.
    FindMax(SearchOptions),
}

/// A scenario that can be run.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What to run.
    pub options: RunOptions,
    /// How the load comes.
    pub load: Load,
    /// What has to hold.
    pub slo: Slo,
}

pub(super) type Outcome<T> = Result<T, ScenarioFault>;

impl Plan {
    /// Checks everything and fills in what is missing.
    pub fn resolve(self, secrets: Secrets) -> Outcome<Resolved> {
        let url = self.url.clone().ok_or_else(|| fault("url", "is missing"))?;
        let is_affinity = self.check_affinity == Some(true);
        let era = read("era", &self.era, str::parse)?.unwrap_or_default();
        if is_affinity && era == Era::Stateless {
            return Err(fault(
                "check-affinity",
                "needs sessions, which era stateless has not",
            ));
        }
        let exchange = self.exchange(secrets.connect)?;
        let load = self.load()?;
        let shape = self.shape()?;
        let is_open = self.rate.is_some() || shape.is_some();
        let callers = match (&load, is_open) {
            (Load::FindMax(_), _) => SEARCH_CALLERS,
            (_, true) => RATE_CALLERS,
            (_, false) => 1,
        };
        let duration = self.duration_or_default()?;
        let mix = self.mix(is_affinity)?;
        let options = RunOptions {
            url,
            exchange,
            era,
            connections: positive("callers", self.callers, callers)?,
            sessions: self.sessions,
            session_life: self.session_life.map(|life| life.max(1)),
            streams: self.streams.unwrap_or(0),
            shards: positive("shards", self.shards, 1)?,
            cpus: read("cpu-list", &self.cpu_list, parse_cpu_list)?,
            driver: read("io-driver", &self.io_driver, str::parse)?.unwrap_or_default(),
            rate: self.rate.filter(|_| !matches!(load, Load::FindMax(_))),
            arrivals: read("arrivals", &self.arrivals, arrivals)?.unwrap_or_default(),
            duration: self.calls.is_none().then_some(duration),
            calls: self.calls,
            warm_up: time("warm-up", &self.warm_up)?.unwrap_or_default(),
            think: read("think", &self.think, str::parse::<Delay>)?.unwrap_or_default(),
            rhythm: read("profile", &self.profile, rhythm)?.unwrap_or_default(),
            mix,
            token: secrets.token,
            tokens: self.tokens()?,
            pattern: match read("connections", &self.connections, pattern)? {
                Some(pattern) => pattern,
                None if is_affinity => Pattern::Spread,
                None => Pattern::Sticky,
            },
            target_shards: self.target_shards.filter(|count| *count > 0),
            limit: time("timeout", &self.timeout)?.unwrap_or(Duration::from_secs(10)),
            seed: self.seed.unwrap_or(1),
            start_at: self.start_at.map(start_at).transpose()?,
            shape,
            ..RunOptions::default()
        };
        let slo = read("slo", &self.slo, str::parse::<Slo>)?.unwrap_or_default();
        let resolved = Resolved { options, load, slo };
        resolved.check()?;
        Ok(resolved)
    }

    fn load(&self) -> Outcome<Load> {
        if self.find_max != Some(true) {
            return Ok(Load::Run {
                is_soak: self.soak == Some(true),
                has_steps: self.step.is_some() || self.spike.is_some(),
            });
        }
        for (name, is_given) in [
            ("ramp", self.ramp.is_some()),
            ("step", self.step.is_some()),
            ("spike", self.spike.is_some()),
            ("soak", self.soak == Some(true)),
            ("calls", self.calls.is_some()),
            ("duration", self.duration.is_some()),
        ] {
            if is_given {
                return Err(fault(
                    name,
                    "does not go with find-max (its probes have --probe)",
                ));
            }
        }
        let defaults = SearchOptions::default();
        let options = SearchOptions {
            start: self.rate.unwrap_or(defaults.start),
            rate_max: self.rate_max.unwrap_or(defaults.rate_max),
            probe: time("probe", &self.probe)?.unwrap_or(defaults.probe),
            ..defaults
        };
        let is_rate = |rate: f64| rate > 0.0 && rate.is_finite();
        if !is_rate(options.start) || !is_rate(options.rate_max) {
            return Err(fault("rate", "must be above 0"));
        }
        if options.probe < Duration::from_millis(100) {
            return Err(fault(
                "probe",
                "is too short to measure anything (at least 100ms)",
            ));
        }
        Ok(Load::FindMax(options))
    }

    fn duration_or_default(&self) -> Outcome<Duration> {
        if self.calls.is_some() && self.duration.is_some() {
            return Err(fault("calls", "does not go with duration"));
        }
        let default = if self.soak == Some(true) {
            SOAK_DURATION
        } else {
            DURATION
        };
        let duration = time("duration", &self.duration)?.unwrap_or(default);
        if duration.is_zero() {
            return Err(fault("duration", "must be above 0"));
        }
        Ok(duration)
    }

    /// The rate over time, when it is not one constant rate.
    fn shape(&self) -> Outcome<Option<Shape>> {
        let given: Vec<&str> = [
            ("ramp", self.ramp.is_some()),
            ("step", self.step.is_some()),
            ("spike", self.spike.is_some()),
            ("rate", self.rate.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_given)| is_given.then_some(name))
        .collect();
        if given.len() > 1 && self.find_max != Some(true) {
            return Err(fault(
                given[1],
                format_args!("does not go with {}", given[0]),
            ));
        }
        let duration = self.duration_or_default()?;
        let shape = if let Some(Text(text)) = &self.ramp {
            let [from, to] = numbers("ramp", text)?;
            Shape::ramp(from, to, duration)
        } else if let Some(Text(text)) = &self.step {
            let [from, to, step] = numbers("step", text)?;
            if step == 0.0 || (to - from).abs() / step.abs() > 10_000.0 {
                return Err(fault("step", "makes no steps, or too many"));
            }
            Shape::steps(from, to, step, duration)
        } else if let Some(Text(text)) = &self.spike {
            let [base, peak] = numbers("spike", text)?;
            Shape::spike(base, peak, duration)
        } else {
            return Ok(None);
        };
        if shape.is_sound() {
            Ok(Some(shape))
        } else {
            Err(fault(given[0], "has no rate above 0"))
        }
    }

    fn mix(&self, is_affinity: bool) -> Outcome<Vec<Operation>> {
        if !self.operation.is_empty() {
            return operations(&self.operation);
        }
        let check = match read("expect", &self.expect, check)? {
            Some(check) => check,
            None if is_affinity => Check::Counter,
            None => Check::Success,
        };
        let (tool, arguments) = if is_affinity {
            ("increment", "{}")
        } else {
            ("echo", r#"{"text":"hello"}"#)
        };
        let payload = read("payload", &self.payload, str::parse::<Sizes>)?;
        let default = || Ok::<_, ScenarioFault>(vec![(Method::CallTool, 1.0)]);
        let mix = read("mix", &self.mix, parse_mix)?.map_or_else(default, Ok)?;
        let operations = mix.into_iter().map(|(method, weight)| {
            let plain = Operation {
                weight,
                ..Operation::of(method)
            };
            match method {
                Method::CallTool => Operation {
                    target: self.tool.clone().unwrap_or_else(|| tool.to_owned()),
                    arguments: self
                        .arguments
                        .clone()
                        .unwrap_or_else(|| arguments.to_owned()),
                    payload,
                    check,
                    ..plain
                },
                _ => plain,
            }
        });
        Ok(operations.collect())
    }

    fn tokens(&self) -> Outcome<Vec<String>> {
        let users = positive("users", self.users, 1)?;
        if users > USERS_MAX {
            return Err(fault("users", "are too many"));
        }
        match (&self.token_file, &self.jwt_key_file) {
            (Some(_), Some(_)) => Err(fault("jwt-key-file", "does not go with token-file")),
            (Some(path), None) => read_tokens(path).map_err(|error| fault("token-file", error)),
            (None, Some(path)) => {
                let defaults = Claims::default();
                let claims = Claims {
                    subject: self.jwt_subject.clone().unwrap_or(defaults.subject),
                    issuer: self.jwt_issuer.clone().unwrap_or(defaults.issuer),
                    audience: self.jwt_audience.clone().unwrap_or(defaults.audience),
                };
                Signer::read(path)
                    .and_then(|signer| signer.mint_all(&claims, users, unix_s()))
                    .map_err(|error| fault("jwt-key-file", error))
            }
            (None, None) if self.users.is_some() => Err(fault(
                "users",
                "have no tokens: give jwt-key-file or token-file",
            )),
            (None, None) => Ok(Vec::new()),
        }
    }
}

impl Resolved {
    /// What only shows when everything is known.
    fn check(&self) -> Outcome<()> {
        let options = &self.options;
        let is_open = options.rate.is_some()
            || options.shape.is_some()
            || matches!(self.load, Load::FindMax(_));
        if options
            .rate
            .is_some_and(|rate| !(rate > 0.0 && rate.is_finite()))
        {
            return Err(fault("rate", "must be above 0"));
        }
        if is_open && !options.think.is_none() {
            return Err(fault("think", "is for a closed loop: leave the rate out"));
        }
        if is_open && options.rhythm == Rhythm::Agent {
            return Err(fault(
                "profile",
                "agent is for a closed loop: leave the rate out",
            ));
        }
        if let Some((key, why)) = options.not_of_era() {
            return Err(fault(key, why));
        }
        for operation in &options.mix {
            let parsed = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(
                &operation.arguments,
            );
            parsed
                .map_err(|error| fault("arguments", format_args!("are no JSON object: {error}")))?;
        }
        Ok(())
    }
}

/// An `[[operation]]` as an operation.
pub(super) fn operation(entry: &OperationEntry) -> Outcome<Operation> {
    let method: Method = entry
        .method
        .parse()
        .map_err(|error| fault("method", error))?;
    let plain = Operation::of(method);
    let target = [
        ("tool", &entry.tool, Method::CallTool),
        ("prompt", &entry.prompt, Method::GetPrompt),
        ("uri", &entry.uri, Method::ReadResource),
    ];
    for (key, value, of) in &target {
        if value.is_some() && *of != method {
            return Err(fault(key, format_args!("is for {} only", of.name())));
        }
    }
    let target = target
        .into_iter()
        .find_map(|(_, value, _)| value.clone())
        .unwrap_or(plain.target);
    let has_arguments = matches!(method, Method::CallTool | Method::GetPrompt);
    let arguments = match &entry.arguments {
        Some(_) if !has_arguments => {
            return Err(fault(
                "arguments",
                "are for tools/call and prompts/get only",
            ));
        }
        Some(table) => serde_json::to_string(table).map_err(|error| fault("arguments", error))?,
        None if method == Method::CallTool && entry.tool.is_none() => {
            r#"{"text":"hello"}"#.to_owned()
        }
        None => plain.arguments,
    };
    for (key, is_given) in [
        ("payload", entry.payload.is_some()),
        ("expect", entry.expect.is_some()),
    ] {
        if is_given && method != Method::CallTool {
            return Err(fault(key, "is for tools/call only"));
        }
    }
    let weight = entry.weight.unwrap_or(1.0);
    if !(weight > 0.0 && weight.is_finite()) {
        return Err(fault("weight", "must be above 0"));
    }
    Ok(Operation {
        name: entry.name.clone().unwrap_or(plain.name),
        method,
        target,
        arguments,
        payload: read("payload", &entry.payload, str::parse::<Sizes>)?,
        check: read("expect", &entry.expect, check)?.unwrap_or_default(),
        weight,
    })
}

pub(super) fn fault(key: &str, what: impl Display) -> ScenarioFault {
    ScenarioFault(format!("{key} {what}"))
}

pub(super) fn read<T, E: Display>(
    key: &str,
    text: &Option<Text>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Outcome<Option<T>> {
    let text = text.as_ref();
    text.map(|Text(text)| parse(text).map_err(|error| ScenarioFault(format!("{key}: {error}"))))
        .transpose()
}

fn time(key: &str, text: &Option<Text>) -> Outcome<Option<Duration>> {
    read(key, text, seconds_or_time)
}

fn positive<T: From<u8> + PartialEq>(key: &str, given: Option<T>, default: T) -> Outcome<T> {
    match given {
        Some(zero) if zero == T::from(0) => Err(fault(key, "must be above 0")),
        given => Ok(given.unwrap_or(default)),
    }
}

fn numbers<const N: usize>(key: &str, text: &str) -> Outcome<[f64; N]> {
    let parts: Option<Vec<f64>> = text
        .split(':')
        .map(|part| part.trim().parse().ok().filter(|one: &f64| *one >= 0.0))
        .collect();
    parts
        .and_then(|parts| parts.try_into().ok())
        .ok_or_else(|| {
            fault(
                key,
                format_args!("`{text}`: {N} rates with colons between them"),
            )
        })
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text {
        "constant" => Ok(Arrivals::Constant),
        "poisson" => Ok(Arrivals::Poisson),
        other => Err(format!("`{other}` is neither constant nor poisson")),
    }
}

fn rhythm(text: &str) -> Result<Rhythm, String> {
    match text {
        "steady" => Ok(Rhythm::Steady),
        "agent" => Ok(Rhythm::Agent),
        other => Err(format!("`{other}` is neither steady nor agent")),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    [
        Pattern::Sticky,
        Pattern::Spread,
        Pattern::Pooled,
        Pattern::Fresh,
    ]
    .into_iter()
    .find(|pattern| pattern.name() == text)
    .ok_or_else(|| format!("`{text}` is none of sticky, spread, pooled, fresh"))
}

fn check(text: &str) -> Result<Check, String> {
    match text {
        "success" => Ok(Check::Success),
        "echo" => Ok(Check::Echo),
        "counter" => Ok(Check::Counter),
        size => parse_bytes(size)
            .map(Check::Bytes)
            .ok_or_else(|| format!("`{size}` is none of success, echo, counter, or a size")),
    }
}

fn start_at(unix_s: u64) -> Outcome<SystemTime> {
    UNIX_EPOCH
        .checked_add(Duration::from_secs(unix_s))
        .ok_or_else(|| fault("start-at", "is no time"))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
