//! A folder with files to name, and command lines that name them.

use shardgate::settings::{Environment, Fault, Flags, Invocation, Note, Settings};
use std::path::PathBuf;

/// A folder of one test, with files that stand for keys; removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("shardgate-settings-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        for file in ["cert.pem", "key.pem", "ca.pem", "users.json"] {
            std::fs::write(path.join(file), "x").unwrap();
        }
        Self(path)
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    /// A command line with `@name` standing for a file of this folder.
    pub(crate) fn flags(&self, line: &str) -> Flags {
        let words = ["shardgate", "serve"]
            .into_iter()
            .chain(line.split_whitespace());
        let words: Vec<String> = words
            .map(|word| match word.strip_prefix('@') {
                Some(file) => self.path(file),
                None => word.to_owned(),
            })
            .collect();
        Invocation::parse(words).unwrap().flags
    }

    /// Resolves a command line with nothing else said but where home is.
    pub(crate) fn resolve(&self, line: &str) -> Result<(Settings, Vec<Note>), Vec<Fault>> {
        let home = Environment::from_pairs([("HOME", "/home/operator")]);
        Settings::resolve(&self.flags(line), &home, None)
    }

    pub(crate) fn settings(&self, line: &str) -> Settings {
        self.resolve(line)
            .unwrap_or_else(|faults| panic!("{line}: {}", lines(&faults)))
            .0
    }

    pub(crate) fn notes(&self, line: &str) -> Vec<String> {
        let notes = self
            .resolve(line)
            .unwrap_or_else(|faults| panic!("{}", lines(&faults)))
            .1;
        notes.iter().map(Note::to_string).collect()
    }

    pub(crate) fn faults(&self, line: &str) -> Vec<String> {
        match self.resolve(line) {
            Ok(_) => panic!("{line}: no fault"),
            Err(faults) => faults.iter().map(Fault::to_string).collect(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind, it only takes room in the temporary folder.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn lines(faults: &[Fault]) -> String {
    faults
        .iter()
        .map(Fault::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
