//! What merged lists taught a session: names that prefixes alone do not place, and the resources
//! that an allow-list of names lets through.
//!
//! Owns: when a list must be asked before something can be routed. Bounded: past the bounds
//! nothing more is learned, and what was not learned is judged by prefix, or refused.

use std::collections::HashMap;

use crate::{
    config::compiled::VirtualHost,
    route::{family::Family, template},
};

/// Entries kept of one list.
const ENTRIES_MAX: usize = 16_384;
/// Longest name or URI kept.
const ENTRY_BYTES_MAX: usize = 2048;
/// Templates kept of one list: each read may be compared with all.
const TEMPLATES_MAX: usize = 1024;

/// What one merged list taught.
#[derive(Debug, Default)]
pub struct Lesson {
    /// Exposed names or URIs and their backends; of equal ones the first in list order. Filled
    /// for ambiguous virtual hosts.
    exact: HashMap<Box<str>, u16>,
    /// Original URIs or URI templates that an allow-list of names lets through, and where.
    allowed: HashMap<Box<str>, Vec<u16>>,
    /// Backends whose list was in it.
    heard: Vec<u16>,
}

impl Lesson {
    /// A list of this backend was there, even if it was empty.
    pub(super) fn hear(&mut self, backend: u16) {
        if !self.heard.contains(&backend) {
            self.heard.push(backend);
        }
    }

    /// `exposed` is the backend's.
    pub(super) fn place(&mut self, exposed: &str, backend: u16) {
        if self.exact.len() < ENTRIES_MAX && exposed.len() <= ENTRY_BYTES_MAX {
            self.exact.entry(exposed.into()).or_insert(backend);
        }
    }

    /// The backend's resource or template `original` may be used.
    pub(super) fn allow(&mut self, family: Family, original: &str, backend: u16) {
        let entries_max = match family {
            Family::Templates => TEMPLATES_MAX,
            _ => ENTRIES_MAX,
        };
        if self.allowed.len() < entries_max && original.len() <= ENTRY_BYTES_MAX {
            let backends = self.allowed.entry(original.into()).or_default();
            if !backends.contains(&backend) {
                backends.push(backend);
            }
        }
    }

    /// Adds what a further page of the same list taught.
    fn extend(&mut self, family: Family, more: Self) {
        for (exposed, backend) in more.exact {
            self.place(&exposed, backend);
        }
        for (original, backends) in more.allowed {
            for backend in backends {
                self.allow(family, &original, backend);
            }
        }
        for backend in more.heard {
            self.hear(backend);
        }
    }
}

/// What a session knows from lists. It belongs to one state of the configuration.
#[derive(Debug, Default)]
pub struct Learned {
    tools: Option<Box<Lesson>>,
    resources: Option<Box<Lesson>>,
    templates: Option<Box<Lesson>>,
    prompts: Option<Box<Lesson>>,
}

impl Learned {
    /// Whether something of `family` can only be routed once its list is known, and it is not:
    /// whoever routes asks for the list first. Reads by URI need `Resources` and `Templates`.
    #[must_use]
    pub fn lacks(&self, host: &VirtualHost, family: Family) -> bool {
        is_needed(host, family) && self.of(family).is_none()
    }

    /// Whether the backend's own list was among those learned from.
    #[must_use]
    pub fn has_heard(&self, family: Family, backend: usize) -> bool {
        let lesson = self.of(family);
        lesson.is_some_and(|lesson| lesson.heard.iter().any(|at| usize::from(*at) == backend))
    }

    /// Takes in a whole list, or the first page of one, in place of what was known.
    pub fn replace(&mut self, family: Family, lesson: Lesson) {
        if let Some(place) = self.place_of(family) {
            *place = Some(Box::new(lesson));
        }
    }

    /// Takes in a further page of a list.
    pub fn extend(&mut self, family: Family, lesson: Lesson) {
        if let Some(place) = self.place_of(family) {
            match place {
                Some(known) => known.extend(family, lesson),
                None => *place = Some(Box::new(lesson)),
            }
        }
    }

    /// The backend that listed exactly this exposed name or URI.
    pub(super) fn exact(&self, family: Family, exposed: &str) -> Option<usize> {
        let backend = self.of(family)?.exact.get(exposed)?;
        Some(usize::from(*backend))
    }

    /// Whether the backend listed this URI, or a template that it can have come from, among what
    /// its allow-list of names lets through.
    pub(super) fn allows(&self, backend: usize, uri: &str) -> bool {
        let is_of = |backends: &[u16]| backends.iter().any(|at| usize::from(*at) == backend);
        let listed = self
            .resources
            .as_ref()
            .and_then(|known| known.allowed.get(uri));
        if listed.is_some_and(|backends| is_of(backends)) {
            return true;
        }
        self.templates.as_ref().is_some_and(|known| {
            let mut all = known.allowed.iter();
            all.any(|(template, backends)| is_of(backends) && template::matches(template, uri))
        })
    }

    fn of(&self, family: Family) -> Option<&Lesson> {
        match family {
            Family::Tools => self.tools.as_deref(),
            Family::Resources => self.resources.as_deref(),
            Family::Templates => self.templates.as_deref(),
            Family::Prompts => self.prompts.as_deref(),
            Family::Tasks => None,
        }
    }

    /// Nothing is learned of tasks: their ids name the backend.
    fn place_of(&mut self, family: Family) -> Option<&mut Option<Box<Lesson>>> {
        match family {
            Family::Tools => Some(&mut self.tools),
            Family::Resources => Some(&mut self.resources),
            Family::Templates => Some(&mut self.templates),
            Family::Prompts => Some(&mut self.prompts),
            Family::Tasks => None,
        }
    }
}

fn is_needed(host: &VirtualHost, family: Family) -> bool {
    match family {
        Family::Tools | Family::Prompts => host.is_ambiguous,
        Family::Resources | Family::Templates => {
            let mut all = host.backends.iter();
            host.is_ambiguous || all.any(|backend| backend.limits_resources_by_name())
        }
        Family::Tasks => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_pages_add_and_a_new_list_replaces() {
        let mut learned = Learned::default();
        let lesson = |exposed: &str, backend| {
            let mut lesson = Lesson::default();
            lesson.hear(backend);
            lesson.place(exposed, backend);
            lesson
        };
        learned.extend(Family::Tools, lesson("a", 0));
        learned.extend(Family::Tools, lesson("b", 1));
        learned.extend(Family::Tools, lesson("a", 1));
        assert_eq!(learned.exact(Family::Tools, "a"), Some(0));
        assert_eq!(learned.exact(Family::Tools, "b"), Some(1));
        assert_eq!(learned.exact(Family::Prompts, "a"), None);
        assert!(learned.has_heard(Family::Tools, 1));
        learned.replace(Family::Tools, lesson("c", 0));
        assert_eq!(learned.exact(Family::Tools, "a"), None);
        assert!(!learned.has_heard(Family::Tools, 1));
        learned.replace(Family::Tasks, lesson("c", 0));
        assert_eq!(learned.exact(Family::Tasks, "c"), None);
    }

    #[test]
    fn what_is_allowed_is_allowed_at_its_backend() {
        let mut learned = Learned::default();
        let (mut resources, mut templates) = (Lesson::default(), Lesson::default());
        resources.allow(Family::Resources, "x://1", 0);
        resources.allow(Family::Resources, "x://1", 2);
        templates.allow(Family::Templates, "x://{id}/a", 1);
        learned.replace(Family::Resources, resources);
        learned.replace(Family::Templates, templates);
        assert!(learned.allows(0, "x://1") && learned.allows(2, "x://1"));
        assert!(!learned.allows(1, "x://1"));
        assert!(learned.allows(1, "x://7/a") && !learned.allows(0, "x://7/a"));
    }

    #[test]
    fn lessons_are_bounded() {
        let mut lesson = Lesson::default();
        for number in 0..TEMPLATES_MAX + 3 {
            lesson.allow(Family::Templates, &number.to_string(), 0);
        }
        assert_eq!(lesson.allowed.len(), TEMPLATES_MAX);
        for number in 0..ENTRIES_MAX + 3 {
            lesson.place(&number.to_string(), 0);
        }
        assert_eq!(lesson.exact.len(), ENTRIES_MAX);
        let mut lesson = Lesson::default();
        lesson.place(&"x".repeat(ENTRY_BYTES_MAX + 1), 0);
        lesson.allow(Family::Resources, &"x".repeat(ENTRY_BYTES_MAX + 1), 0);
        assert!(lesson.exact.is_empty() && lesson.allowed.is_empty());
    }
}
