//! The five kinds of things that lists tell of, and the words of the wire for each (mcp.md 3.1).

use crate::mcp::json;

/// A kind of thing that backends list and that is merged into one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Tools.
    Tools,
    /// Resources.
    Resources,
    /// Resource templates.
    Templates,
    /// Prompts.
    Prompts,
    /// Tasks (revision 2025-11-25).
    Tasks,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Tools,
        Self::Resources,
        Self::Templates,
        Self::Prompts,
        Self::Tasks,
    ];

    /// The family that this method lists.
    #[must_use]
    pub fn of_method(method: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|family| family.method().as_bytes() == method)
    }

    /// The method that lists it.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Prompts => "prompts/list",
            Self::Tasks => "tasks/list",
        }
    }

    /// The member of the result that holds the list.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
            Self::Tasks => "tasks",
        }
    }

    /// The server capability that stands for it.
    #[must_use]
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::Templates => "resources",
            Self::Prompts => "prompts",
            Self::Tasks => "tasks",
        }
    }

    /// Whether a backend with these capabilities (an object of raw JSON) can be asked for the list.
    #[must_use]
    pub fn is_offered(self, capabilities: &[u8]) -> bool {
        let Some(own) = present(capabilities, self.capability()) else {
            return false;
        };
        // Tasks may be had without a list of them.
        self != Self::Tasks || present(own, "list").is_some()
    }

    /// The notification that the list is another now. Tasks have none: each tells of itself.
    #[must_use]
    pub const fn changed(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some("notifications/tools/list_changed"),
            Self::Resources | Self::Templates => Some("notifications/resources/list_changed"),
            Self::Prompts => Some("notifications/prompts/list_changed"),
            Self::Tasks => None,
        }
    }
}

/// A member that says something: some servers write `null` for what they lack.
fn present<'a>(object: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let value = json::member(object, key)?.slice(object);
    (!matches!(value, b"null" | b"false")).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_lead_back_to_their_family() {
        for family in Family::ALL {
            assert_eq!(Family::of_method(family.method().as_bytes()), Some(family));
        }
        assert_eq!(Family::of_method(b"tools/call"), None);
    }

    #[test]
    fn capabilities_tell_what_is_offered() {
        let offered = |capabilities: &str| -> Vec<Family> {
            let all = Family::ALL.into_iter();
            all.filter(|family| family.is_offered(capabilities.as_bytes()))
                .collect()
        };
        assert_eq!(offered("{}"), []);
        assert_eq!(offered("null"), []);
        assert_eq!(offered(r#"{"tools":{}}"#), [Family::Tools]);
        assert_eq!(
            offered(r#"{"resources":{"subscribe":true},"prompts":null}"#),
            [Family::Resources, Family::Templates]
        );
        assert_eq!(offered(r#"{"tasks":{"cancel":{}}}"#), []);
        assert_eq!(offered(r#"{"tasks":{"list":{}}}"#), [Family::Tasks]);
    }

    #[test]
    fn changes_have_the_name_of_the_capability() {
        for family in Family::ALL {
            if let Some(changed) = family.changed() {
                let named = format!("notifications/{}/list_changed", family.capability());
                assert_eq!(changed, named);
            }
        }
    }
}
