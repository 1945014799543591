//! `shardgate tools`: declarations of tools from what describes an API.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    command::{complain, refuse_lines, say},
    openapi::{self, DOCUMENT_BYTES_MAX, Options},
    settings::ToolsAction,
};

/// Does what the action says.
pub(crate) fn run(action: ToolsAction) -> ExitCode {
    match action {
        ToolsAction::FromOpenapi {
            file,
            server,
            tag,
            allow_private,
            without_output,
            output,
        } => {
            let options = Options {
                server,
                tags: tag,
                allows_private: allow_private,
                without_output,
            };
            from_openapi(&file, &options, output)
        }
    }
}

/// Writes the declarations of a document, warns of what they lack. 0, or 2 when there are none.
fn from_openapi(file: &Path, options: &Options, output: Option<PathBuf>) -> ExitCode {
    let told =
        |fault: &dyn std::fmt::Display| refuse_lines([format!("{}: {fault}", file.display())]);
    let text = match read(file) {
        Ok(text) => text,
        Err(error) => return told(&error),
    };
    let document = match openapi::parse(&text) {
        Ok(document) => document,
        Err(fault) => return told(&fault),
    };
    let converted = match openapi::convert(&document, options) {
        Ok(converted) => converted,
        Err(fault) => return told(&fault),
    };
    for warning in &converted.warnings {
        complain(format_args!("warning: {warning}"));
    }
    if converted.tools.is_empty() {
        return told(&"no operation became a tool");
    }
    let tools = match serde_json::to_string_pretty(&converted.tools) {
        Ok(tools) => tools,
        Err(error) => return told(&error),
    };
    match output {
        None => say(tools),
        Some(path) => {
            if let Err(error) = std::fs::write(&path, tools + "\n") {
                return refuse_lines([format!("{}: {error}", path.display())]);
            }
            let count = converted.tools.len();
            complain(format_args!("note: {count} tools in {}", path.display()));
        }
    }
    ExitCode::SUCCESS
}

/// Reads a file, or standard input for `-`; not more than is converted.
fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let limit = DOCUMENT_BYTES_MAX as u64 + 1;
    if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_string(&mut text)?;
    } else {
        let file = std::fs::File::open(file)?;
        file.take(limit).read_to_string(&mut text)?;
    }
    Ok(text)
}
