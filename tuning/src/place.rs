//! Where we are: on the machine itself, in a virtual one, in a container.
//!
//! Tells so that advice can be addressed and gaps explained; no check is skipped because of it.

use serde::Serialize;

use crate::source::Source;

/// Where the process runs, as far as the files tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Place {
    /// What says that this is a container.
    pub container: Option<String>,
    /// The virtual machine's name when the CPU says there is a hypervisor.
    pub virtual_machine: Option<String>,
}

impl Place {
    pub(crate) fn read(source: &Source) -> Self {
        Self {
            container: container(source),
            virtual_machine: virtual_machine(source),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.container, &self.virtual_machine) {
            (None, None) => f.write_str("no container or hypervisor seen"),
            (Some(sign), None) => write!(f, "container ({sign})"),
            (None, Some(name)) => write!(f, "virtual machine ({name})"),
            (Some(sign), Some(name)) => {
                write!(f, "container ({sign}) in a virtual machine ({name})")
            }
        }
    }
}

fn container(source: &Source) -> Option<String> {
    if source.has("/.dockerenv") {
        return Some("docker".to_owned());
    }
    if source.has("/run/.containerenv") {
        return Some("podman".to_owned());
    }
    // systemd's container interface: the manager writes its name here.
    if let Ok(name) = source.text("/run/systemd/container") {
        return Some(name);
    }
    let membership = source.text("/proc/self/cgroup").unwrap_or_default();
    if let Some(name) = manager(&membership) {
        return Some(format!("control group of {name}"));
    }
    let mounts = source.text("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .lines()
        .any(|line| line.split_whitespace().nth(4) == Some("/") && line.contains(" - overlay "))
        .then(|| "overlay root".to_owned())
}

/// The container manager that made a control group. A service of a manager is not in a container.
fn manager(membership: &str) -> Option<&'static str> {
    let signs = [
        ("/docker/", "docker"),
        ("/docker-", "docker"),
        ("/kubepods", "kubernetes"),
        ("/libpod-", "podman"),
        ("/lxc/", "lxc"),
        ("/lxc.payload.", "lxc"),
    ];
    let found = |(sign, _): &&(&str, &str)| membership.contains(sign);
    signs.iter().find(found).map(|(_, name)| *name)
}

fn virtual_machine(source: &Source) -> Option<String> {
    let cpus = source.text("/proc/cpuinfo").ok()?;
    let has_hypervisor = cpus
        .lines()
        .find(|line| line.starts_with("flags"))?
        .split_whitespace()
        .any(|flag| flag == "hypervisor");
    has_hypervisor.then(|| {
        source
            .text("/sys/class/dmi/id/product_name")
            .ok()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "unnamed".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_name_their_manager() {
        for (membership, name) in [
            ("0::/system.slice/docker-4f2a.scope", Some("docker")),
            ("4:cpu:/docker/4f2a", Some("docker")),
            (
                "0::/kubepods.slice/kubepods-pod1.slice/x",
                Some("kubernetes"),
            ),
            ("0::/machine.slice/libpod-77.scope", Some("podman")),
            ("0::/lxc.payload.web/init.scope", Some("lxc")),
            ("0::/system.slice/docker.service", None),
            ("0::/", None),
        ] {
            assert_eq!(manager(membership), name, "{membership}");
        }
    }
}
