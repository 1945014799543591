//! The command line: which subcommand was asked for, and the settings as typed.
//!
//! Owns clap and nothing but clap: every setting is kept as the text the operator wrote, because
//! what it means is decided only after environment and file have been heard (`read.rs`). The
//! flags of settings come from `table.rs`; a subcommand takes the sections it has a use for.

use super::duration::parse_duration;
use super::reverse::{REVERSE_EXAMPLES, ReverseArguments};
use super::table::{SETTINGS, SETTINGS_FILE, Section, Setting, Shape};
use clap::builder::{NonEmptyStringValueParser, StyledStr};
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings as typed, by flag.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Flags {
    said: BTreeMap<&'static str, String>,
}

impl Flags {
    /// Nothing said.
    pub fn none() -> Self {
        Self::default()
    }

    /// What was typed for a flag, named without its dashes.
    pub fn said(&self, flag: &str) -> Option<&str> {
        self.said.get(flag).map(String::as_str)
    }

    /// Says a flag on the operator's behalf, over what was typed; `false` when there is no such
    /// flag and nothing was changed.
    pub fn set(&mut self, flag: &str, text: impl Into<String>) -> bool {
        let setting = Setting::find(flag);
        if let Some(setting) = setting {
            self.said.insert(setting.flag, text.into());
        }
        setting.is_some()
    }

    /// Takes the settings among the arguments of one subcommand.
    fn of(matches: &ArgMatches) -> Self {
        let mut said = BTreeMap::new();
        for setting in SETTINGS {
            // A subcommand without this setting answers with an error: nothing was said.
            if let Ok(Some(values)) = matches.try_get_many::<String>(setting.flag) {
                let values: Vec<&str> = values.map(String::as_str).collect();
                said.insert(setting.flag, values.join(","));
            }
        }
        Self { said }
    }
}

/// Secrets are masked.
impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.said.iter().map(|(flag, text)| {
            let secret = Setting::find(flag).is_none_or(|s| s.shape == Shape::Secret);
            (flag, if secret { "***" } else { text.as_str() })
        });
        f.debug_map().entries(shown).finish()
    }
}

/// One command line, understood.
#[derive(Debug)]
pub struct Invocation {
    /// What to do.
    pub command: Command,
    /// The settings given on this command line.
    pub flags: Flags,
}

impl Invocation {
    /// Understands a command line whose first item is the program's own name.
    ///
    /// The error carries help, version and usage faults alike; its `exit` prints what it has to
    /// on the right stream and ends with 0 or 2.
    pub fn parse<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, clap::Error> {
        let matches = definition().try_get_matches_from(arguments)?;
        let mut leaf = &matches;
        while let Some((_, inner)) = leaf.subcommand() {
            leaf = inner;
        }
        let flags = Flags::of(leaf);
        Ok(Self {
            command: Cli::from_arg_matches(&matches)?.command,
            flags,
        })
    }
}

/// A shared-nothing, thread-per-core gateway for the Model Context Protocol.
///
/// A client sees one MCP server; behind it stand many.
#[derive(Debug, Parser)]
#[command(name = "shardgate", version, arg_required_else_help = true)]
#[command(
    after_help = "Begin with `shardgate demo`; `shardgate serve --help` lists every setting."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve clients until asked to stop.
    Serve,
    /// Serve the connection gateway alone: WebSocket sessions, mailboxes, an internal HTTP API. Its
    /// own settings are the environment variables CONNECTION_GATEWAY_*, AUTH_TOKEN and JWT_SECRET.
    Connect,
    /// Run a complete example: a bundled backend, the gateway and a client calling through it.
    Demo {
        /// End after the first answered call instead of staying up.
        #[arg(long)]
        once: bool,
    },
    /// Put a local MCP server behind a gateway: connect to it, stay connected, and carry messages
    /// between it and a program, or a server on a port of this machine.
    Reverse(Box<ReverseArguments>),
    /// Ask a running gateway how it and its backends are; ends with 0 when all is well, 1 when
    /// something is not, 2 when nobody answers.
    Status {
        /// Its admin listener; by default where the settings would have it.
        #[arg(long, value_name = "IP:PORT")]
        admin: Option<SocketAddr>,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Check, describe, write or read user configurations.
    #[command(arg_required_else_help = true)]
    Config {
        /// What to do with them.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Make bearer tokens.
    #[command(arg_required_else_help = true)]
    Token {
        /// What to do with them.
        #[command(subcommand)]
        action: TokenAction,
    },
    /// Make declarations of tools.
    #[command(arg_required_else_help = true)]
    Tools {
        /// From what.
        #[command(subcommand)]
        action: ToolsAction,
    },
    /// Load an MCP endpoint and measure it; `shardgate loadgen --help` has its own flags.
    #[command(disable_help_flag = true)]
    Loadgen(PassThrough),
    /// Check and tune this host; `shardgate tune --help` has its own flags.
    #[command(disable_help_flag = true)]
    Tune(PassThrough),
    /// Say how many shards and hosts a rate takes, from recorded runs; `shardgate plan --help` has
    /// its own flags.
    #[command(disable_help_flag = true)]
    Plan(PassThrough),
    /// Watch the shards of a running gateway: load, local and forwarded requests, rings, sessions
    /// and latency. Ends with 2 when nobody answers.
    Top {
        /// Its admin listener.
        #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9901")]
        admin: SocketAddr,
        /// Print one table and end.
        #[arg(long)]
        once: bool,
        /// Seconds between tables.
        #[arg(long, default_value_t = 1.0, value_parser = interval)]
        interval: f64,
    },
    /// Print the version.
    Version {
        /// As one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Seconds a person may wait for.
fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be between 0.05 and 3600 seconds".to_owned()),
    }
}

/// Arguments that another part of the program understands.
#[derive(Debug, Args)]
pub struct PassThrough {
    /// The arguments, as they came.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    pub arguments: Vec<OsString>,
}

/// What to do with user configurations.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Check settings and user configurations, print every fault, and end with 0 or 2.
    Check {
        /// Documents to check instead of those the settings name.
        documents: Vec<PathBuf>,
        /// As one JSON object: `valid`, `toolsChecked`, and `errors` with the tool, the JSON
        /// pointer and the reason code of each.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of user configurations.
    Schema {
        /// Which document the schema describes.
        #[arg(long, value_enum, default_value = "document")]
        of: SchemaOf,
    },
    /// Write one user's configuration to Redis.
    Put {
        /// The `sub` of the user's tokens.
        #[arg(long)]
        subject: String,
        /// JSON file with the configuration; `-` reads standard input.
        #[arg(long)]
        input: PathBuf,
        /// How it is encoded in Redis.
        #[arg(long, value_enum, default_value = "map")]
        encoding: Encoding,
    },
    /// Print one user's configuration from the store, as JSON.
    Get {
        /// The `sub` of the user's tokens.
        #[arg(long)]
        subject: String,
    },
}

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// A file of the file store.
    Document,
    /// One user's configuration.
    UserConfig,
}

/// How a user configuration is encoded in Redis (contract contextforge 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// Maps with field names, as the control plane writes.
    Map,
    /// Arrays of 9 fields, as the newer data plane writes.
    Array,
    /// Arrays of 8 fields, as the older data plane writes.
    SeedArray,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Sign a token and print it.
    Mint {
        /// The `sub` of the token: whose user configuration applies.
        #[arg(long)]
        subject: String,
        /// The e-mail address in the token; the subject when left out.
        #[arg(long)]
        email: Option<String>,
        /// How long the token is valid.
        #[arg(long, default_value = "1h", value_parser = parse_duration)]
        lifetime: Duration,
        /// HS256, HS384, HS512 sign with the secret, RS256, RS384, RS512 with the private key. The
        /// default follows the key: RS256 when a private key is configured, else HS256.
        #[arg(long, value_enum)]
        algorithm: Option<Algorithm>,
    },
}

/// What to make declarations of tools from.
#[derive(Debug, Subcommand)]
pub enum ToolsAction {
    /// Write the declarations of an OpenAPI 3.0 or 3.1 document, for `tools` of a virtual host.
    FromOpenapi {
        /// The document, in JSON or YAML; `-` reads standard input.
        file: PathBuf,
        /// Address of the API, in place of the first one in the document.
        #[arg(long, value_name = "URL")]
        server: Option<String>,
        /// Only operations with this tag; may be given more than once.
        #[arg(long, value_name = "TAG")]
        tag: Vec<String>,
        /// The API may be on this host or a private network.
        #[arg(long)]
        allow_private: bool,
        /// Leave out the schemas of results: results are then handed on unchecked.
        #[arg(long)]
        without_output: bool,
        /// Where to write; standard output when left out.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Signature algorithms of tokens (contract contextforge 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    Rs384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    Rs512,
}

const DEMO_SECTIONS: [Section; 6] = [
    Section::Listen,
    Section::Shards,
    Section::Upstream,
    Section::Limits,
    Section::Timeouts,
    Section::Telemetry,
];

const CONNECT_SECTIONS: [Section; 4] = [
    Section::Shards,
    Section::Timeouts,
    Section::Telemetry,
    Section::Process,
];
/// Of the other sections these.
const CONNECT_ALSO: [&str; 2] = ["admin-address", "take-over"];

const SERVE_EXAMPLES: &str = "\
Each setting may also be a variable SHARDGATE_<NAME> or a line of the settings file. A flag wins
over a variable, a variable over the file, the file over the default. Sizes are written 4096, 16KiB
or 4MiB, times 250ms, 5s, 2m or 1h.

Examples:
  One file of backends, on this machine only, without tokens:
    shardgate serve --config-file backends.json --allow-anonymous \\
      --upstream-connection-mode plain-text-or-tls

  A folder of user configurations, tokens signed with a shared secret:
    shardgate serve --address 0.0.0.0:8001 --config-file /etc/shardgate/users \\
      --token-verification-secret file:/etc/shardgate/token.secret

  Beside a ContextForge control plane:
    shardgate serve --address 0.0.0.0:8001 --redis-address redis --redis-port 6379 \\
      --redis-mode plain-text --token-verification-public-key jwt.pub.pem

  Four shards on chosen cores, TLS, everything else from a file:
    shardgate serve --settings shardgate.toml --cpu-list 2-5 --tls-address 0.0.0.0:8443 \\
      --server-certificate server.pem --server-private-key server.key

  Start beside the running process, which is then told to stop (its sessions end with it):
    shardgate serve --settings shardgate.toml --take-over
";

/// The whole command line, with the settings each subcommand takes.
fn definition() -> clap::Command {
    Cli::command()
        .mut_subcommand("serve", |serve| {
            with_settings(serve, &Section::ALL).after_help(StyledStr::from(SERVE_EXAMPLES))
        })
        .mut_subcommand("connect", |connect| {
            with_settings(connect, &CONNECT_SECTIONS).args(
                SETTINGS
                    .iter()
                    .filter(|setting| CONNECT_ALSO.contains(&setting.flag))
                    .map(argument),
            )
        })
        .mut_subcommand("reverse", |reverse| {
            reverse.after_help(StyledStr::from(REVERSE_EXAMPLES))
        })
        .mut_subcommand("status", |status| with_settings(status, &[]))
        .mut_subcommand("demo", |demo| with_settings(demo, &DEMO_SECTIONS))
        .mut_subcommand("config", |config| {
            config
                .mut_subcommand("check", |check| with_settings(check, &Section::ALL))
                .mut_subcommand("put", |put| with_settings(put, &[Section::Store]))
                .mut_subcommand("get", |get| with_settings(get, &[Section::Store]))
        })
        .mut_subcommand("token", |token| {
            token.mut_subcommand("mint", |mint| {
                with_settings(mint, &[Section::Auth, Section::Process])
            })
        })
}

/// Adds the settings of some sections; the settings file can always be named.
fn with_settings(command: clap::Command, sections: &[Section]) -> clap::Command {
    SETTINGS
        .iter()
        .filter(|setting| sections.contains(&setting.section) || setting.flag == SETTINGS_FILE)
        .fold(command, |command, setting| command.arg(argument(setting)))
}

fn argument(setting: &'static Setting) -> Arg {
    let argument = Arg::new(setting.flag)
        .long(setting.flag)
        .visible_aliases(setting.alias)
        .help_heading(setting.section.heading())
        .help(help(setting))
        .value_parser(NonEmptyStringValueParser::new());
    match setting.shape {
        Shape::Switch => argument
            .value_name("BOOL")
            .num_args(0..=1)
            .default_missing_value("true"),
        Shape::One(name) => argument.value_name(name),
        Shape::Secret => argument.value_name("SECRET"),
        Shape::Many(name) => argument.value_name(name).action(ArgAction::Append),
    }
}

fn help(setting: &Setting) -> String {
    match setting.default_text() {
        Some(default) => format!("{} [default: {default}]", setting.help),
        None => setting.help.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Invocation, clap::Error> {
        Invocation::parse(line.split(' '))
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn serve_takes_every_setting_and_every_alias() {
        for setting in SETTINGS {
            let value = if setting.shape == Shape::Switch {
                "false"
            } else {
                "x"
            };
            for name in [Some(setting.flag), setting.alias].into_iter().flatten() {
                let invocation = parse(&format!("shardgate serve --{name} {value}")).unwrap();
                assert_eq!(invocation.flags.said(setting.flag), Some(value), "{name}");
            }
        }
    }

    #[test]
    fn a_bare_switch_means_true() {
        for (line, text) in [
            ("--take-over", Some("true")),
            ("--take-over true --no-pin", Some("true")),
            ("--take-over=false", Some("false")),
            ("--no-pin", None),
        ] {
            let invocation = parse(&format!("shardgate serve {line}")).unwrap();
            assert_eq!(invocation.flags.said("take-over"), text, "{line}");
        }
    }

    #[test]
    fn a_list_may_be_repeated_and_a_value_may_not() {
        let line = "shardgate serve --mcp-allowed-hosts a,b --mcp-allowed-hosts c";
        assert_eq!(
            parse(line).unwrap().flags.said("mcp-allowed-hosts"),
            Some("a,b,c")
        );
        let twice = parse("shardgate serve --shards 1 --number-of-cpus 2").unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn no_subcommand_prints_help() {
        let error = parse("shardgate").unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        );
        assert!(error.to_string().contains("Begin with `shardgate demo`"));
    }

    #[test]
    fn help_teaches_each_setting_under_its_heading() {
        let error = parse("shardgate serve --help").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelp);
        let text = error.to_string();
        for section in Section::ALL {
            assert!(
                text.contains(&format!("{}:\n", section.heading())),
                "{section:?}"
            );
        }
        for setting in SETTINGS {
            assert!(
                text.contains(&format!("--{}", setting.flag)),
                "{}",
                setting.flag
            );
        }
        assert!(text.contains("Examples:"));
        assert!(text.contains("[default: 16KiB]"));
    }

    #[test]
    fn each_subcommand_is_understood() {
        assert!(matches!(
            parse("shardgate serve").unwrap().command,
            Command::Serve
        ));
        let demo = parse("shardgate demo --once --shards 2").unwrap();
        assert!(matches!(demo.command, Command::Demo { once: true }));
        assert_eq!(demo.flags.said("shards"), Some("2"));
        let Command::Config {
            action: ConfigAction::Check { documents, .. },
        } = parse("shardgate config check a.json b.json")
            .unwrap()
            .command
        else {
            panic!("not a check");
        };
        assert_eq!(
            documents,
            [PathBuf::from("a.json"), PathBuf::from("b.json")]
        );
        let schema = parse("shardgate config schema").unwrap().command;
        let Command::Config {
            action: ConfigAction::Schema { of },
        } = schema
        else {
            panic!("not a schema");
        };
        assert_eq!(of, SchemaOf::Document);
        let put = parse("shardgate config put --subject a --input - --redis-address r").unwrap();
        let Command::Config {
            action: ConfigAction::Put {
                subject, encoding, ..
            },
        } = put.command
        else {
            panic!("not a put");
        };
        assert_eq!((subject.as_str(), encoding), ("a", Encoding::Map));
        assert_eq!(put.flags.said("redis-address"), Some("r"));
        let line = "shardgate token mint --subject a --lifetime 5m --algorithm RS512 --state-dir s";
        let mint = parse(line);
        let Command::Token {
            action:
                TokenAction::Mint {
                    lifetime,
                    algorithm,
                    ..
                },
        } = mint.unwrap().command
        else {
            panic!("not a mint");
        };
        assert_eq!(
            (lifetime, algorithm),
            (Duration::from_secs(300), Some(Algorithm::Rs512))
        );
        let version = parse("shardgate version --json").unwrap().command;
        assert!(matches!(version, Command::Version { json: true }));
    }

    #[test]
    fn arguments_of_other_tools_pass_untouched() {
        for (tool, rest) in [("loadgen", "--help"), ("tune", "host --json -q x -- y")] {
            let command = parse(&format!("shardgate {tool} {rest}")).unwrap().command;
            let (Command::Loadgen(through) | Command::Tune(through)) = command else {
                panic!("not passed through");
            };
            let words: Vec<OsString> = rest.split(' ').map(OsString::from).collect();
            assert_eq!(through.arguments, words);
        }
    }

    #[test]
    fn mistakes_are_usage_errors() {
        for line in [
            "shardgate serve --shard 2",
            "shardgate serve --shards",
            "shardgate serve --shards=",
            "shardgate serve extra",
            "shardgate config put --subject a",
            "shardgate token mint --subject a --lifetime 5",
            "shardgate token mint --subject a --redis-port 1",
            "shardgate nothing",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn flags_print_without_secrets() {
        let mut flags = Flags::none();
        assert!(flags.set("redis-password", "hunter2") && flags.set("shards", "2"));
        assert!(!flags.set("coffee", "x"));
        assert_eq!(
            format!("{flags:?}"),
            r#"{"redis-password": "***", "shards": "2"}"#
        );
    }
}
