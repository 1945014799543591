//! `bench instructions`.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{EXIT_NOTHING, EXIT_SKIPPED};
use crate::{
    instructions::{
        CountOptions, Input,
        budget::{Budget, Standing},
        callgrind, count,
    },
    machine::{Facts, version_of},
};

/// An input takes more than its budget.
const EXIT_ABOVE: u8 = 1;
/// What V9 of the targets is to come to.
const GOAL: (Input, f64) = (Input::Small, 20_000.0);

const LESSON: &str = "\
What is counted:
  Instructions of the gateway's process outside the kernel, for one call, by valgrind's callgrind. The
  gateway runs twice for each input, with calls that differ in number alone; the figure is the
  difference of its instructions by that of its calls, so starting and ending it fall out. Client and
  backend run on the same core, when the gateway sleeps: the count is the same on an idle and on a
  busy machine, to about a hundredth.

Inputs:
  json200     a JSON reply of 200 bytes
  json16k     a JSON reply of 16 KiB
  progress    an event stream: three progress notifications and a reply of 200 bytes
  forwarded   json200 for a session that the other of two shards owns; both shards count
  stateless   json200 without a session, as revision 2026-07-28 has it
  exchange    an exchange of the connection gateway: a request, three parts of its answer, the end

Examples:
  Whether a change made calls dearer (what continuous integration asks):
    cargo build --release && cargo run --release -p bench -- instructions --check
  After a change that is worth its price, or that made calls cheaper:
    cargo run --release -p bench -- instructions --record
  Where the instructions go, by function:
    cargo build --profile profiling
    bench instructions --gateway target/profiling/shardgate --only json200 --keep counts
    callgrind_annotate counts/callgrind.json200.5000

Exit codes: 0 counted, and within the budget when that was asked; 1 above it; 3 nothing could be
counted; 77 valgrind is not installed.";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DriverName {
    /// What valgrind and every machine can do.
    Epoll,
    /// Where the machine allows it; the budget is not for it.
    IoUring,
}

#[derive(Debug, Args)]
#[command(after_help = LESSON)]
pub(super) struct InstructionsArguments {
    /// End with 1 when an input takes more than its budget and the margin.
    #[arg(long)]
    check: bool,
    /// Write what was counted into the budget; the margin stays.
    #[arg(long, conflicts_with = "check")]
    record: bool,
    /// The budget.
    #[arg(long, value_name = "FILE", default_value = "bench/instructions.toml")]
    budget: PathBuf,
    /// The gateway's release binary: a debug build does several times the work.
    #[arg(long, default_value = "target/release/shardgate")]
    gateway: PathBuf,
    /// Inputs to count, as json200,forwarded; none: all.
    #[arg(long, value_delimiter = ',', value_parser = input)]
    only: Vec<Input>,
    /// I/O driver of the gateway.
    #[arg(long, value_enum, default_value = "epoll")]
    io_driver: DriverName,
    /// Calls by which the two runs of an input differ; the shorter has 1000.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    calls: u32,
    /// Core of everything.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Keep callgrind's files in this folder, for callgrind_annotate.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

fn input(text: &str) -> Result<Input, String> {
    Input::named(text.trim()).ok_or_else(|| {
        let known = Input::ALL.map(Input::name);
        format!("one of {}", known.join(", "))
    })
}

/// Counts; the exit code is the verdict.
pub(super) fn run(arguments: InstructionsArguments) -> ExitCode {
    let Some(valgrind) = callgrind::version() else {
        eprintln!("bench: skipped, valgrind is not installed (Debian: apt-get install valgrind)");
        return ExitCode::from(EXIT_SKIPPED);
    };
    match attempt(&arguments, &valgrind) {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("bench: {fault}");
            ExitCode::from(EXIT_NOTHING)
        }
    }
}

fn attempt(arguments: &InstructionsArguments, valgrind: &str) -> Result<ExitCode, String> {
    let options = CountOptions {
        gateway: arguments.gateway.clone(),
        driver: match arguments.io_driver {
            DriverName::Epoll => "epoll",
            DriverName::IoUring => "io-uring",
        },
        cpu: arguments.cpu,
        calls: arguments.calls,
        keep: arguments.keep.clone(),
    };
    let mut budget = match fs::read_to_string(&arguments.budget) {
        Ok(text) => Some(Budget::parse(&text).map_err(|fault| fault.to_string())?),
        Err(fault) if arguments.check => {
            return Err(format!("{}: {fault}", arguments.budget.display()));
        }
        Err(_) => None,
    };
    // Asking for a check of another driver would compare what cannot be compared.
    if (arguments.check || arguments.record) && options.driver != "epoll" {
        return Err("the budget is for the epoll driver".to_owned());
    }
    let inputs = if arguments.only.is_empty() {
        Input::ALL.to_vec()
    } else {
        arguments.only.clone()
    };
    let mut counted = Vec::new();
    for input in inputs {
        let mut instructions = count(&options, input).map_err(|fault| fault.to_string())?;
        let is_above = |instructions| {
            budget.as_ref().is_some_and(|budget| {
                matches!(budget.standing(input, instructions), Standing::Above(_))
            })
        };
        // What disturbs a count only ever adds to it, so the lesser of two is the better one.
        if arguments.check && is_above(instructions) {
            let again = count(&options, input).map_err(|fault| fault.to_string())?;
            instructions = instructions.min(again);
        }
        counted.push((input, instructions));
    }
    if arguments.record {
        budget = Some(record(arguments, budget.as_ref(), &counted, valgrind)?);
    }
    if arguments.json {
        let mut facts = Facts::here(&options.gateway);
        facts.add("valgrind", valgrind);
        facts.add("driver", options.driver);
        println!("{}", to_json(budget.as_ref(), &counted, facts.to_json()));
    } else {
        print!("{}", to_text(budget.as_ref(), &counted));
    }
    let is_above = |(input, count): &(Input, f64)| {
        budget
            .as_ref()
            .is_some_and(|budget| matches!(budget.standing(*input, *count), Standing::Above(_)))
    };
    Ok(if arguments.check && counted.iter().any(is_above) {
        ExitCode::from(EXIT_ABOVE)
    } else {
        ExitCode::SUCCESS
    })
}

/// Puts the counts into the budget's file and gives that; inputs that were not counted stay as they
/// are.
fn record(
    arguments: &InstructionsArguments,
    budget: Option<&Budget>,
    counted: &[(Input, f64)],
    valgrind: &str,
) -> Result<Budget, String> {
    let compiler = version_of("rustc".as_ref(), "--version");
    let recorded_with = format!(
        "{}, {valgrind}, {}",
        compiler.unwrap_or_else(|| "an unknown compiler".to_owned()),
        std::env::consts::ARCH
    );
    let mut new = Budget {
        margin_percent: budget.map_or(3.0, |budget| budget.margin_percent),
        recorded_with,
        instructions: budget.map_or_else(Default::default, |budget| budget.instructions.clone()),
    };
    for (input, count) in counted {
        // A count is far below 2^53.
        let rounded = (count / 10.0).round() as u64 * 10;
        new.instructions.insert(input.name().to_owned(), rounded);
    }
    fs::write(&arguments.budget, new.to_text())
        .map_err(|fault| format!("{}: {fault}", arguments.budget.display()))?;
    Ok(new)
}

fn to_text(budget: Option<&Budget>, counted: &[(Input, f64)]) -> String {
    let mut text = format!("{:<12} {:>17} {:>10}\n", "", "instructions/call", "budget");
    for (input, count) in counted {
        let limit = budget.and_then(|budget| budget.limit(*input));
        let limit = limit.map_or_else(|| "-".to_owned(), |limit| format!("{limit:.0}"));
        let verdict = match budget.map(|budget| budget.standing(*input, *count)) {
            Some(Standing::Above(over)) => {
                format!("ABOVE: {over:.1} % more than was recorded")
            }
            Some(Standing::Loose(under)) => {
                format!("{under:.1} % less than was recorded: --record the gain")
            }
            Some(Standing::Within) => "ok".to_owned(),
            Some(Standing::Unknown) | None => String::new(),
        };
        let row = format!("{:<12} {count:>17.0} {limit:>10}  {verdict}", input.name());
        text.push_str(row.trim_end());
        text.push('\n');
    }
    let (input, goal) = GOAL;
    if let Some((_, count)) = counted.iter().find(|(known, _)| *known == input) {
        text.push_str(&format!("V9    {count:.0} (goal {goal:.0})\n"));
    }
    if let Some(budget) = budget {
        text.push_str(&format!("budget recorded with {}\n", budget.recorded_with));
    }
    text
}

fn to_json(budget: Option<&Budget>, counted: &[(Input, f64)], machine: Value) -> Value {
    let mut inputs = Map::new();
    for (input, count) in counted {
        let standing = budget.map(|budget| budget.standing(*input, *count));
        let row = json!({
            "instructions": count,
            "budget": budget.and_then(|budget| budget.limit(*input)),
            "above_percent": match standing {
                Some(Standing::Above(over)) => Some(over),
                _ => None,
            },
        });
        inputs.insert(input.name().to_owned(), row);
    }
    json!({"inputs": inputs, "machine": machine})
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        arguments: InstructionsArguments,
    }

    #[test]
    fn command_lines() {
        let parse = |line: &str| Probe::try_parse_from(line.split(' '));
        let arguments = parse("x --only json200,forwarded --check")
            .unwrap()
            .arguments;
        assert_eq!(arguments.only, [Input::Small, Input::Forwarded]);
        for line in [
            "x --only json",
            "x --check --record",
            "x --calls 1",
            "x --io-driver kqueue",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn tables_and_objects_say_what_is_above() {
        let budget = Budget {
            margin_percent: 3.0,
            recorded_with: "a compiler".to_owned(),
            instructions: [
                ("json200".to_owned(), 20_000),
                ("json16k".to_owned(), 30_000),
            ]
            .into(),
        };
        let counted = [
            (Input::Small, 22_000.0),
            (Input::Large, 27_000.0),
            (Input::Progress, 1.0),
        ];
        let text = to_text(Some(&budget), &counted);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(
            row("json200").ends_with("20600  ABOVE: 10.0 % more than was recorded"),
            "{text}"
        );
        assert!(
            row("json16k").contains("10.0 % less than was recorded"),
            "{text}"
        );
        assert!(row("progress").ends_with("1          -"), "{text}");
        assert!(row("V9").ends_with("22000 (goal 20000)"), "{text}");
        let json = to_json(Some(&budget), &counted, Value::Null);
        let above = json["inputs"]["json200"]["above_percent"].as_f64().unwrap();
        assert!((above - 10.0).abs() < 1e-6);
        assert!(json["inputs"]["json16k"]["above_percent"].is_null());
    }
}
