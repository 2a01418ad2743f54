//! What commands in namespaces can't ask of the kernel: things that no namespace separates.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// Keys belong to a user of the host, and a sandbox of a gateway that runs as root is that user to the kernel. The others
/// are large attack surfaces that no program in a sandbox needs, or ways around this filter (io_uring).
const DENIED: [i64; 9] = [
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
];

/// Sockets of these families reach past a network namespace: to the hypervisor, and into the kernel's cryptography.
const DENIED_FAMILIES: [i32; 2] = [libc::AF_VSOCK, libc::AF_ALG];

/// Types into a terminal as if its user did.
const DENIED_IOCTLS: [u64; 2] = [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */];

/// Makes the filter as bubblewrap reads it: a file with the program's instructions, below a directory of the gateway's own.
pub(super) fn file(runtime_dir: &Path) -> std::io::Result<PathBuf> {
    let program = program().map_err(std::io::Error::other)?;
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for instruction in program {
        bytes.extend_from_slice(&instruction.code.to_ne_bytes());
        bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
        bytes.extend_from_slice(&instruction.k.to_ne_bytes());
    }
    let place = runtime_dir.join("seccomp.bpf");
    // Beside it and renamed, since gateways may share it and one may read it just now.
    let mut made = tempfile::NamedTempFile::new_in(runtime_dir)?;
    made.write_all(&bytes)?;
    made.as_file().set_permissions(std::fs::Permissions::from_mode(0o444))?;
    made.persist(&place).map_err(|error| error.error)?;
    Ok(place)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let equals = |argument, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
        SeccompRule::new(vec![condition])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = DENIED.iter().map(|&number| (number, Vec::new())).collect();
    let families = DENIED_FAMILIES.iter().map(|&family| equals(0, u64::from(family.unsigned_abs())));
    rules.insert(libc::SYS_socket, families.collect::<Result<_, _>>()?);
    let ioctls = DENIED_IOCTLS.iter().map(|&request| equals(1, request));
    rules.insert(libc::SYS_ioctl, ioctls.collect::<Result<_, _>>()?);
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let target = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, denied, target)?.try_into()
}
