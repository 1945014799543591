//! A user config compiled for one shard: what a request needs, looked up once.
//!
//! Compiling happens when a config is loaded, never on a request. Backends are in the order of
//! their keys, so every merge is deterministic.

use std::{cell::OnceCell, collections::HashMap, rc::Rc, sync::Arc};

use crate::{
    auth::Principal,
    bridge::HEADER_PREFIX,
    config::{
        credential::Credential,
        host_protocols::HostProtocols,
        user_config::{self, BackendProtocol, Transport, UserConfig, is_protected_header},
    },
    declared::Declared,
    route::family::Family,
    settings::{FailMode, Protocols},
    upstream::{
        CallFault,
        target::{Behind, OwnLines, Target, Targets},
    },
};

/// Looked up on every call. Its names are the operator's, so nobody can choose them to collide, and
/// the hash may be a fast one.
type ByName<T> = HashMap<Box<str>, T, foldhash::fast::RandomState>;

/// One user's virtual hosts.
#[derive(Debug)]
pub struct CompiledUser {
    hosts: ByName<Rc<VirtualHost>>,
}

/// One virtual host: what a client sees as one MCP server.
#[derive(Debug)]
pub struct VirtualHost {
    /// Its name.
    pub name: Box<str>,
    /// Its backends, by ascending key.
    pub backends: Vec<Backend>,
    /// Aliases over all backends: exposed name to backend and original name. `None`: two backends
    /// claim it, so it routes nowhere.
    pub aliases: ByName<Option<(u16, Box<str>)>>,
    /// One backend is configured, so names need no prefix. A second one that cannot be used still
    /// counts: names must not change because it was mended.
    pub is_single: bool,
    /// One key followed by `-` begins another: prefixes alone do not tell the backend.
    pub is_ambiguous: bool,
    /// What happens when some backends fail, where it is not as the settings say.
    pub fail_mode: Option<FailMode>,
    /// What it says of protocol profiles, and what is left of the settings then, once asked for.
    protocols: Option<(HostProtocols, OnceCell<Box<Protocols>>)>,
    /// Differs between configurations that differ in this virtual host.
    pub revision: u64,
    /// Teams it belongs to; none: it is everyone's.
    pub teams: Box<[Box<str>]>,
    /// A backend gets the callers' tokens.
    pub passes_tokens: bool,
    /// Tools it has of its own.
    pub declared: Declared,
}

/// One backend of a virtual host.
#[derive(Debug)]
pub struct Backend {
    /// Its key, the prefix of its exposed names.
    pub key: Box<str>,
    /// Where it is.
    pub target: Rc<Target>,
    /// Path and query of its endpoint.
    pub path: Box<str>,
    /// Exposed alias by original tool name; the smallest when several name one tool.
    pub alias_of: ByName<Box<str>>,
    /// Original tool names a caller may see and call; `None`: all.
    pub allowed_tools: Option<Vec<Box<str>>>,
    /// Original prompt names, likewise.
    pub allowed_prompts: Option<Vec<Box<str>>>,
    /// Which resources and templates, likewise.
    pub allowed_resources: Option<AllowedResources>,
    /// Lower-case names of headers copied from the caller.
    pub pass_headers: Vec<Box<str>>,
    /// Headers set on every request: lower-case name, value.
    pub add_headers: Vec<(Box<str>, Box<str>)>,
    /// The gateway's own credential, set on every request, whatever the header rules say.
    pub credential: Option<Credential>,
    /// The caller's token is passed on if it names this as its audience.
    pub caller_resource: Option<Box<str>>,
    /// Header lines of the gateway's own, which no configuration changes.
    pub own_lines: OwnLines,
    /// Which protocol profile it speaks.
    pub protocol: BackendProtocol,
    /// Whether and how clients without sessions are served although it has them.
    pub bridge: Option<Bridging>,
}

/// How clients without sessions reach a backend that has them: each request in a session of its own
/// (dual-profile.md 2.8).
#[derive(Debug)]
pub struct Bridging {
    /// Original names of the tools that need nothing said before; `None`: all of them.
    independent_tools: Option<Vec<Box<str>>>,
}

impl Bridging {
    fn new(config: &user_config::BackendConfig) -> Self {
        let names = &config.session_independent_tools;
        let is_all = names.iter().any(|name| name == "*");
        Self {
            independent_tools: (!is_all).then(|| boxed(names)),
        }
    }

    /// Whether a tool was declared to need no session.
    pub fn allows(&self, original: &str) -> bool {
        let names = self.independent_tools.as_ref();
        names.is_none_or(|names| holds(names, original))
    }
}

/// The resources and templates of a backend that a caller may see and read: those with one of the
/// names, and those with one of the URIs (contextforge.md 5.5).
#[derive(Debug)]
pub struct AllowedResources {
    /// Original names.
    pub names: Vec<Box<str>>,
    /// Original URIs, or URI templates as they are listed.
    pub uris: Vec<Box<str>>,
}

impl CompiledUser {
    /// Compiles `config`, taking targets from the shard's set.
    pub fn new(config: &UserConfig, targets: &Targets) -> Self {
        let hosts = config
            .virtual_hosts
            .iter()
            .map(|(name, host)| {
                (
                    Box::from(name.as_str()),
                    Rc::new(VirtualHost::new(name, host, targets)),
                )
            })
            .collect();
        Self { hosts }
    }

    /// The virtual host with this name.
    pub fn host(&self, name: &str) -> Option<&Rc<VirtualHost>> {
        self.hosts.get(name)
    }

    /// The virtual host of the bare endpoint: the one named `preferred`, else the only one.
    pub fn default_host(&self, preferred: &str) -> Option<&Rc<VirtualHost>> {
        self.hosts.get(preferred).or_else(|| {
            let mut all = self.hosts.values();
            all.next().filter(|_| all.next().is_none())
        })
    }
}

impl VirtualHost {
    fn new(name: &str, host: &user_config::VirtualHost, targets: &Targets) -> Self {
        let mut backends = Vec::with_capacity(host.backends.len());
        for (key, config) in &host.backends {
            // A credential that could not be fetched: without it the backend is not asked.
            let is_keyless = config.auth.is_some() && config.credential.is_none();
            if !config.is_usable() || is_keyless {
                continue;
            }
            if let Some(backend) = Backend::new(key, config, targets) {
                backends.push(backend);
            }
        }
        let mut aliases: ByName<Option<(u16, Box<str>)>> = ByName::default();
        for (index, backend) in (0u16..).zip(&backends) {
            for (alias, original) in &host.backends[&*backend.key].tool_name_aliases {
                aliases
                    .entry(alias.as_str().into())
                    .and_modify(|known| *known = None)
                    .or_insert_with(|| Some((index, original.as_str().into())));
            }
        }
        // `ui://` URIs carry the key after the scheme, so such a key can be met in both places.
        let is_ui = |backend: &Backend| backend.key.starts_with("ui://");
        let is_ambiguous = backends.iter().any(is_ui)
            || backends.iter().any(|short: &Backend| {
                backends.iter().any(|long: &Backend| {
                    long.key.len() > short.key.len()
                        && long.key.starts_with(&*short.key)
                        && long.key.as_bytes()[short.key.len()] == b'-'
                })
            });
        let is_single = host.backends.len() == 1;
        let passes_tokens = backends
            .iter()
            .any(|backend| backend.caller_resource.is_some());
        let declared = Declared::new(host, &backends, targets);
        Self {
            name: name.into(),
            declared,
            backends,
            aliases,
            is_single,
            is_ambiguous,
            fail_mode: host.failure_mode,
            protocols: host.protocols.clone().map(|said| (said, OnceCell::new())),
            revision: revision_of(host),
            teams: boxed(&host.teams).into(),
            passes_tokens,
        }
    }
}

impl VirtualHost {
    /// Which protocol profiles it serves, where the settings say `all`.
    pub fn protocols<'a>(&'a self, all: &'a Protocols) -> &'a Protocols {
        match &self.protocols {
            None => all,
            Some((said, narrowed)) => narrowed.get_or_init(|| Box::new(said.narrow(all))),
        }
    }
}

/// A digest of all that was written; what it cannot see, like a secret's value, opens nothing new
/// to a client.
fn revision_of(host: &user_config::VirtualHost) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(&serde_json::to_vec(host).unwrap_or_default());
    hasher.finish()
}

impl Backend {
    fn new(key: &str, config: &user_config::BackendConfig, targets: &Targets) -> Option<Self> {
        let (target, path, own_lines) = match (config.transport, config.reverse_source()) {
            (Transport::StreamableHttp, Some(source)) => {
                targets.of_bridge(Behind::Reverse(source))?
            }
            (Transport::StreamableHttp, None) => {
                let (target, path) = targets.of_url(&config.url)?;
                (target, path, OwnLines::default())
            }
            (Transport::Sse, _) => targets.of_bridge(Behind::Sse(&config.url))?,
            (Transport::Stdio, _) => targets.of_bridge(Behind::Stdio(config.stdio.as_ref()?))?,
        };
        let mut alias_of: ByName<Box<str>> = ByName::default();
        // Ascending aliases, so the smallest one of a tool is kept.
        for (alias, original) in &config.tool_name_aliases {
            alias_of
                .entry(original.as_str().into())
                .or_insert_with(|| alias.as_str().into());
        }
        let removed: Vec<String> = config
            .remove_headers
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        let credential = config.credential.clone();
        // Whoever says whose credential it is leaves no other way for one.
        let is_decided = config.backend_credential_mode.is_some();
        let decides = |name: &str| is_decided && name == "authorization";
        let is_free = |name: &str| {
            !is_protected_header(name)
                && !decides(name)
                && name != "accept-encoding"
                && credential.as_ref().is_none_or(|own| *own.name != *name)
                && !name.starts_with(HEADER_PREFIX)
                && !removed.iter().any(|gone| gone == name)
                && is_token(name)
        };
        let add_headers: Vec<(Box<str>, Box<str>)> = config
            .add_headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .filter(|(name, value)| is_free(name) && is_field_value(value))
            .map(|(name, value)| (name.into(), value.as_str().into()))
            .collect();
        let pass_headers = config
            .passthrough_headers
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .filter(|name| is_free(name) && !add_headers.iter().any(|(added, _)| **added == **name))
            .map(Box::from)
            .collect();
        let is_restricted = !config.is_unrestricted();
        let uris = config.allowed_resource_uris.as_deref().unwrap_or_default();
        Some(Self {
            key: key.into(),
            target,
            path,
            alias_of,
            allowed_tools: is_restricted.then(|| boxed(&config.allowed_tool_names)),
            allowed_prompts: is_restricted.then(|| boxed(&config.allowed_prompt_names)),
            allowed_resources: is_restricted.then(|| AllowedResources {
                names: boxed(&config.allowed_resource_names),
                uris: boxed(uris),
            }),
            pass_headers,
            add_headers,
            credential,
            caller_resource: config.resource(),
            own_lines,
            protocol: match config.transport {
                Transport::StreamableHttp => config.protocol.unwrap_or(BackendProtocol::Auto),
                // The bridge speaks for them.
                Transport::Sse | Transport::Stdio => BackendProtocol::Legacy,
            },
            bridge: config.bridge.map(|_| Bridging::new(config)),
        })
    }

    /// Whether the backend may be asked for `principal`: always, unless it gets the caller's token
    /// and that is not meant for it. Exact, and before anything is sent (RFC 8707).
    ///
    /// # Errors
    /// When it may not.
    pub fn admit(&self, principal: &Principal) -> Result<(), CallFault> {
        match &self.caller_resource {
            Some(resource) if !principal.is_meant_for(resource) => Err(CallFault::NotMeant),
            _ => Ok(()),
        }
    }

    /// Whether a session opened with `other` is still good for this one.
    pub fn same_target(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.target, &other.target)
            && self.path == other.path
            && self.add_headers == other.add_headers
            && self.credential == other.credential
            && self.caller_resource == other.caller_resource
    }

    /// Whether callers may see and call the tool with this original name (contextforge.md 5.5).
    pub fn allows_tool(&self, original: &str) -> bool {
        let allowed = self.allowed_tools.as_ref();
        allowed.is_none_or(|names| holds(names, original))
    }

    /// Whether callers may see and get the prompt with this original name.
    pub fn allows_prompt(&self, original: &str) -> bool {
        let allowed = self.allowed_prompts.as_ref();
        allowed.is_none_or(|names| holds(names, original))
    }

    /// Whether callers may see and read the resource with this original name and URI, or the
    /// template with this name and URI template.
    pub fn allows_resource(&self, name: &str, uri: &str) -> bool {
        let allowed = self.allowed_resources.as_ref();
        allowed.is_none_or(|allowed| holds(&allowed.names, name) || holds(&allowed.uris, uri))
    }

    /// Whether clients see everything of this family under the backend's own names, when it is the
    /// only one.
    pub fn shows_all_of(&self, family: Family) -> bool {
        match family {
            Family::Tools => self.allowed_tools.is_none() && self.alias_of.is_empty(),
            Family::Prompts => self.allowed_prompts.is_none(),
            Family::Resources | Family::Templates => self.allowed_resources.is_none(),
            Family::Tasks => true,
        }
    }

    /// Whether some resources are allowed by name, so that only a list tells their URIs.
    pub fn limits_resources_by_name(&self) -> bool {
        let allowed = self.allowed_resources.as_ref();
        allowed.is_some_and(|allowed| !allowed.names.is_empty())
    }
}

fn holds(list: &[Box<str>], text: &str) -> bool {
    list.iter().any(|entry| **entry == *text)
}

fn boxed(list: &[String]) -> Vec<Box<str>> {
    list.iter().map(|text| text.as_str().into()).collect()
}

fn is_token(name: &str) -> bool {
    // RFC 9110 section 5.6.2.
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn is_field_value(value: &str) -> bool {
    // RFC 9110 section 5.5, ASCII only.
    value
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

/// A config as it travels to shards: parsed once, compiled by each.
pub type SharedConfig = Arc<UserConfig>;
