//! The changes as a shell script with two directions.

use super::Change;

/// Renders the script. Values are words and numbers of the kernel; they are quoted all the same.
pub(super) fn render(changes: &[Change]) -> String {
    let mut text = String::from(
        "#!/bin/sh\n# Made by `shardgate tune apply`. Without an argument or with `apply` it sets, with\n\
         # `revert` it sets back. Run it as root; a reboot undoes all of it.\nset -eu\n\n\
         case \"${1:-apply}\" in\napply)\n",
    );
    for change in changes {
        line(&mut text, &change.wanted, &change.path);
    }
    text += "    ;;\nrevert)\n";
    for change in changes.iter().rev() {
        line(&mut text, &change.current, &change.path);
    }
    text += "    ;;\n*)\n    echo \"usage: $0 [apply|revert]\" >&2\n    exit 2\n    ;;\nesac\n";
    text
}

fn line(text: &mut String, value: &str, path: &str) {
    *text += &format!("    echo {} > {}\n", quoted(value), quoted(path));
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn the_shell_reads_what_was_quoted(word in "[ -~]{1,20}") {
            let script = format!("printf %s {}", quoted(&word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
