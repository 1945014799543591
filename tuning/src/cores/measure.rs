//! The measurement itself: for each number of shards a gateway and a backend as processes of their
//! own, and the load generator in this one.
//!
//! The gateway gets the first cores, one a shard. Backend and generator share what is left; when
//! nothing is left all compete, which is told with every point.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use loadgen::{
    run::{Pattern, Report, RunOptions, start},
    search::{Search, SearchOptions},
};

use super::child::Process;
use crate::{
    cli::{Gateway, Prepared},
    measured::Measured,
    model::{Point, curve::Objective},
    plan::cpu_list,
    scrape::Metrics,
};

/// What to measure.
#[derive(Debug, Clone)]
pub(crate) struct Campaign {
    /// Numbers of shards.
    pub(crate) shards: Vec<u16>,
    /// What has to be kept.
    pub(crate) objective: Objective,
    /// Cores to use, the shards' first.
    pub(crate) cpus: Vec<usize>,
    /// Length of one try, after its warm-up.
    pub(crate) probe: Duration,
    /// Warm-up of a try.
    pub(crate) warm_up: Duration,
    /// Tries of a search at the most.
    pub(crate) tries: u32,
    /// Kept connections, each with a session.
    pub(crate) connections: u32,
    /// How calls spread over connections.
    pub(crate) pattern: Pattern,
    /// The first rate of each search, for one shard.
    pub(crate) first_rate: f64,
    /// The program that is gateway and backend.
    pub(crate) program: PathBuf,
    /// Where files of the processes go.
    pub(crate) folder: PathBuf,
}

/// Shares of the capacity that are tried for the curve.
const CURVE_SHARES: [f64; 4] = [0.25, 0.5, 0.65, 0.8];
/// A rate this near to one that was tried is not tried again.
const NEAR: f64 = 0.07;
/// Good and bad of a search end this close, as a share of the good rate.
const PRECISION: f64 = 0.1;
/// Longer than any reply of a gateway that still works.
const REPLY_MAX: Duration = Duration::from_secs(5);

/// Measures. `watch` is told each point.
pub(crate) fn measure(
    campaign: &Campaign,
    gateway: &Gateway,
    mut watch: impl FnMut(&Point),
) -> Result<Measured, String> {
    let mut measured = Measured {
        cores: u16::try_from(campaign.cpus.len()).ok(),
        pattern: Some(campaign.pattern.name().to_owned()),
        ..Measured::begin()
    };
    for &shards in &campaign.shards {
        let mut rig = Rig::start(campaign, gateway, shards)?;
        let mut points: Vec<Point> = Vec::new();
        let mut search = Search::new(SearchOptions {
            start: campaign.first_rate * f64::from(shards),
            probe: campaign.probe,
            precision: PRECISION,
            tries_max: campaign.tries,
            ..SearchOptions::default()
        });
        while let Some(rate) = search.next_rate() {
            let is_met = rig.try_twice(rate, &mut points, &mut watch)?;
            search.note(rate, is_met);
        }
        if let Some(capacity) = search.last_good() {
            for share in CURVE_SHARES {
                let rate = capacity * share;
                let is_near = |point: &Point| (point.rate / rate - 1.0).abs() < NEAR;
                if !points.iter().any(is_near) {
                    rig.try_twice(rate, &mut points, &mut watch)?;
                }
            }
        }
        measured.points.extend(points);
    }
    if measured.points.iter().any(|point| point.is_shared) {
        measured.remarks.push(
            "load generator and backend ran on the shards' cores: a machine with twice the cores \
             shows more"
                .to_owned(),
        );
    }
    Ok(measured)
}

/// A gateway with its backend, up and listening.
struct Rig<'a> {
    campaign: &'a Campaign,
    shards: u16,
    generator_cpus: Option<Vec<usize>>,
    is_shared: bool,
    gateway: Process,
    /// Held for as long as the gateway asks it.
    _backend: Process,
    admin: SocketAddr,
    url: String,
    token: String,
}

impl<'a> Rig<'a> {
    fn start(campaign: &'a Campaign, gateway: &Gateway, shards: u16) -> Result<Self, String> {
        let cores = Cores::divide(&campaign.cpus, shards);
        let folder = campaign.folder.join(format!("shards-{shards}"));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let mut arguments = words(&["loadgen", "backend", "--address", "127.0.0.1:0"]);
        if let Some(cpus) = &cores.backend {
            arguments.extend(words(&["--cpu-list", &cpu_list(cpus)]));
            arguments.extend(words(&["--shards", &cpus.len().to_string()]));
        }
        let backend = Process::start("backend", &campaign.program, &arguments, &folder)?;
        let line = backend.line_with("http://")?;
        let backend_url = line
            .split_whitespace()
            .find(|word| word.starts_with("http://"))
            .ok_or("the backend does not say where it is")?
            .to_owned();
        let Prepared {
            arguments: prepared,
            token,
            path,
        } = (gateway.prepare)(&folder, &backend_url)?;
        let mut arguments = words(&["serve", "--address", "127.0.0.1:0"]);
        arguments.extend(words(&["--admin-address", "127.0.0.1:0"]));
        arguments.extend(words(&["--shards", &shards.to_string()]));
        match &cores.gateway {
            Some(cpus) => arguments.extend(words(&["--cpu-list", &cpu_list(cpus)])),
            None => arguments.extend(words(&["--no-pin"])),
        }
        arguments.extend(prepared);
        let process = Process::start("gateway", &campaign.program, &arguments, &folder)?;
        let address = address_in(&process.line_with("listening on http://")?)?;
        let admin = address_in(&process.line_with("admin on http://")?)?;
        Ok(Self {
            campaign,
            shards,
            is_shared: cores.backend.is_none(),
            generator_cpus: cores.generator,
            gateway: process,
            _backend: backend,
            admin,
            url: format!("http://{address}{path}"),
            token,
        })
    }

    /// Holds a rate, and once more when it was not kept: one disturbance is no limit.
    fn try_twice(
        &mut self,
        rate: f64,
        points: &mut Vec<Point>,
        watch: &mut impl FnMut(&Point),
    ) -> Result<bool, String> {
        for _ in 0..2 {
            let point = self.probe(rate)?;
            watch(&point);
            points.push(point);
            if point.is_met {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Holds a rate for a while.
    fn probe(&mut self, rate: f64) -> Result<Point, String> {
        let campaign = self.campaign;
        let running = start(RunOptions {
            url: self.url.clone(),
            token: Some(self.token.clone()),
            connections: campaign.connections,
            shards: self
                .generator_cpus
                .as_ref()
                .map_or(1, |cpus| u16::try_from(cpus.len()).unwrap_or(1)),
            cpus: self.generator_cpus.clone(),
            rate: Some(rate),
            duration: Some(campaign.probe),
            warm_up: campaign.warm_up,
            pattern: campaign.pattern,
            limit: REPLY_MAX,
            ..RunOptions::default()
        })
        .map_err(|fault| self.explain(&fault.to_string()))?;
        thread::sleep(campaign.warm_up);
        let before = self.read()?;
        // A little before the end, so that no pause after it is in the busy share.
        thread::sleep(campaign.probe.mul_f64(0.8));
        let after = self.read()?;
        let report = running
            .wait()
            .map_err(|fault| self.explain(&fault.to_string()))?;
        Ok(self.point(rate, &report, &before, &after))
    }

    fn read(&self) -> Result<(Instant, Metrics), String> {
        let metrics = Metrics::read(self.admin).map_err(|error| format!("the gateway: {error}"))?;
        Ok((Instant::now(), metrics))
    }

    fn explain(&mut self, fault: &str) -> String {
        let state = if self.gateway.is_running() {
            "runs"
        } else {
            "has ended"
        };
        format!("{} shards: {fault} (the gateway {state})", self.shards)
    }

    fn point(
        &self,
        rate: f64,
        report: &Report,
        (began, before): &(Instant, Metrics),
        (ended, after): &(Instant, Metrics),
    ) -> Point {
        let seconds = ended.duration_since(*began).as_secs_f64();
        let growth = |name: &str| Some((after.sum(name)? - before.sum(name)?).max(0.0));
        let cpu = "shardgate_shard_cpu_seconds_total";
        let busy: Vec<f64> = after
            .values(cpu)
            .iter()
            .zip(before.values(cpu))
            .map(|(after, before)| ((after - before) / seconds).clamp(0.0, 1.0))
            .collect();
        let forwarded = growth("shardgate_forwarded_total")
            .zip(growth("shardgate_requests_total"))
            .filter(|(_, requests)| *requests > 0.0)
            .map(|(forwarded, requests)| (forwarded / requests).min(1.0));
        let at = |quantile: f64| report.response.value_at_quantile(quantile) as f64 / 1000.0;
        let recording = &report.recording;
        let mut point = Point {
            shards: self.shards,
            rate,
            good_per_s: recording.good_per_s(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            error_share: recording.error_share(),
            sent_share: recording.sent_share(),
            busy: (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64),
            busiest: busy.iter().copied().reduce(f64::max),
            forwarded,
            ring_full: growth("shardgate_ring_full_total").map(|count| count as u64),
            resident: self.gateway.resident(),
            // At the later reading they may be ended already.
            sessions: before.sum("shardgate_sessions").map(|count| count as u64),
            is_shared: self.is_shared,
            is_met: false,
        };
        point.is_met = self.campaign.objective.is_met(&point);
        point
    }
}

fn address_in(line: &str) -> Result<SocketAddr, String> {
    line.split_once("http://")
        .and_then(|(_, rest)| rest.split([' ', '/']).next()?.parse().ok())
        .ok_or_else(|| format!("no address in: {line}"))
}

/// Who gets which cores; `None`: wherever there is room.
#[derive(Debug, PartialEq, Eq)]
struct Cores {
    gateway: Option<Vec<usize>>,
    backend: Option<Vec<usize>>,
    generator: Option<Vec<usize>>,
}

impl Cores {
    fn divide(cpus: &[usize], shards: u16) -> Self {
        let shards = usize::from(shards);
        let Some((gateway, rest)) = cpus.split_at_checked(shards) else {
            return Self {
                gateway: None,
                backend: None,
                generator: None,
            };
        };
        let gateway = Some(gateway.to_vec());
        match rest {
            [] => Self {
                gateway,
                backend: None,
                generator: None,
            },
            [one] => Self {
                gateway,
                backend: Some(vec![*one]),
                generator: Some(vec![*one]),
            },
            several => {
                let (generator, backend) = several.split_at(several.len() / 2);
                Self {
                    gateway,
                    backend: Some(backend.to_vec()),
                    generator: Some(generator.to_vec()),
                }
            }
        }
    }
}

/// A folder of our own, gone when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("shardgate-cores-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only files this run made are in it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_go_to_the_gateway_first_and_the_rest_is_shared_out() {
        let divide = |count: usize, shards| Cores::divide(&(0..count).collect::<Vec<_>>(), shards);
        let lists = |gateway: Option<&[usize]>,
                     backend: Option<&[usize]>,
                     generator: Option<&[usize]>| Cores {
            gateway: gateway.map(<[usize]>::to_vec),
            backend: backend.map(<[usize]>::to_vec),
            generator: generator.map(<[usize]>::to_vec),
        };
        assert_eq!(divide(2, 1), lists(Some(&[0]), Some(&[1]), Some(&[1])));
        assert_eq!(divide(2, 2), lists(Some(&[0, 1]), None, None));
        assert_eq!(divide(2, 3), lists(None, None, None));
        assert_eq!(
            divide(6, 2),
            lists(Some(&[0, 1]), Some(&[4, 5]), Some(&[2, 3]))
        );
    }

    #[test]
    fn addresses_are_read_from_what_the_gateway_prints() {
        let line = "  admin on http://127.0.0.1:99 (/livez /readyz /metrics)";
        assert_eq!(address_in(line).unwrap().port(), 99);
        assert_eq!(
            address_in("  listening on http://[::1]:8").unwrap().port(),
            8
        );
        assert!(address_in("nothing").is_err());
    }
}
