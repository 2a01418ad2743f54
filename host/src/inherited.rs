//! What this process was given open by whoever started it.

use std::os::fd::BorrowedFd;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Sees to it that no command inherits a descriptor that we were started with: a shell, a service manager or a harness may
/// have left a file open that commands must not read. What we open ourselves is closed in children from the beginning.
pub(crate) fn keep_from_children() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    // Read to the end first, since reading has a descriptor of its own.
    let open: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in open.into_iter().filter(|number| *number > 2) {
        #[expect(unsafe_code, reason = "numbers from outside are no owned descriptors")]
        // SAFETY: nothing runs beside this yet, so that what is open stays so; one that is closed by now gives an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        if let Ok(flags) = fcntl_getfd(descriptor) {
            // It can only fail for a descriptor that is not open.
            let _ = fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC);
        }
    }
}
