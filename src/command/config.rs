//! `shardgate config`: check documents and settings, print schemas, read and write users.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    command::{EXIT_USAGE, complain, print_notes, refuse, refuse_lines, say},
    config::{
        decode::{DecodeLimits, decode},
        document::Document,
        encode::{ArrayLayout, encode_array, encode_map},
        redis_key::user_key,
        schema,
        user_config::{DocumentRules, Finding, REVERSE_IS_OFF, Severity, UserConfig},
    },
    declared::{Report, ToolFault},
    prepare::{Prepared, document_rules, read_counted, read_documents},
    redis_tool,
    settings::{
        ConfigAction, Encoding, Environment, Flags, Purpose, SchemaOf, Settings, StoreSource,
    },
};

/// Does what the action says.
pub(crate) fn run(action: ConfigAction, flags: &Flags, environment: &Environment) -> ExitCode {
    match action {
        ConfigAction::Check { documents, json } => check(&documents, json, flags, environment),
        ConfigAction::Schema { of } => {
            let schema = match of {
                SchemaOf::Document => schema::document_schema(),
                SchemaOf::UserConfig => schema::user_config_schema(),
            };
            say(format_args!("{schema:#}"));
            ExitCode::SUCCESS
        }
        ConfigAction::Put {
            subject,
            input,
            encoding,
        } => put(&subject, &input, encoding, flags, environment),
        ConfigAction::Get { subject } => get(&subject, flags, environment),
    }
}

/// Checks named documents, or everything the settings name. 0, or 2 with a line for each fault, or
/// with all of them in one JSON object.
fn check(
    documents: &[PathBuf],
    as_json: bool,
    flags: &Flags,
    environment: &Environment,
) -> ExitCode {
    let found = if documents.is_empty() {
        checked_settings(flags, environment)
    } else {
        checked_documents(documents, rules_said(flags, environment))
    };
    if as_json {
        let report = found.report();
        let is_valid = report.valid;
        match serde_json::to_string_pretty(&report) {
            Ok(text) => say(text),
            Err(error) => return failed(&error),
        }
        return exit_code(is_valid);
    }
    for finding in &found.findings {
        complain(finding);
    }
    let Some(users) = found.users else {
        return exit_code(false);
    };
    say(format_args!(
        "{users} user configuration{}",
        if users == 1 { "" } else { "s" }
    ));
    exit_code(found.is_valid())
}

/// What a check found.
#[derive(Default)]
struct Checked {
    findings: Vec<Finding>,
    tools: usize,
    /// User configurations; `None` when some part was refused whole.
    users: Option<usize>,
    /// A backend is a server that connects itself.
    has_reverse: bool,
}

impl Checked {
    fn is_valid(&self) -> bool {
        let mut severities = self.findings.iter().map(|finding| finding.severity);
        self.users.is_some() && severities.all(|severity| severity != Severity::Error)
    }

    fn take(&mut self, document: &Document) {
        self.findings.extend(document.findings.iter().cloned());
        let users = document.users.len() + usize::from(document.everyone.is_some());
        self.users = Some(users);
        self.has_reverse = document.has_reverse();
    }

    /// The report of dual-profile.md 3.1. What is about no tool has the code for anything else.
    fn report(&self) -> Report {
        let errors = self
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error);
        Report {
            valid: self.is_valid(),
            tools_checked: self.tools,
            errors: errors
                .map(|finding| match &finding.tool {
                    Some(fault) => (**fault).clone(),
                    None => ToolFault::other(match &*finding.path {
                        "" => finding.message.clone(),
                        path => format!("{path}: {}", finding.message),
                    }),
                })
                .collect(),
        }
    }
}

fn exit_code(is_valid: bool) -> ExitCode {
    if is_valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_USAGE)
    }
}

fn checked_settings(flags: &Flags, environment: &Environment) -> Checked {
    let refused = |lines: Vec<String>| Checked {
        findings: lines
            .into_iter()
            .map(|line| Finding::error("", line))
            .collect(),
        ..Checked::default()
    };
    let (settings, notes) = match Settings::load(flags, environment, Purpose::Serve) {
        Ok(loaded) => loaded,
        Err(faults) => return refused(faults.iter().map(ToString::to_string).collect()),
    };
    print_notes(&notes);
    let mut found = match &settings.store.source {
        StoreSource::File(path) => {
            checked_documents(std::slice::from_ref(path), document_rules(&settings))
        }
        StoreSource::Empty | StoreSource::Redis(_) => Checked {
            users: Some(0),
            ..Checked::default()
        },
    };
    if found.has_reverse && settings.connection_gateway.is_none() {
        found.findings.push(Finding {
            severity: Severity::Warning,
            path: String::new(),
            message: REVERSE_IS_OFF.to_owned(),
            tool: None,
        });
    }
    // Keys and certificates, once the documents are sound: it would read them again.
    if found.users.is_some()
        && let Err(lines) = Prepared::load(settings)
    {
        let prepared = refused(lines);
        found.findings.extend(prepared.findings);
        found.users = None;
    }
    found
}

fn checked_documents(paths: &[PathBuf], rules: DocumentRules) -> Checked {
    let mut found = Checked::default();
    let mut read = Vec::new();
    for path in paths {
        let (document, tools) = read_counted(path, rules);
        found.tools += tools;
        match document {
            Ok(document) => read.push((path.display().to_string(), document)),
            Err(findings) => found.findings.extend(findings),
        }
    }
    if read.len() == paths.len() {
        found.take(&Document::merge(read));
    }
    found
}

/// The rules of named documents: as the settings say, which may otherwise be incomplete here.
fn rules_said(flags: &Flags, environment: &Environment) -> DocumentRules {
    match Settings::load(flags, environment, Purpose::Token) {
        Ok((settings, _)) => document_rules(&settings),
        Err(_) => DocumentRules {
            allow_stdio: flags.said("allow-stdio") == Some("true"),
            ..DocumentRules::default()
        },
    }
}

fn store_settings(flags: &Flags, environment: &Environment) -> Result<Settings, ExitCode> {
    let (settings, notes) =
        Settings::load(flags, environment, Purpose::Store).map_err(|faults| refuse(&faults))?;
    print_notes(&notes);
    Ok(settings)
}

fn put(
    subject: &str,
    input: &Path,
    encoding: Encoding,
    flags: &Flags,
    environment: &Environment,
) -> ExitCode {
    let settings = match store_settings(flags, environment) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let StoreSource::Redis(_) = &settings.store.source else {
        return refuse_lines([
            "config put writes to Redis; the file store is edited as a file".to_owned(),
        ]);
    };
    let text = match read_input(input) {
        Ok(text) => text,
        Err(error) => return refuse_lines([format!("{}: {error}", input.display())]),
    };
    let mut config: UserConfig = match serde_json::from_str(&text) {
        Ok(config) => config,
        Err(error) => return refuse_lines([format!("{}: {error}", input.display())]),
    };
    if config.names_credentials() {
        return refuse_lines([
            "`auth` only counts in the local configuration file: Redis holds no credentials"
                .to_owned(),
        ]);
    }
    config.judge_tools(&settings.limits.schema);
    let findings = config.check();
    for finding in &findings {
        complain(finding);
    }
    if findings
        .iter()
        .any(|finding| finding.severity == Severity::Error)
    {
        return ExitCode::from(EXIT_USAGE);
    }
    let value = match encoding {
        Encoding::Map => encode_map(&config),
        Encoding::Array => encode_array(&config, ArrayLayout::Head),
        Encoding::SeedArray => encode_array(&config, ArrayLayout::Seed),
    };
    match redis_tool::set(settings, user_key(subject), value) {
        Ok(()) => {
            say("written");
            ExitCode::SUCCESS
        }
        Err(fault) => failed(&fault),
    }
}

fn read_input(input: &Path) -> std::io::Result<String> {
    if input == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(input)
}

fn get(subject: &str, flags: &Flags, environment: &Environment) -> ExitCode {
    let settings = match store_settings(flags, environment) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let decode_limits = DecodeLimits {
        schema: settings.limits.schema,
        ..DecodeLimits::default()
    };
    let config = match &settings.store.source {
        StoreSource::File(path) => match read_documents(path, document_rules(&settings)) {
            Ok(document) => document
                .of_subject(subject)
                .map(|config| (**config).clone()),
            Err(faults) => return refuse_lines(faults),
        },
        StoreSource::Redis(_) => match redis_tool::get(settings, user_key(subject)) {
            Ok(None) => None,
            Ok(Some(value)) => match decode(&value, &decode_limits) {
                Ok(config) => Some(config),
                Err(fault) => return failed(&fault),
            },
            Err(fault) => return failed(&fault),
        },
        StoreSource::Empty => None,
    };
    match config.map(|config| serde_json::to_string_pretty(&config)) {
        Some(Ok(json)) => {
            say(json);
            ExitCode::SUCCESS
        }
        Some(Err(error)) => failed(&error),
        None => failed(&"the store has no configuration for this subject"),
    }
}

fn failed(fault: &dyn std::fmt::Display) -> ExitCode {
    complain(format_args!("error: {fault}"));
    ExitCode::FAILURE
}
