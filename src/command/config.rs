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
        user_config::{DocumentRules, Severity, UserConfig},
    },
    prepare::{Prepared, document_rules, read_documents},
    redis_tool,
    settings::{
        ConfigAction, Encoding, Environment, Flags, Purpose, SchemaOf, Settings, StoreSource,
    },
};

/// Does what the action says.
pub(crate) fn run(action: ConfigAction, flags: &Flags, environment: &Environment) -> ExitCode {
    match action {
        ConfigAction::Check { documents } => check(&documents, flags, environment),
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

/// Checks named documents, or everything the settings name. 0, or 2 with a line for each fault.
fn check(documents: &[PathBuf], flags: &Flags, environment: &Environment) -> ExitCode {
    let document = if documents.is_empty() {
        let (settings, notes) = match Settings::load(flags, environment, Purpose::Serve) {
            Ok(loaded) => loaded,
            Err(faults) => return refuse(&faults),
        };
        print_notes(&notes);
        match Prepared::load(settings) {
            Ok(prepared) => (*prepared.document).clone(),
            Err(faults) => return refuse_lines(faults),
        }
    } else {
        let rules = rules_said(flags, environment);
        let mut read = Vec::new();
        let mut faults = Vec::new();
        for path in documents {
            match read_documents(path, rules) {
                Ok(document) => read.push((path.display().to_string(), document)),
                Err(lines) => faults.extend(lines),
            }
        }
        if !faults.is_empty() {
            return refuse_lines(faults);
        }
        Document::merge(read)
    };
    for finding in &document.findings {
        complain(finding);
    }
    let users = document.users.len() + usize::from(document.everyone.is_some());
    say(format_args!(
        "{users} user configuration{}",
        if users == 1 { "" } else { "s" }
    ));
    let is_bad = document
        .findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    if is_bad {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// The rules of named documents: as the settings say, which may otherwise be incomplete here.
fn rules_said(flags: &Flags, environment: &Environment) -> DocumentRules {
    match Settings::load(flags, environment, Purpose::Token) {
        Ok((settings, _)) => document_rules(&settings),
        Err(_) => DocumentRules {
            allow_stdio: flags.said("allow-stdio") == Some("true"),
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
    let config: UserConfig = match serde_json::from_str(&text) {
        Ok(config) => config,
        Err(error) => return refuse_lines([format!("{}: {error}", input.display())]),
    };
    if config.names_credentials() {
        return refuse_lines([
            "`auth` only counts in the local configuration file: Redis holds no credentials"
                .to_owned(),
        ]);
    }
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
    let config = match &settings.store.source {
        StoreSource::File(path) => match read_documents(path, document_rules(&settings)) {
            Ok(document) => document
                .of_subject(subject)
                .map(|config| (**config).clone()),
            Err(faults) => return refuse_lines(faults),
        },
        StoreSource::Redis(_) => match redis_tool::get(settings, user_key(subject)) {
            Ok(None) => None,
            Ok(Some(value)) => match decode(&value, &DecodeLimits::default()) {
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
