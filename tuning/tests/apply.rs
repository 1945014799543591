//! Changing settings on copies of hosts: dry, for real, as a script, and back.

#![expect(clippy::unwrap_used, reason = "a test without its files has failed")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tuning::{Changes, Options, Record};

fn trees() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees"))
}

/// A copy of a host that may be spoiled.
fn copy_of(tree: &str, test: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    // Left by an earlier run, if it is there at all.
    let _ = fs::remove_dir_all(&root);
    copy(&trees().join(tree), &root);
    root
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), target).unwrap();
        } else if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let text = fs::read_to_string(&path).unwrap();
            // Blanks at the end are no difference to the kernel.
            all.insert(path, text.trim().to_owned());
        }
    }
    all
}

fn plan(root: &Path) -> Changes {
    Changes::plan(&Options {
        root: Some(root.to_owned()),
        ..Options::default()
    })
}

fn paths(changes: &Changes) -> Vec<&str> {
    changes
        .changes
        .iter()
        .map(|change| change.path.as_str())
        .collect()
}

#[test]
fn planning_changes_nothing() {
    for tree in ["small-vm", "two-sockets", "laptop", "container"] {
        let root = copy_of(tree, &format!("planned-{tree}"));
        let before = files(&root);
        let changes = plan(&root);
        assert!(!changes.changes.is_empty(), "{tree}");
        assert_eq!(files(&root), before);
    }
    assert!(plan(&trees().join("healthy")).changes.is_empty());
}

#[test]
fn what_is_applied_satisfies_the_plan_and_comes_back() {
    for tree in ["small-vm", "two-sockets", "laptop"] {
        let root = copy_of(tree, &format!("applied-{tree}"));
        let before = files(&root);
        let record = Record::at(None, Some(&root));
        let changes = plan(&root);
        for (change, fault) in changes.apply(&record).unwrap() {
            assert_eq!(fault, None, "{change:?}");
        }
        assert!(plan(&root).changes.is_empty(), "{:?}", plan(&root).changes);
        assert_eq!(record.changes().unwrap(), changes.changes);
        for (change, fault) in record.revert().unwrap() {
            assert_eq!(fault, None, "{change:?}");
        }
        assert!(!record.path().exists());
        let mut after = files(&root);
        // The chosen word of this file comes back alone: the brackets are the kernel's.
        let pages = root.join("sys/kernel/mm/transparent_hugepage/enabled");
        if before[&pages].contains("[always]") {
            assert_eq!(
                after.insert(pages.clone(), before[&pages].clone()).unwrap(),
                "always"
            );
        }
        assert_eq!(after, before);
    }
}

#[test]
fn the_first_value_is_kept_and_what_others_changed_is_left() {
    let root = copy_of("small-vm", "twice");
    let record = Record::at(Some(root.join("record.json")), Some(&root));
    let backlog = "/proc/sys/net/core/netdev_max_backlog";
    let keepalive = "/proc/sys/net/ipv4/tcp_keepalive_time";
    let file = |path: &str| root.join(path.trim_start_matches('/'));
    plan(&root).apply(&record).unwrap();
    // Somebody sets it back by hand, and it is applied again.
    fs::write(file(backlog), "2000").unwrap();
    plan(&root).apply(&record).unwrap();
    fs::write(file(keepalive), "30").unwrap();
    let outcomes = record.revert().unwrap();
    let left: Vec<_> = outcomes
        .iter()
        .filter(|(_, fault)| fault.is_some())
        .collect();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].0.path, keepalive);
    assert_eq!(fs::read_to_string(file(backlog)).unwrap().trim(), "1000");
    assert_eq!(fs::read_to_string(file(keepalive)).unwrap().trim(), "30");
}

#[test]
fn a_container_never_touches_what_is_the_hosts() {
    let root = copy_of("container", "contained");
    let changes = plan(&root);
    for path in paths(&changes) {
        assert!(
            path.starts_with("/proc/sys/net/ipv4") || path.ends_with("somaxconn"),
            "{path}"
        );
    }
    assert!(
        changes.left.iter().any(
            |left| left.why.contains("container") && left.what.contains("transparent_hugepage")
        )
    );
    // The same files without the sign of a container are a host.
    fs::remove_file(root.join(".dockerenv")).unwrap();
    fs::write(root.join("proc/self/cgroup"), "0::/\n").unwrap();
    fs::write(root.join("proc/self/mountinfo"), "\n").unwrap();
    let changes = plan(&root);
    assert!(paths(&changes).contains(&"/sys/kernel/mm/transparent_hugepage/enabled"));
}

#[test]
fn a_machine_with_two_sockets_gets_governor_interrupts_and_masks() {
    let root = copy_of("two-sockets", "sockets");
    let governors = |changes: &Changes| {
        let is_governor = |path: &&&str| path.ends_with("scaling_governor");
        paths(changes).iter().filter(is_governor).count()
    };
    let changes = plan(&root);
    assert_eq!(governors(&changes), 8);
    assert!(paths(&changes).contains(&"/sys/class/net/ens1f0/queues/rx-3/rps_cpus"));
    // With shards on some CPUs only, interrupts go to the others.
    let changes = Changes::plan(&Options {
        root: Some(root),
        cpus: Some(vec![0, 1]),
        ..Options::default()
    });
    let moved: Vec<_> = changes
        .changes
        .iter()
        .filter(|change| change.number == 8)
        .collect();
    assert!(
        moved.is_empty(),
        "two of four interrupts on both shards are even: {moved:?}"
    );
}

#[test]
fn the_script_sets_and_sets_back() {
    let root = copy_of("small-vm", "scripted");
    let before = files(&root);
    let changes = plan(&root);
    // The script means the real root: here each path gets the copy's in front.
    let script = changes
        .script()
        .replace("> '/", &format!("> '{}/", root.display()));
    let path = root.with_extension("sh");
    fs::write(&path, script).unwrap();
    let run = |direction: &str| {
        let status = Command::new("sh")
            .arg(&path)
            .arg(direction)
            .status()
            .unwrap();
        status.code()
    };
    assert_eq!(run("apply"), Some(0));
    assert!(plan(&root).changes.is_empty());
    assert_eq!(run("revert"), Some(0));
    assert_eq!(files(&root), before);
    assert_eq!(run("nonsense"), Some(2));
}

#[test]
fn a_value_that_is_refused_keeps_no_other_from_being_set() {
    let root = copy_of("small-vm", "refused");
    let changes = plan(&root);
    let first = &changes.changes[0].path;
    fs::remove_file(root.join(first.trim_start_matches('/'))).unwrap();
    let record = Record::at(None, Some(&root));
    let outcomes = changes.apply(&record).unwrap();
    assert!(outcomes[0].1.is_some());
    assert!(outcomes[1..].iter().all(|(_, fault)| fault.is_none()));
    // What was never set needs no way back.
    let first = root.join(first.trim_start_matches('/'));
    fs::write(&first, &changes.changes[0].current).unwrap();
    assert!(
        record
            .revert()
            .unwrap()
            .iter()
            .all(|(_, fault)| fault.is_none())
    );
}
