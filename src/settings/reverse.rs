//! The command line of `shardgate reverse`: what was typed, and what it means.
//!
//! It shares no setting with the gateway, so it has none of the settings table. Owns which
//! addresses, names and tokens can be used; connects to nothing.

use super::{environment::Environment, secret::Secret};
use clap::{ArgGroup, Args};
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use std::ffi::OsString;
use std::path::PathBuf;
use url::Url;

/// The variable that may hold the token; no child process gets it.
pub const REVERSE_TOKEN_VARIABLE: &str = "SHARDGATE_REVERSE_TOKEN";

/// Where a gateway takes reverse connections, unless the address says otherwise.
const DEFAULT_PATH: &str = "/reverse/v1";
/// Bytes of a source's name.
const SOURCE_BYTES_MAX: usize = 200;
/// Header lines that the handshake writes itself, or that would change what it asks for.
const OWN_HEADERS: [&str; 11] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "transfer-encoding",
    "upgrade",
];
/// Header lines of requests to a local server that are not the operator's.
const OWN_SERVER_HEADERS: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// The arguments as typed.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("server").required(true).args(["http", "sse", "command"]))]
pub struct ReverseArguments {
    /// Where the gateway takes reverse connections: wss:// or ws://; without a path /reverse/v1.
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// The token as it is. Other users of this machine may read it in the list of processes, and
    /// the shell keeps it: prefer a file or the variable.
    #[arg(long, value_name = "TOKEN", value_parser = secret, conflicts_with = "token_file")]
    pub token: Option<Secret>,
    /// File with the token, read for each connection, so that a new token is found there. Without
    /// either flag the variable SHARDGATE_REVERSE_TOKEN has the token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The name the server has at the gateway, where the token leaves a choice.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// PEM file with further authorities whose certificates are trusted, beside the system's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// A header line for the gateway, or a proxy before it; may be given more than once.
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// Address of a local server that speaks Streamable HTTP.
    #[arg(long, value_name = "URL")]
    pub http: Option<String>,
    /// Address of the event stream of a local server that speaks HTTP+SSE (2024-11-05).
    #[arg(long, value_name = "URL")]
    pub sse: Option<String>,
    /// A header line for the local server of --http or --sse; may be given more than once.
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "command")]
    pub server_header: Vec<String>,
    /// The program of a local server that speaks on its standard input and output, and its
    /// arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What `--help` ends with.
pub(super) const REVERSE_EXAMPLES: &str = "\
Lines about the connection go to standard error, and so does what the local server says there. The
connection is made again whenever it is lost, after pauses of up to half a minute. SIGTERM or SIGINT
ends it in order, with 0. A token that is refused, or a command that is not there, ends it with 1.

Examples:
  A program that speaks on its standard input and output, with the token in a file:
    shardgate reverse --to wss://gateway.example.com --token-file token.txt \\
      -- npx -y @modelcontextprotocol/server-everything

  The same under a name of your choice, the token in the variable SHARDGATE_REVERSE_TOKEN:
    shardgate reverse --to wss://gateway.example.com --source notes -- ./notes-server

  A server on a port of this machine:
    shardgate reverse --to wss://gateway.example.com --token-file token.txt \\
      --http http://127.0.0.1:8000/mcp --server-header 'X-Key: k'

  Beside the gateway, for trying it out:
    shardgate reverse --to ws://127.0.0.1:3011 --token-file token.txt -- ./notes-server
";

fn secret(text: &str) -> Result<Secret, String> {
    Ok(Secret::new(text))
}

/// Where the token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// It was given.
    Given(Secret),
    /// In a file, which may change.
    File(PathBuf),
}

impl TokenSource {
    /// The token as it is now.
    ///
    /// # Errors
    /// One line for the operator, without the token.
    pub fn read(&self) -> Result<Secret, String> {
        let secret = match self {
            Self::Given(secret) => secret.clone(),
            Self::File(path) => Secret::from_file(path)?,
        };
        let bytes = secret.bytes().trim_ascii();
        if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(format!(
                "{} holds no token: one is letters, digits and signs without spaces",
                match self {
                    Self::Given(_) => "--token or the variable".to_owned(),
                    Self::File(path) => path.display().to_string(),
                }
            ));
        }
        Ok(Secret::new(bytes))
    }

    /// Whether it may be another one the next time.
    pub fn may_change(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

/// The local server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalServer {
    /// A program and its arguments.
    Command(Vec<OsString>),
    /// Streamable HTTP.
    Http {
        /// Its endpoint.
        url: Url,
        /// Set on every request.
        headers: HeaderMap,
    },
    /// HTTP+SSE of revision 2024-11-05.
    Sse {
        /// Its event stream.
        url: Url,
        /// Set on every request.
        headers: HeaderMap,
    },
}

/// What was typed, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReverseSettings {
    /// Where the gateway is.
    pub to: Url,
    /// Who we are.
    pub token: TokenSource,
    /// Further authorities.
    pub ca: Option<PathBuf>,
    /// Whole header lines of the handshake, beside those every handshake has.
    pub headers: String,
    /// What is put behind the gateway.
    pub server: LocalServer,
}

impl ReverseSettings {
    /// Checks what was typed; all faults at once, one line each. Also notes for the operator.
    ///
    /// # Errors
    /// The faults.
    pub fn check(
        arguments: ReverseArguments,
        environment: &Environment,
    ) -> Result<(Self, Vec<String>), Vec<String>> {
        let mut faults = Vec::new();
        let to = gateway(&arguments.to)
            .map_err(|fault| faults.push(format!("--to: {fault}")))
            .ok();
        let token = match (arguments.token, arguments.token_file) {
            (Some(token), _) => Some(TokenSource::Given(token)),
            (None, Some(file)) => Some(TokenSource::File(file)),
            (None, None) => environment
                .value(REVERSE_TOKEN_VARIABLE)
                .map(|token| TokenSource::Given(Secret::new(token))),
        };
        match &token {
            None => faults.push(format!(
                "no token: --token-file, or the variable {REVERSE_TOKEN_VARIABLE}"
            )),
            Some(token) => faults.extend(token.read().err()),
        }
        let mut lines = format!("User-Agent: shardgate/{}\r\n", env!("CARGO_PKG_VERSION"));
        for line in &arguments.header {
            match header(line, &OWN_HEADERS) {
                Ok((name, value)) => {
                    // Visible by the check.
                    let value = value.to_str().unwrap_or_default();
                    lines.push_str(&format!("{name}: {value}\r\n"));
                }
                Err(fault) => faults.push(format!("--header: {fault}")),
            }
        }
        if let Some(source) = &arguments.source {
            if source.is_empty()
                || source.len() > SOURCE_BYTES_MAX
                || !source.bytes().all(|byte| byte.is_ascii_graphic())
            {
                faults.push(format!(
                    "--source: letters, digits and signs without spaces, {SOURCE_BYTES_MAX} at \
                     the most"
                ));
            }
            lines.push_str(&format!("X-Shardgate-Source: {source}\r\n"));
        }
        let mut headers = HeaderMap::new();
        for line in &arguments.server_header {
            match header(line, &OWN_SERVER_HEADERS) {
                Ok((name, value)) => {
                    headers.append(name, value);
                }
                Err(fault) => faults.push(format!("--server-header: {fault}")),
            }
        }
        let mut local = |flag: &str, text: &str| {
            server(text)
                .map_err(|fault| faults.push(format!("{flag}: {fault}")))
                .ok()
        };
        let server = match (&arguments.http, &arguments.sse) {
            (Some(text), _) => local("--http", text).map(|url| LocalServer::Http { url, headers }),
            (None, Some(text)) => local("--sse", text).map(|url| LocalServer::Sse { url, headers }),
            (None, None) => Some(LocalServer::Command(arguments.command)),
        };
        match (to, token, server) {
            (Some(to), Some(token), Some(server)) if faults.is_empty() => {
                let notes = notes(&to);
                let settings = Self {
                    to,
                    token,
                    ca: arguments.ca,
                    headers: lines,
                    server,
                };
                Ok((settings, notes))
            }
            _ => Err(faults),
        }
    }

    /// The gateway's address as the operator is told it: a query may be a secret.
    pub fn shown(&self) -> &str {
        &self.to[..url::Position::AfterPath]
    }
}

fn notes(to: &Url) -> Vec<String> {
    let is_local = match to.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if to.scheme() == "ws" && !is_local {
        vec!["--to: ws:// sends the token unencrypted".to_owned()]
    } else {
        Vec::new()
    }
}

/// The gateway's address.
fn gateway(text: &str) -> Result<Url, String> {
    let mut url = address(text, ["wss", "ws"])?;
    if url.path() == "/" {
        url.set_path(DEFAULT_PATH);
    }
    Ok(url)
}

/// A local server's address.
fn server(text: &str) -> Result<Url, String> {
    address(text, ["http", "https"])
}

fn address(text: &str, schemes: [&str; 2]) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|error| format!("no URL: {error}"))?;
    if !schemes.contains(&url.scheme()) {
        let [first, second] = schemes;
        return Err(format!("must begin with {first}:// or {second}://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not have a user name or password in it".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

fn header(line: &str, own: &[&str]) -> Result<(HeaderName, HeaderValue), String> {
    let fault = || "must be written 'Name: value'".to_owned();
    let (name, value) = line.split_once(':').ok_or_else(fault)?;
    let name: HeaderName = name.trim().parse().map_err(|_| fault())?;
    if own.contains(&name.as_str()) {
        return Err(format!("{name} cannot be set"));
    }
    let value = HeaderValue::from_str(value.trim()).map_err(|_| fault())?;
    if value.to_str().is_err() {
        return Err(format!("the value of {name} must be visible ASCII"));
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Command, Invocation};

    fn check(line: &str) -> Result<(ReverseSettings, Vec<String>), Vec<String>> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let words = ["shardgate", "reverse"].into_iter().chain(words);
        let words = words.map(|word| word.replace('_', " "));
        let invocation = Invocation::parse(words).map_err(|error| vec![error.to_string()])?;
        let Command::Reverse(arguments) = invocation.command else {
            panic!("not reverse");
        };
        let environment = Environment::from_pairs([(REVERSE_TOKEN_VARIABLE, "from-variable")]);
        ReverseSettings::check(*arguments, &environment)
    }

    #[test]
    fn a_whole_command_line_is_understood() {
        let line = "--to wss://gw.example --token t --source notes --header X-Way:_1 \
                    -- npx -y server --to x";
        let (settings, notes) = check(line).unwrap();
        assert_eq!(notes, [""; 0]);
        assert_eq!(settings.shown(), "wss://gw.example/reverse/v1");
        assert_eq!(settings.token.read(), Ok(Secret::new("t")));
        assert!(!settings.token.may_change());
        let mut lines: Vec<&str> = settings.headers.split("\r\n").collect();
        assert!(lines.remove(0).starts_with("User-Agent: shardgate/"));
        assert_eq!(lines, ["x-way: 1", "X-Shardgate-Source: notes", ""]);
        let words = ["npx", "-y", "server", "--to", "x"].map(OsString::from);
        assert_eq!(settings.server, LocalServer::Command(words.to_vec()));
    }

    #[test]
    fn the_variable_has_the_token_and_a_path_is_kept() {
        let line = "--to ws://gw.example:1/x?k=v --http http://127.0.0.1:8000/mcp \
                    --server-header X-Key:_k";
        let (settings, notes) = check(line).unwrap();
        assert_eq!(settings.shown(), "ws://gw.example:1/x");
        assert_eq!(settings.to.as_str(), "ws://gw.example:1/x?k=v");
        assert_eq!(settings.token.read(), Ok(Secret::new("from-variable")));
        assert_eq!(notes, ["--to: ws:// sends the token unencrypted"]);
        let LocalServer::Http { url, headers } = settings.server else {
            panic!("not HTTP");
        };
        assert_eq!(url.as_str(), "http://127.0.0.1:8000/mcp");
        assert_eq!(headers["x-key"], "k");
        let (_, notes) = check("--to ws://127.0.0.1:3011 --sse http://a/sse").unwrap();
        assert_eq!(notes, [""; 0]);
    }

    #[test]
    fn what_cannot_be_used_is_a_fault_and_shows_no_token() {
        for line in [
            "--to https://gw -- x",
            "--to gw -- x",
            "--to wss://u:p@gw -- x",
            "--to wss://gw --token hun_ter2 -- x",
            "--to wss://gw --token-file /nonexistent/token -- x",
            "--to wss://gw --source a_b -- x",
            "--to wss://gw --header x -- x",
            "--to wss://gw --header Authorization:_x -- x",
            "--to wss://gw --http ws://a/",
            "--to wss://gw --http http://a/ --server-header Mcp-Session-Id:_x",
            "--to wss://gw",
            "--to wss://gw --http http://a/ -- x",
            "--to wss://gw --http http://a/ --sse http://a/",
            "--to wss://gw --token t --token-file f -- x",
            "--to wss://gw --server-header x:_y -- x",
            "-- x",
        ] {
            let faults = check(line).unwrap_err();
            assert_eq!(faults.len(), 1, "{line}: {faults:?}");
            assert!(!faults[0].contains("ter2"), "{faults:?}");
        }
        let (settings, _) = check("--to wss://gw --token hunter2 -- x").unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
