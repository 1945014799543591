//! What a child process takes along of this one: its three standard streams and nothing else.
//!
//! io_uring accepts connections without close-on-exec, and any other descriptor may be between its
//! making and its marking when another thread starts a child. So the child itself marks all it has,
//! after the fork and before the program. It also asks to be told when its parent dies.

use std::{os::unix::process::CommandExt, process::Command};

/// The first descriptor that is not a standard stream.
const FIRST: libc::c_int = 3;
/// Descriptors looked at one by one where the kernel cannot mark a range (before Linux 5.11).
const LAST_MAX: libc::rlim_t = 1 << 20;

/// Has `command` inherit no descriptor but the standard streams, and get SIGTERM when the thread
/// that starts it ends, however that comes.
pub fn inherit_nothing(command: &mut Command) {
    // SAFETY: between fork and exec only system calls that POSIX or Linux allow there are made, on
    // the child's own copy of the descriptors; nothing is allocated, locked or dropped.
    unsafe { command.pre_exec(before_exec) };
}

fn before_exec() -> std::io::Result<()> {
    // SAFETY: plain system calls with integer arguments, and one pointer to a live local.
    unsafe {
        // No fault of the child: it is then only told by the end of its input.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong);
        let range = [FIRST as libc::c_uint, libc::c_uint::MAX];
        let marked = libc::syscall(
            libc::SYS_close_range,
            range[0],
            range[1],
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if marked == 0 {
            return Ok(());
        }
        let mut limit = libc::rlimit {
            rlim_cur: LAST_MAX,
            rlim_max: LAST_MAX,
        };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for descriptor in FIRST..limit.rlim_cur.min(LAST_MAX) as libc::c_int {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_descriptor_without_close_on_exec_stays_here() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        socket2::SockRef::from(&listener)
            .set_cloexec(false)
            .unwrap();
        // Its number may be given again to another descriptor; what it is, not.
        let link = format!("/proc/self/fd/{}", listener.as_raw_fd());
        let socket = std::fs::read_link(link).unwrap().display().to_string();
        let has = |command: &mut Command| {
            let output = command.args(["-l", "/proc/self/fd"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().contains(&socket)
        };
        assert!(has(&mut Command::new("ls")), "it would be inherited");
        let mut command = Command::new("ls");
        inherit_nothing(&mut command);
        assert!(!has(&mut command));
    }
}
