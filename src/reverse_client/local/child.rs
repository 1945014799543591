//! A local server over stdio: a child process of this one, with its environment and its standard
//! error, but without the token.

use std::{ffi::OsString, future::Future};

use tokio::{
    process::Command,
    sync::{mpsc, oneshot},
};

use super::{Letter, Said, StartFault};
use crate::{
    bridge::child::{Ended, Terms, launch},
    reverse_client::MESSAGE_BYTES_MAX,
    settings::REVERSE_TOKEN_VARIABLE,
};

/// Starts it; the future carries messages between the two sides and gives how it ended.
pub(super) fn start(
    words: &[OsString],
    mut letters: mpsc::Receiver<Letter>,
    said: mpsc::Sender<Said>,
) -> Result<impl Future<Output = String> + use<>, StartFault> {
    let mut words = words.iter();
    let program = words.next().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(words).env_remove(REVERSE_TOKEN_VARIABLE);
    let terms = Terms {
        label: program.to_string_lossy().into(),
        line_bytes_max: MESSAGE_BYTES_MAX,
        lines_max: 1,
        is_logged: false,
    };
    let (tell, told) = oneshot::channel();
    let launched = launch(command, terms, move |ended| {
        // Nobody may care any more.
        let _ = tell.send(how(&ended));
    });
    let (child, mut lines) = launched.map_err(|error| StartFault {
        how: format!("cannot be started: {}: {error}", program.to_string_lossy()),
        // The program is not there, or is none: so it will stay.
        is_final: matches!(
            error.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied
        ),
    })?;
    Ok(async move {
        let writing = async {
            while let Some(letter) = letters.recv().await {
                if child.input.send(letter.message).await.is_err() {
                    // It is gone; what it has said before is still heard.
                    return std::future::pending().await;
                }
            }
        };
        let reading = async {
            while let Some(line) = lines.recv().await {
                if said.send(Said::Message(line)).await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
        drop((child, said));
        told.await.unwrap_or_else(|_| "ended".to_owned())
    })
}

fn how(ended: &Ended) -> String {
    match &ended.status {
        _ if ended.had_long_line => {
            format!("wrote a line of more than {MESSAGE_BYTES_MAX} bytes and was ended")
        }
        Ok(status) => format!("ended ({status})"),
        Err(error) => format!("ended ({error})"),
    }
}
