//! All a check may look at: files, control groups, the plan, and whether tries make sense.

use crate::{
    around::Documents,
    cgroup::Cgroups,
    check::Options,
    place::Place,
    plan::{Plan, usable_cpus},
    source::{Source, Unseen, sysctl},
};

/// The host as the checks see it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) source: Source,
    pub(crate) cgroups: Cgroups,
    pub(crate) place: Place,
    pub(crate) usable_cpus: Result<Vec<usize>, Unseen>,
    pub(crate) plan: Plan,
    /// CPUs the operator named.
    pub(crate) named_cpus: Option<Vec<usize>>,
    /// False when the files are a copy: what is tried here would tell of another machine.
    pub(crate) is_this_machine: bool,
    /// Whether the sleeps may be measured.
    pub(crate) may_measure: bool,
    /// Redis to ask.
    pub(crate) redis: Option<String>,
    /// Documents to judge.
    pub(crate) documents: Option<Documents>,
}

impl Host {
    pub(crate) fn read(options: &Options) -> Self {
        let is_this_machine = options.root.is_none();
        let source = Source::new(options.root.clone().unwrap_or_else(|| "/".into()));
        let cgroups = Cgroups::read(&source);
        let usable_cpus = usable_cpus(&source);
        Self {
            place: Place::read(&source),
            plan: Plan::new(options, &usable_cpus, &cgroups),
            named_cpus: options.cpus.clone(),
            usable_cpus,
            cgroups,
            source,
            is_this_machine,
            may_measure: options.may_measure,
            redis: options.redis.clone(),
            documents: options.documents.clone(),
        }
    }

    /// The text of a kernel setting.
    pub(crate) fn setting(&self, name: &str) -> Result<String, Unseen> {
        self.source.text(&sysctl(name))
    }

    /// A kernel setting that is one whole number.
    pub(crate) fn setting_number(&self, name: &str) -> Result<u64, Unseen> {
        self.source.number(&sysctl(name))
    }
}
