//! What single providers need, and what building components needs.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check::{Check, DEADLINE};
use super::command::{Outcome, find, install, run};
use crate::config::Config;

/// How long Docker may take to answer. A wedged engine accepts and never does.
const DOCKER_PATIENCE: Duration = Duration::from_secs(DEADLINE.as_secs() / 2);

const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Only building components needs it, running them does not.
pub(super) fn wasm_target(_: &Config) -> Check {
    let name = "wasm target";
    let mut there = false;
    // The first is what a build uses; the second has the targets of the distribution's packages.
    for rustc in ["rustc", "/usr/bin/rustc"] {
        match run(rustc, &["--print", "target-libdir", "--target", WASM_TARGET]) {
            Outcome::Succeeded(folder) if Path::new(&folder).is_dir() => {
                return Check::ok(name, format!("{rustc} can build components for {WASM_TARGET}"));
            }
            Outcome::Missing => {}
            Outcome::Succeeded(_) | Outcome::Failed(_) | Outcome::Broken(_) => there = true,
        }
    }
    if !there {
        return Check::skip(name, "there is no rustc; only building components needs one");
    }
    if library_sources() && Path::new("/usr/bin/cargo").exists() {
        let detail =
            format!("scripts/build-guests.sh can build for {WASM_TARGET} with the distribution's Rust and its sources");
        return Check::ok(name, detail);
    }
    let packages = install("rustc-web cargo-web rust-web-src", "rust-std-static-wasm32-unknown-unknown lld");
    let fix = match find("rustup") {
        Some(_) => format!("rustup target add {WASM_TARGET}, or (the distribution's compiler) {packages}"),
        None => packages,
    };
    Check::warn(name, format!("rustc lacks the target {WASM_TARGET}, which building components needs")).fix(fix)
}

/// Debian ships the standard library as sources, from which it can be built for any target.
fn library_sources() -> bool {
    let Ok(folders) = fs::read_dir("/usr/src") else { return false };
    folders.flatten().any(|folder| {
        folder.file_name().to_string_lossy().starts_with("rustc-")
            && folder.path().join("library/std/Cargo.toml").is_file()
    })
}

pub(super) fn docker(_: &Config) -> Check {
    let host = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
    docker_at(&host, find("docker").is_some(), DOCKER_PATIENCE)
}

fn docker_at(host: &str, client: bool, patience: Duration) -> Check {
    let name = "docker";
    let start = "sudo systemctl start docker, or name another engine in DOCKER_HOST";
    match ping(host, patience) {
        Ok(true) => Check::ok(name, format!("an engine answers at {host}")),
        Ok(false) => Check::warn(name, format!("something other than a Docker engine answers at {host}")).fix(start),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Check::warn(name, format!("{host} refuses the gateway's user"))
                .fix("sudo usermod -aG docker \"$(id -un)\", and log in again")
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            let detail =
                format!("the engine at {host} accepts, but does not answer within {} s", patience.as_secs_f32());
            Check::warn(name, detail).fix("sudo systemctl restart docker")
        }
        Err(error) if client => {
            Check::warn(name, format!("the client is there, but no engine answers at {host}: {error}")).fix(start)
        }
        Err(_) => Check::skip(name, "neither a client nor an engine; only providers that use containers need one"),
    }
}

/// Whether what answers is a Docker engine.
fn ping(host: &str, patience: Duration) -> io::Result<bool> {
    const REQUEST: &[u8] = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n";
    let mut answer = Vec::new();
    let mut talk = |mut stream: Box<dyn ReadWrite>| {
        stream.write_all(REQUEST)?;
        // Long enough for any answer to a ping. Each piece has to come in time, and there can be few of them.
        let mut buffer = [0; 1024];
        for _ in 0..8 {
            let read = stream.read(&mut buffer)?;
            answer.extend_from_slice(&buffer[..read]);
            if read == 0 || answer.ends_with(b"OK") {
                break;
            }
        }
        Ok::<_, io::Error>(())
    };
    if let Some(path) = host.strip_prefix("unix://") {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        talk(Box::new(stream))?;
    } else {
        let address = host.split_once("://").map_or(host, |(_, address)| address).trim_end_matches('/');
        let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        talk(Box::new(stream))?;
    }
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.starts_with("HTTP/") && answer.lines().next().is_some_and(|line| line.contains(" 200")))
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Virtual machines on this host.
pub(super) fn kvm(_: &Config) -> Check {
    kvm_at(Path::new("/dev/kvm"), &fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn kvm_at(device: &Path, cpuinfo: &str) -> Check {
    let name = "kvm";
    let device_name = device.display();
    let flags = cpuinfo.lines().filter(|line| line.starts_with("flags") || line.starts_with("Features"));
    let can = flags.flat_map(str::split_whitespace).any(|flag| flag == "vmx" || flag == "svm");
    let purpose = "only providers with virtual machines on this host need it";
    match OpenOptions::new().read(true).write(true).open(PathBuf::from(device)) {
        Ok(_) => Check::ok(name, format!("{device_name} can be used")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Check::skip(name, format!("{device_name} refuses the gateway's user; {purpose}"))
                .fix("sudo usermod -aG kvm \"$(id -un)\", and log in again")
        }
        Err(_) if can => {
            Check::skip(name, format!("the processor can (vmx or svm), but {device_name} is missing; {purpose}"))
                .fix("sudo modprobe kvm_intel || sudo modprobe kvm_amd (in a container: docker run --device /dev/kvm)")
        }
        Err(_) => Check::skip(name, format!("neither {device_name} nor a processor with vmx or svm; {purpose}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::Status;
    use super::*;

    /// An engine's socket that answers every connection with this, or holds them open without an answer.
    fn engine(folder: &Path, answer: Option<&'static str>) -> String {
        let path = folder.join(format!("{}.sock", answer.map_or(0, str::len)));
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                match answer {
                    Some(answer) => {
                        let _ = stream.read(&mut [0; 1024]);
                        let _ = stream.write_all(answer.as_bytes());
                    }
                    None => held.push(stream),
                }
            }
        });
        format!("unix://{}", path.display())
    }

    #[test]
    fn docker_engines_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let look = |host: &str, client| docker_at(host, client, Duration::from_millis(200));
        let good = engine(folder.path(), Some("HTTP/1.0 200 OK\r\nApi-Version: 1.47\r\n\r\nOK"));
        assert_eq!(look(&good, false).status, Status::Ok);
        let other = engine(folder.path(), Some("SSH-2.0-OpenSSH\r\n"));
        assert!(look(&other, true).detail.contains("something other"));
        let wedged = look(&engine(folder.path(), None), true);
        assert!(wedged.status == Status::Warn && wedged.detail.contains("does not answer within 0.2 s"), "{wedged:?}");
        let missing = format!("unix://{}", folder.path().join("none").display());
        assert_eq!((look(&missing, true).status, look(&missing, false).status), (Status::Warn, Status::Skip));
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(look(&format!("tcp://{port}"), true).status, Status::Warn);
    }

    #[test]
    fn kvm_says_whether_the_processor_could() {
        let folder = tempfile::tempdir().unwrap();
        let (device, missing) = (folder.path().join("kvm"), folder.path().join("none"));
        fs::write(&device, "").unwrap();
        assert_eq!(kvm_at(&device, "").status, Status::Ok);
        let could = kvm_at(&missing, "flags\t\t: fpu vmx sse\n");
        assert!(could.status == Status::Skip && could.fix.unwrap().contains("modprobe"));
        assert!(kvm_at(&missing, "flags : fpu\nmodel name : vmx\n").fix.is_none());
    }
}
