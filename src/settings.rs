//! What the operator said, turned into what the process needs.
//!
//! Two steps: flags, environment and file are kept as the texts that were written ([`Flags`],
//! [`Environment`]); [`Settings`] is what they mean, checked, and never changes again. All faults
//! are found before a socket is bound and each is one line; nothing is ignored without a note.
//!
//! Owns the precedence flag > environment > file > default. Reads no key or certificate beyond
//! asking whether it can be read: parsing them is their owners' job.

mod checks;
mod connection_gateway;
mod contract;
mod duration;
mod environment;
mod fault;
mod file;
mod flags;
mod groups;
mod issuer;
mod nearest;
mod read;
mod reader;
mod redis_url;
mod reverse;
mod secret;
mod table;
mod values;

pub use connection_gateway::{CONNECTION_GATEWAY_VARIABLES, ConnectionGateway};
pub use duration::{QuantityFault, duration_text, parse_duration, parse_size, size_text};
pub use environment::{Environment, PREFIXES};
pub use fault::{Fault, Note, Origin};
pub use flags::{
    Algorithm, Command, ConfigAction, Encoding, Flags, Invocation, PassThrough, SchemaOf,
    TokenAction, ToolsAction,
};
pub use groups::{
    Access, Auth, ClientCertificate, FailMode, IoDriver, Limits, Listen, LogLevel, Otlp,
    OtlpProtocol, Protocols, Redis, RedisConnection, Shards, Store, StoreSource, Telemetry,
    Timeouts, TlsListen, Upstream, UpstreamMode,
};
pub use reverse::{
    LocalServer, REVERSE_TOKEN_VARIABLE, ReverseArguments, ReverseSettings, TokenSource,
};
pub use secret::Secret;
pub use table::{SETTINGS, Section, Setting, Shape};

use reader::Reader;
use std::path::PathBuf;
use table::SETTINGS_FILE;

/// What the settings are read for: a command that serves nobody needs less of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To serve: everything must be there.
    Serve,
    /// To read or write user configurations: only the store must be there.
    Store,
    /// To serve the connection gateway and nothing else.
    Connect,
    /// To make tokens: nothing must be there; whoever signs says which key is missing.
    Token,
}

/// The checked settings of one process. Prints without secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where the process listens.
    pub listen: Listen,
    /// Cores, pinning and I/O.
    pub shards: Shards,
    /// Token keys and claims.
    pub auth: Auth,
    /// Who may come in without a token, and from where.
    pub access: Access,
    /// Where user configurations come from.
    pub store: Store,
    /// The way to the backends.
    pub upstream: Upstream,
    /// The protocol profiles.
    pub protocols: Protocols,
    /// Bounds in bytes and counts.
    pub limits: Limits,
    /// Bounds in time.
    pub timeouts: Timeouts,
    /// Logs and export.
    pub telemetry: Telemetry,
    /// Folder for generated keys; may not exist yet.
    pub state_dir: PathBuf,
    /// Name of this node inside session ids: 1 to 8 ASCII letters and digits.
    pub node_id: String,
    /// The connection gateway, when it is wanted.
    pub connection_gateway: Option<ConnectionGateway>,
}

impl Settings {
    /// Reads the settings file the flags or the environment name, and resolves everything.
    pub fn load(
        flags: &Flags,
        environment: &Environment,
        purpose: Purpose,
    ) -> Result<(Self, Vec<Note>), Vec<Fault>> {
        let Some((origin, path)) = Reader::new(flags, environment).said(SETTINGS_FILE) else {
            return Self::resolve_for(purpose, flags, environment, None);
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::resolve_for(purpose, flags, environment, Some(&text)),
            Err(error) => {
                let problem = format!("{} cannot be read: {error}", fault::quoted(&path));
                let mut faults = vec![Fault { origin, problem }];
                // The other sources' faults are still worth telling, but what the file may have
                // said cannot be called missing.
                if let Err(others) = Self::resolve_for(purpose, flags, environment, None) {
                    let missing = |fault: &Fault| matches!(fault.origin, Origin::Unsaid(_));
                    faults.extend(others.into_iter().filter(|fault| !missing(fault)));
                }
                Err(faults)
            }
        }
    }

    /// Resolves flags, environment and the text of a settings file for serving.
    ///
    /// Every fault is found, not only the first. Notes are for the operator and stop nothing.
    pub fn resolve(
        flags: &Flags,
        environment: &Environment,
        file_text: Option<&str>,
    ) -> Result<(Self, Vec<Note>), Vec<Fault>> {
        Self::resolve_for(Purpose::Serve, flags, environment, file_text)
    }

    /// Resolves like [`Settings::resolve`], asking only for what `purpose` needs.
    pub fn resolve_for(
        purpose: Purpose,
        flags: &Flags,
        environment: &Environment,
        file_text: Option<&str>,
    ) -> Result<(Self, Vec<Note>), Vec<Fault>> {
        let mut reader = Reader::new(flags, environment);
        if let Some(text) = file_text {
            reader = reader.with_file(text);
        }
        let mut settings = Self::read(&mut reader, purpose);
        checks::check(&mut settings, &mut reader, purpose);
        let is_wanted = match purpose {
            Purpose::Serve => ConnectionGateway::is_wanted(environment),
            Purpose::Connect => {
                // No MCP is served.
                (settings.listen.plain, settings.listen.tls) = (None, None);
                true
            }
            Purpose::Store | Purpose::Token => false,
        };
        let mut faults = Vec::new();
        let mut all_notes = Vec::new();
        if is_wanted {
            match ConnectionGateway::read(environment) {
                Ok((read, notes)) => {
                    settings.connection_gateway = Some(read);
                    all_notes = notes;
                }
                Err(found) => faults = found,
            }
        }
        match reader.finish() {
            Ok(notes) if faults.is_empty() => {
                all_notes.splice(0..0, notes);
                Ok((settings, all_notes))
            }
            Ok(_) => Err(faults),
            Err(mut found) => {
                found.extend(faults);
                Err(found)
            }
        }
    }

    /// Settings for tests: loopback and free ports, anyone may call, no users, two shards that
    /// are not pinned, a state folder of this process under the system's temporary folder.
    pub fn testing() -> Self {
        let (flags, environment) = (Flags::none(), Environment::default());
        // Without sources every value is its default; what a server would have to be told is
        // reported to the reader, which is dropped.
        let mut settings = Self::read(&mut Reader::new(&flags, &environment), Purpose::Token);
        let free_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        settings.listen.plain = Some(free_port);
        settings.listen.admin = Some(free_port);
        settings.shards.count = std::num::NonZeroUsize::new(2);
        settings.shards.pin = false;
        settings.access.allow_anonymous = true;
        settings.upstream.mode = UpstreamMode::PlainTextOrTls;
        let folder = format!("shardgate-testing-{}", std::process::id());
        settings.state_dir = std::env::temp_dir().join(folder);
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOK: &str = include_str!("../docs/settings.md");

    /// One row of the book's tables.
    fn book_row(setting: &Setting) -> String {
        let alias = setting
            .alias
            .map_or_else(String::new, |alias| format!(", `--{alias}`"));
        let mut variables: Vec<String> = setting
            .suffixes()
            .iter()
            .map(|suffix| format!("`{suffix}`"))
            .collect();
        variables.extend(
            setting
                .bare_names
                .iter()
                .map(|name| format!("`{name}` (no prefix)")),
        );
        let key = setting
            .file_key()
            .map_or_else(|| "-".to_owned(), |key| format!("`{key}`"));
        let default = match (setting.default, setting.default_shown) {
            (_, Some(shown)) => shown.to_owned(),
            (Some(default), None) => format!("`{default}`"),
            (None, None) => "-".to_owned(),
        };
        format!(
            "| `--{}`{alias} | {} | {key} | {} | {} |",
            setting.flag,
            variables.join(", "),
            default.replace('|', "\\|"),
            setting.help.replace('|', "\\|"),
        )
    }

    #[test]
    fn the_book_has_a_row_for_every_setting() {
        let missing: Vec<String> = SETTINGS
            .iter()
            .map(book_row)
            .filter(|row| !BOOK.contains(row))
            .collect();
        assert!(
            missing.is_empty(),
            "docs/settings.md lacks:\n{}",
            missing.join("\n")
        );
        let rows = BOOK
            .lines()
            .filter(|line| line.starts_with("| `--"))
            .count();
        assert_eq!(
            rows,
            SETTINGS.len(),
            "docs/settings.md has rows of no setting"
        );
    }

    #[test]
    fn the_file_in_the_book_is_sound() {
        let (_, rest) = BOOK.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let state = std::env::temp_dir();
        let environment = Environment::from_pairs([
            ("HOME", state.to_str().unwrap()),
            ("SHARDGATE_CONFIG_FILE", state.to_str().unwrap()),
            ("TOKEN_KEY", "0123456789"),
        ]);
        let (settings, notes) =
            Settings::resolve(&Flags::none(), &environment, Some(text)).unwrap();
        assert_eq!(notes, []);
        assert_eq!(settings.limits.body_bytes_max, 8 << 20);
        assert_eq!(settings.auth.secret, Some(Secret::new("0123456789")));
    }

    #[test]
    fn every_default_is_sound_and_every_setting_is_read() {
        // Both are asserted inside the reader; a store is all that has to be said.
        let mut flags = Flags::none();
        flags.set("allow-anonymous", "true");
        flags.set("config-file", std::env::temp_dir().to_str().unwrap());
        flags.set("state-dir", std::env::temp_dir().to_str().unwrap());
        let (settings, notes) = Settings::resolve(&flags, &Environment::default(), None).unwrap();
        assert_eq!(notes, []);
        assert_eq!(
            settings.listen.plain,
            Some("127.0.0.1:8001".parse().unwrap())
        );
        assert_eq!(settings.limits.head_bytes_max, 16 << 10);
        assert_eq!(settings.timeouts.head, std::time::Duration::from_secs(10));
        assert_eq!(settings.upstream.mode, UpstreamMode::TlsOnly);
    }

    #[test]
    fn settings_for_tests_need_nothing_from_the_host() {
        let settings = Settings::testing();
        assert!(
            settings
                .listen
                .addresses()
                .all(|address| address.port() == 0)
        );
        assert_eq!(settings.store.source, StoreSource::Empty);
        assert_eq!(
            settings.shards.count.map(std::num::NonZeroUsize::get),
            Some(2)
        );
        assert!(!settings.shards.pin && settings.access.allow_anonymous);
    }
}
