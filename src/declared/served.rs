//! The declared tools of one virtual host as one shard serves them: with their targets, their
//! credentials and the rules about them.

use std::{rc::Rc, sync::Arc};

use super::tool::{Kind, Tool};
use crate::{
    config::{compiled::Backend, credential::Credential, user_config},
    policy::{Claims, Denial, Policy, Ruling},
    upstream::target::{Target, Targets},
};

/// All declared tools of a virtual host.
#[derive(Debug, Default)]
pub struct Declared {
    /// By ascending name.
    tools: Vec<Served>,
    policy: Option<Policy>,
}

/// One declared tool.
#[derive(Debug)]
pub struct Served {
    /// The tool.
    pub tool: Arc<Tool>,
    pub(super) route: Route,
    ruling: Ruling,
}

/// Where calls go.
#[derive(Debug)]
pub(super) enum Route {
    Http {
        target: Rc<Target>,
        credential: Option<Credential>,
    },
    /// The backend at this index of the virtual host.
    Mcp(usize),
}

impl Served {
    /// Index in the virtual host of the backend behind it; `None`: an HTTP API is.
    #[must_use]
    pub fn backend(&self) -> Option<usize> {
        match self.route {
            Route::Http { .. } => None,
            Route::Mcp(index) => Some(index),
        }
    }
}

/// What rules know a backend's tool by, as they know a declared one of that name.
fn relayed_endpoint(name: &str) -> String {
    format!("/{name}@call")
}

impl Declared {
    /// Compiles what a virtual host declares; `backends` are its usable ones. A tool whose backend
    /// or credential is not to be had is left out.
    pub(crate) fn new(
        host: &user_config::VirtualHost,
        backends: &[Backend],
        targets: &Targets,
    ) -> Self {
        let Ok(policy) = Policy::read(host.access_control.as_ref(), host.rules.as_ref()) else {
            // Nobody can tell who may call what.
            return Self::default();
        };
        let serve = |tool: &Arc<Tool>| {
            let route = match &tool.kind {
                Kind::Http(http) => Route::Http {
                    target: targets.of_declared(&http.base, !http.allows_private)?,
                    credential: match &tool.auth {
                        None => None,
                        Some(_) => Some(host.tool_credentials.get(&*tool.name)?.clone()),
                    },
                },
                Kind::Mcp(mcp) => {
                    Route::Mcp(backends.iter().position(|one| one.key == mcp.backend)?)
                }
            };
            let ruling = policy.as_ref().map_or(Ruling::Skipped, |policy| {
                policy.ruling(&tool.name, &tool.endpoint)
            });
            Some(Served {
                tool: tool.clone(),
                route,
                ruling,
            })
        };
        let mut tools: Vec<Served> = host.tools.tools().iter().filter_map(serve).collect();
        tools.sort_by(|left, right| left.tool.name.cmp(&right.tool.name));
        Self { tools, policy }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether lists of tools, and calls of them, are the backends' alone: nothing is declared and
    /// no rule is about them.
    #[must_use]
    pub fn leaves_alone(&self) -> bool {
        self.tools.is_empty() && self.policy.is_none()
    }

    /// Whether a token's claims decide anything here.
    #[must_use]
    pub fn asks_claims(&self) -> bool {
        self.policy.is_some()
    }

    /// The tool with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Served> {
        let found = self
            .tools
            .binary_search_by(|one| (*one.tool.name).cmp(name));
        self.tools.get(found.ok()?)
    }

    /// The tools this caller may see, by ascending name.
    pub fn shown<'a>(&'a self, claims: &'a Claims) -> impl Iterator<Item = &'a Served> {
        self.tools.iter().filter(move |served| {
            let policy = self.policy.as_ref();
            policy.is_none_or(|policy| policy.shows(served.ruling, claims))
        })
    }

    /// Whether this caller may call the tool.
    ///
    /// # Errors
    /// When not.
    pub fn admit(&self, served: &Served, claims: &Claims) -> Result<(), Denial> {
        match &self.policy {
            None => Ok(()),
            Some(policy) => policy.allows(served.ruling, &served.tool.endpoint, claims),
        }
    }

    /// Whether a list shows a tool that only a backend knows, by the name clients see.
    #[must_use]
    pub fn shows_relayed(&self, name: &str, claims: &Claims) -> bool {
        self.policy.as_ref().is_none_or(|policy| {
            let ruling = policy.ruling(name, &relayed_endpoint(name));
            policy.shows(ruling, claims)
        })
    }

    /// Whether this caller may call a tool that only a backend knows. Its result is relayed as it
    /// comes, so where rules filter it the call is denied: a declaration in front of it can filter.
    ///
    /// # Errors
    /// When not.
    pub fn admit_relayed(&self, name: &str, claims: &Claims) -> Result<(), Denial> {
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        let endpoint = relayed_endpoint(name);
        let ruling = policy.ruling(name, &endpoint);
        if policy.filters(ruling) {
            return Err(Denial::ByRule(endpoint.into()));
        }
        policy.allows(ruling, &endpoint, claims)
    }

    /// The policy that filters the tool's results, if one does.
    pub(super) fn filter_of(&self, served: &Served) -> Option<(&Policy, Ruling)> {
        let policy = self.policy.as_ref()?;
        let filters = policy.filters(served.ruling);
        filters.then_some((policy, served.ruling))
    }
}
