//! `loadgen run`: one run, or a search for the highest rate.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Args;

use super::{EXIT_CODES, EXIT_SETUP, complain, say};
use crate::{
    exchange::Secret,
    record::{FoundMax, Step},
    report::{folder, hgrm},
    run::{Progress, Report, start},
    scenario::{Load, Plan, Resolved, Secrets},
    search::{Found, SearchOptions, find_max},
    stages,
    verdict::{self, Outcome, judge},
};

const LESSON: &str = "\
Two ways to load:
  Open loop (--rate, --ramp, --step, --spike): calls start when they are due, whatever the server
  does, and response times count from then. A stall makes the calls behind it late, and the report
  shows it. Use it to learn what users will see at a rate.
  Closed loop (--callers alone): each caller calls again when its reply has come. A stall stops the
  callers, so few calls see it. Use it to learn what a server can do at most.

Examples:
  What one caller sees, for ten seconds:
    loadgen run http://127.0.0.1:8900/servers/main/mcp
  500 calls per second from independent clients, an objective, and a folder with everything:
    loadgen run URL --rate 500 --arrivals poisson --duration 60s --warm-up 5s \\
        --slo 'p99=5ms,errors=0.1%' --out run-1
  The highest rate that meets an objective:
    loadgen run URL --find-max --slo 'p99=5ms,errors=0.1%'
  Sessions that come and go, lists and calls, arguments from 64 bytes to 64 KiB:
    loadgen run URL --callers 50 --mix tools/call=90,tools/list=5,initialize=5 \\
        --payload 64..64k --expect echo
  Agents that think between bursts of calls:
    loadgen run URL --callers 200 --profile agent --think exponential:3s --session-life 20
  Whether four shards keep sessions apart when every call comes over a foreign connection:
    loadgen run URL --check-affinity --target-shards 4 --callers 32
  A connection gateway: 50 clients that answer with five parts of 1 KiB, 2000 requests a second:
    LOADGEN_TOKEN=$AUTH_TOKEN LOADGEN_CONNECT_SECRET=$JWT_SECRET loadgen run http://HOST:3010 \\
        --clients-at ws://HOST:3011/connection-gateway/v1 --sessions 50 --rate 2000 \\
        --chunks 5 --chunk-bytes 1k
  From a file (`loadgen scenario` prints one that explains itself):
    loadgen run --scenario scenario.toml --rate 1000
  Two machines at once, then their sum:
    loadgen run URL --rate 5000 --start-at $(($(date +%s) + 10)) --out a   # and b, elsewhere
    loadgen join a b --out both --slo p99=5ms";

#[derive(Debug, Args)]
#[command(after_help = format!("{LESSON}\n\n{EXIT_CODES}"))]
pub(super) struct RunArguments {
    #[command(flatten)]
    plan: Plan,
    /// A file with any of the flags as keys; flags on the command line win.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Bearer token; better in the environment than on the command line.
    #[arg(long, env = "LOADGEN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Secret that signs connect tokens, the gateway's JWT_SECRET; better in the environment.
    #[arg(
        long,
        env = "LOADGEN_CONNECT_SECRET",
        hide_env_values = true,
        value_name = "SECRET",
        help_heading = "Connection gateway"
    )]
    connect_secret: Option<String>,
    /// Folder for the report: report.json, HdrHistogram logs and tables.
    #[arg(long, value_name = "FOLDER", help_heading = "Verdict")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long, help_heading = "Verdict")]
    json: bool,
    /// Do not tell how it goes (told once a second when standard error is a terminal).
    #[arg(long, help_heading = "Verdict")]
    quiet: bool,
}

/// Runs it; the exit code is the verdict.
pub(super) fn run(arguments: RunArguments) -> ExitCode {
    match attempt(arguments) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(fault) => {
            complain(fault);
            ExitCode::from(EXIT_SETUP)
        }
    }
}

/// How results are shown.
struct Manner {
    out: Option<PathBuf>,
    is_json: bool,
    is_watched: bool,
}

fn attempt(arguments: RunArguments) -> Result<Outcome, String> {
    let manner = Manner {
        is_json: arguments.json,
        is_watched: !arguments.quiet && io::stderr().is_terminal(),
        out: arguments.out,
    };
    let mut plan = arguments.plan;
    if let Some(path) = &arguments.scenario {
        let file = Plan::read(path).map_err(|fault| fault.to_string())?;
        plan = plan.over(file);
    }
    let secret = arguments.connect_secret.filter(|secret| !secret.is_empty());
    let secrets = Secrets {
        token: arguments.token,
        connect: secret.map(|secret| Secret(secret.into_bytes())),
    };
    let resolved = plan.resolve(secrets).map_err(|fault| fault.to_string())?;
    if let Some(path) = &manner.out {
        folder::prepare(path).map_err(|fault| fault.to_string())?;
    }
    match resolved.load {
        Load::Run { is_soak, has_steps } => one(resolved, &manner, is_soak, has_steps),
        Load::FindMax(search) => search_max(&resolved, search, &manner),
    }
}

fn one(
    resolved: Resolved,
    manner: &Manner,
    is_soak: bool,
    has_steps: bool,
) -> Result<Outcome, String> {
    let Resolved { options, slo, .. } = resolved;
    let shape = options.shape.clone().filter(|_| has_steps);
    let mut ticker = Ticker::default();
    let running = start(options).map_err(|fault| fault.to_string())?;
    let report = running.wait_and_watch(|progress| {
        if manner.is_watched {
            ticker.tell(progress);
        }
    });
    let mut report = report.map_err(|fault| fault.to_string())?;
    if let Some(shape) = shape {
        report.recording.steps = stages::steps(&report.recording, &shape, &slo);
    }
    if is_soak {
        report
            .recording
            .verdicts
            .extend(stages::drift(&report.recording));
    }
    let outcome = judge(&mut report, &slo);
    save(manner, &report)?;
    if manner.is_json {
        say(with_verdicts(&report, outcome));
    } else {
        print(&report.to_text());
        if !report.recording.steps.is_empty() {
            print(&steps_text(&report.recording.steps));
        }
        print(&verdict::to_text(&report.recording));
        if outcome == Outcome::NotHonest {
            print(&why_not_honest(&report));
        }
    }
    Ok(outcome)
}

/// Which of the two it was that could not keep up.
fn why_not_honest(report: &Report) -> String {
    match report.own_limit() {
        Some(_) => "the generator was the limit: its figures are not the server's\n".to_owned(),
        None => "all callers were waiting for the server when calls were due: more --callers, or \
                 a lower rate\n"
            .to_owned(),
    }
}

fn search_max(
    resolved: &Resolved,
    search: SearchOptions,
    manner: &Manner,
) -> Result<Outcome, String> {
    let Resolved { options, slo, .. } = resolved;
    let found = find_max(options, search, slo, |step| {
        if !manner.is_json {
            print(&step_line(step));
        }
    });
    let mut found = found.map_err(|fault| fault.to_string())?;
    // Writes the verdicts of the best run into its recording.
    let best = judge(&mut found.best, slo);
    save(manner, &found.best)?;
    let outcome = outcome_of(&found, best);
    if manner.is_json {
        say(with_verdicts(&found.best, outcome));
    } else {
        print(&found_text(&found));
    }
    Ok(outcome)
}

fn outcome_of(found: &Found, best: Outcome) -> Outcome {
    if found.is_wrong {
        Outcome::Broken
    } else if found.own_limit.is_some() {
        Outcome::NotHonest
    } else if found.max.last_good.is_none() {
        Outcome::Broken
    } else {
        best
    }
}

fn found_text(found: &Found) -> String {
    let FoundMax {
        slo,
        last_good,
        first_bad,
        knee,
    } = &found.max;
    let show = |rate: &Option<f64>| {
        rate.map_or_else(|| "none".to_owned(), |rate| format!("{rate:.0} calls/s"))
    };
    let mut text = format!(
        "objective  {slo}\nlast good  {}\nfirst bad  {}\nknee       {}\n",
        show(last_good),
        show(first_bad),
        show(knee)
    );
    if let Some(limit) = &found.own_limit {
        text += &format!("note: {limit}\n");
    }
    if found.is_wrong {
        text += "replies were wrong: the search was ended\n";
    }
    if first_bad.is_none() {
        text += "the search ended at its highest rate: raise --rate-max\n";
    }
    text
}

fn save(manner: &Manner, report: &Report) -> Result<(), String> {
    let Some(path) = &manner.out else {
        return Ok(());
    };
    folder::write(path, &report.recording).map_err(|fault| fault.to_string())?;
    let tables = [
        ("first_byte.hgrm", &report.first_byte),
        ("stream_gap.hgrm", &report.stream_gap),
    ];
    let tables = tables
        .into_iter()
        .filter_map(|(name, times)| Some((name, hgrm::to_text(times.as_ref()?))));
    let violations: String = report
        .violations
        .iter()
        .map(|violation| format!("{violation}\n"))
        .collect();
    let violations = (!violations.is_empty()).then_some(("violations.txt", violations));
    for (name, text) in tables.chain(violations) {
        let file = path.join(name);
        fs::write(&file, text).map_err(|fault| format!("{}: {fault}", file.display()))?;
    }
    Ok(())
}

fn with_verdicts(report: &Report, outcome: Outcome) -> serde_json::Value {
    let mut value = report.to_json();
    value["verdicts"] = serde_json::json!(report.recording.verdicts);
    value["steps"] = serde_json::json!(report.recording.steps);
    value["found_max"] = serde_json::json!(report.recording.found_max);
    value["exit_code"] = outcome.exit_code().into();
    value
}

fn steps_text(steps: &[Step]) -> String {
    let lines: String = steps.iter().map(step_line).collect();
    format!("stages:\n{lines}")
}

fn step_line(step: &Step) -> String {
    let mark = if step.is_met { "ok    " } else { "BROKEN" };
    let remark = if step.remark.is_empty() {
        String::new()
    } else {
        format!("  {}", step.remark)
    };
    format!(
        "{mark} {:>9.0} calls/s  {:>9.0} good/s  p50 {:>9.3} ms  p99 {:>9.3} ms  errors {:.2} %{remark}\n",
        step.rate,
        step.good_per_s,
        step.p50_us / 1000.0,
        step.p99_us / 1000.0,
        step.error_share * 100.0
    )
}

fn print(text: &str) {
    // A closed pipe is the reader's choice.
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Tells each second what happened since the last.
#[derive(Default)]
struct Ticker {
    before: Progress,
}

impl Ticker {
    fn tell(&mut self, now: Progress) {
        let before = std::mem::replace(&mut self.before, now);
        let _ = writeln!(io::stderr(), "{}", Self::line(&before, &now));
    }

    fn line(before: &Progress, now: &Progress) -> String {
        let seconds = (now.elapsed - before.elapsed).as_secs_f64().max(1e-9);
        let calls = now.calls - before.calls;
        let errors = now.errors - before.errors;
        let good = calls.saturating_sub(errors);
        let mean = (now.response_ns - before.response_ns).checked_div(good);
        format!(
            "{:>5} s  {:>8.0} calls/s  mean {:>9}  {errors} errors",
            Duration::as_secs(&now.elapsed),
            calls as f64 / seconds,
            mean.map_or_else(|| "-".to_owned(), crate::units::show_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        arguments: RunArguments,
    }

    fn resolve(line: &str) -> Result<Resolved, String> {
        let probe = Probe::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let plan = probe.arguments.plan;
        plan.resolve(Secrets::default())
            .map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_command_line_becomes_options() {
        let resolved = resolve(
            "x http://h/mcp -c 8 -r 500 -d 2.5 --connections spread --cpu-list 0-1 \
             --io-driver epoll --expect 200 --mix tools/call=9,ping --target-shards 4",
        );
        let options = resolved.unwrap().options;
        assert_eq!((options.connections, options.rate), (8, Some(500.0)));
        assert_eq!(options.duration, Some(Duration::from_millis(2500)));
        assert_eq!(options.pattern, crate::run::Pattern::Spread);
        assert_eq!(options.cpus, Some(vec![0, 1]));
        assert_eq!(options.driver, shards::DriverChoice::Epoll);
        assert_eq!(options.mix[0].check, crate::run::Check::Bytes(200));
        assert_eq!(options.target_shards, Some(4));
        let counted = resolve("x u --calls 5").unwrap().options;
        assert_eq!((counted.duration, counted.calls), (None, Some(5)));
        let search = resolve("x u --find-max --slo p99=5ms -r 50").unwrap();
        assert!(matches!(search.load, Load::FindMax(search) if search.start == 50.0));
        let soak = resolve("x u --soak -r 50").unwrap();
        assert!(matches!(soak.load, Load::Run { is_soak: true, .. }));
    }

    #[test]
    fn no_help_is_broken_where_it_says_something_in_braces() {
        // clap takes an n in braces for a line break.
        for argument in Probe::command().get_arguments() {
            let help = argument.get_help().unwrap().to_string();
            assert!(!help.contains('\n'), "{help}");
        }
    }

    #[test]
    fn a_second_is_told_in_a_line() {
        let second = Duration::from_secs(1);
        let before = Progress {
            elapsed: second,
            calls: 100,
            errors: 1,
            response_ns: 0,
        };
        let now = Progress {
            elapsed: 2 * second,
            calls: 300,
            errors: 1,
            response_ns: 200 * 5_000_000,
        };
        let line = Ticker::line(&before, &now);
        assert_eq!(line, "    2 s       200 calls/s  mean   5.00 ms  0 errors");
        assert!(Ticker::line(&now, &now).contains("mean         -"));
    }
}
