//! Reading a file: one command that prints a line about the file and then the bytes.

use super::failure::Code;
use super::files::{STAT_FORMAT, parse_stat};
use super::quote::Target;
use super::run::{Outcome, Seen, unreadable};
use super::script::{script, stat};
use crate::error::Result;
use crate::values::{ByteRange, Error, Event, FileStat, LineRange, ReadRange};

/// The longest line about a file, in bytes: three numbers.
const MAX_HEAD: usize = 256;

/// Prints the file's state in a line, then the range. The file is opened before anything is printed, so that what
/// can't be opened has no state either.
pub(super) fn read_script(target: &Target, range: ReadRange) -> Result<String> {
    let body = format!(
        "{stat}\ncase $s in 8???\\ *) ;; 4???\\ *) exit {is_a_directory} ;; *) exit {not_a_file} ;; esac\n\
         {{ printf '%s\\n' \"$s\" && {{ {take}; }}; }} <\"$p\"",
        stat = stat("-L", STAT_FORMAT),
        is_a_directory = Code::IsADirectory,
        not_a_file = Code::NotAFile,
        take = take(range)?,
    );
    Ok(script(target, &["stat", "cat", "head", "tail"], &body))
}

/// The command that takes a range out of its standard input.
fn take(range: ReadRange) -> Result<String> {
    // Past the largest file that any system has.
    const FAR: u64 = i64::MAX as u64;
    Ok(match range {
        ReadRange::All => "cat".into(),
        ReadRange::Bytes(ByteRange { offset, length }) => match (offset, length) {
            (_, Some(0)) | (FAR.., _) => ":".into(),
            (0, None) => "cat".into(),
            (0, Some(length)) => format!("head -c {}", length.min(FAR)),
            (offset, None) => format!("tail -c +{}", offset + 1),
            (offset, Some(length)) => {
                both(&format!("tail -c +{}", offset + 1), &format!("head -c {}", length.min(FAR)))
            }
        },
        ReadRange::Lines(LineRange { start: 0, .. }) => {
            return Err(Error::InvalidArgument(
                "the first line has number 1; a range of lines can't start at 0".into(),
            ));
        }
        ReadRange::Lines(LineRange { start, end }) => match (start, end) {
            (_, Some(end)) if end < start => ":".into(),
            (FAR.., _) => ":".into(),
            (1, None) => "cat".into(),
            (1, Some(end)) => format!("head -n {}", end.min(FAR)),
            (start, None) => format!("tail -n +{start}"),
            (start, Some(end)) => {
                both(&format!("tail -n +{start}"), &format!("head -n {}", (end - start + 1).min(FAR)))
            }
        },
    })
}

/// `first | second`, with the status of either: a pipe's own is that of its end, and half of a file would look whole.
/// `first` may be ended by SIGPIPE (141) when `second` has enough, or, where that signal is ignored, say so; both when
/// nobody reads any more.
fn both(first: &str, second: &str) -> String {
    format!(
        "{{ w=$( {{ {{ {first} 2>&3; printf ' first=%s.' $? >&3; }} | {{ {second} >&4 2>&3; printf ' second=%s.' $? >&3; }}; }} 3>&1 ); }} 4>&1\n\
         case $w in\n\
         *' first=0.'*|*' first=141.'*|*'Broken pipe'*)\n\
         case $w in *' second=0.'*|*' second=141.'*) ;; *) printf '%s\\n' \"$w\" >&2; exit 1 ;; esac ;;\n\
         *) printf '%s\\n' \"$w\" >&2; exit 1 ;;\nesac"
    )
}

/// What one event of a reading command means.
pub(super) enum Step {
    More,
    Data(Vec<u8>),
    End,
}

/// A file that is being read.
pub(super) struct Reading {
    outcome: Outcome,
    head: Vec<u8>,
    stat: Option<FileStat>,
}

impl Reading {
    pub(super) fn new(target: Target) -> Self {
        Self { outcome: Outcome::new(target), head: Vec::new(), stat: None }
    }

    /// The file's state, once its line has come.
    pub(super) fn stat(&self) -> Option<FileStat> {
        self.stat
    }

    pub(super) fn see(&mut self, event: Event) -> Result<Step> {
        match self.outcome.see(event)? {
            Seen::Output(bytes) if self.stat.is_some() => Ok(Step::Data(bytes)),
            Seen::Output(bytes) => self.see_head(&bytes),
            Seen::Nothing => Ok(Step::More),
            Seen::Success if self.stat.is_some() => Ok(Step::End),
            Seen::Success => Err(self.unreadable()),
        }
    }

    fn see_head(&mut self, bytes: &[u8]) -> Result<Step> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (head, data) = bytes.split_at(end.unwrap_or(bytes.len()));
        let room = (MAX_HEAD + 1).saturating_sub(self.head.len());
        self.head.extend_from_slice(head.get(..room).unwrap_or(head));
        let Some((_, data)) = data.split_first() else {
            return if self.head.len() > MAX_HEAD { Err(self.unreadable()) } else { Ok(Step::More) };
        };
        match std::str::from_utf8(&self.head).ok().and_then(parse_stat) {
            Some(stat) => {
                self.stat = Some(stat);
                Ok(Step::Data(data.to_vec()))
            }
            // Where a backend does not tell the streams apart, this is the reason of a failure: the end will say.
            None => Ok(Step::More),
        }
    }

    /// The error for an answer that is none.
    fn unreadable(&self) -> Error {
        unreadable(&String::from_utf8_lossy(&self.head))
    }

    pub(super) fn cut(&self) -> Error {
        self.outcome.cut()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::shell::testing::{Shell, area, shells, target};
    use crate::values::FileKind;

    fn read(shell: &Shell, path: &str, range: ReadRange) -> Result<(FileStat, Vec<u8>)> {
        let target = target(path);
        let mut reading = Reading::new(target.clone());
        let mut data = Vec::new();
        for event in shell.events(&read_script(&target, range)?, b"") {
            match reading.see(event)? {
                Step::Data(bytes) => data.extend(bytes),
                Step::More => {}
                Step::End => return Ok((reading.stat().expect("a state"), data)),
            }
        }
        Err(reading.cut())
    }

    fn bytes(offset: u64, length: Option<u64>) -> ReadRange {
        ReadRange::Bytes(ByteRange { offset, length })
    }

    fn lines(start: u64, end: Option<u64>) -> ReadRange {
        ReadRange::Lines(LineRange { start, end })
    }

    #[test]
    fn every_range_of_bytes_and_lines() {
        let content: Vec<u8> = b"one\ntwo\r\n\nfour \xff\x00\nlast".to_vec();
        for shell in shells() {
            let area = area();
            let file = area.bytes("odd 'name\n$(x)", &content);
            let get = |range| read(&shell, &file, range).expect("read").1;
            assert_eq!(get(ReadRange::All), content, "{}", shell.name);
            let size = content.len() as u64;
            for offset in [0, 1, 5, size - 1, size, size + 1, 1 << 31, u64::MAX] {
                for length in [None, Some(0), Some(1), Some(7), Some(size), Some(u64::MAX)] {
                    let from = usize::try_from(offset.min(size)).expect("small");
                    let to = usize::try_from(length.map_or(size, |length| offset.saturating_add(length)).min(size))
                        .expect("small");
                    let expected = &content[from..to.max(from)];
                    assert_eq!(get(bytes(offset, length)), expected, "{} {offset} {length:?}", shell.name);
                }
            }
            let all: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
            for start in [1, 2, 4, 5, 6, 1000, u64::MAX] {
                for end in [None, Some(0), Some(1), Some(2), Some(5), Some(6), Some(u64::MAX)] {
                    let (from, to) = (start.min(6) as usize - 1, end.unwrap_or(5).min(5) as usize);
                    let expected = all.get(from..to).unwrap_or_default().concat();
                    assert_eq!(get(lines(start, end)), expected, "{} {start} {end:?}", shell.name);
                }
            }
            assert!(matches!(read(&shell, &file, lines(0, None)), Err(Error::InvalidArgument(_))));
        }
    }

    #[test]
    fn large_files_come_whole_and_a_range_of_one_ends_early() {
        let content: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
        for shell in shells() {
            let area = area();
            let file = area.bytes("large", &content);
            let (stat, data) = read(&shell, &file, ReadRange::All).expect("read");
            assert!(stat.size == 12_000_000 && data == content, "{}", shell.name);
            let (stat, data) = read(&shell, &file, bytes(4_000_001, Some(10))).expect("read");
            assert_eq!((stat.size, data.as_slice()), (12_000_000, &content[4_000_001..4_000_011]), "{}", shell.name);
        }
    }

    #[test]
    fn a_link_is_followed_and_what_is_no_file_is_refused() {
        for shell in shells() {
            let area = area();
            area.file("file", "text");
            symlink("file", area.path("link")).expect("symlink");
            symlink("nowhere", area.path("dangling")).expect("symlink");
            let (stat, data) = read(&shell, &area.path("link"), ReadRange::All).expect("read");
            assert_eq!((stat.kind, stat.size, data.as_slice()), (FileKind::File, 4, &b"text"[..]));
            let error = |path: &str| read(&shell, path, ReadRange::All).expect_err("no file");
            assert!(matches!(error(area.root()), Error::IsADirectory(_)), "{}", shell.name);
            assert!(matches!(error(&area.path("no")), Error::NotFound(_)), "{}", shell.name);
            assert!(matches!(error(&area.path("dangling")), Error::NotFound(_)), "{}", shell.name);
            assert!(matches!(error(&area.path("file/x")), Error::NotADirectory(_)), "{}", shell.name);
            assert!(matches!(error("/dev/zero"), Error::InvalidArgument(_)), "{}", shell.name);
        }
    }

    #[test]
    fn an_unreadable_file_has_no_state() {
        for shell in shells().into_iter().map(Shell::unprivileged) {
            let area = area();
            let file = area.file("secret", "x");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
            let error = read(&shell, &file, ReadRange::All).expect_err("denied");
            assert!(matches!(error, Error::PermissionDenied(_)), "{}: {error:?}", shell.name);
        }
    }

    #[test]
    fn a_failure_of_either_end_of_a_pipe_is_seen() {
        for shell in shells() {
            for (first, second, good) in [
                ("printf abc", "cat", true),
                ("yes", "head -c 1", true),
                ("{ printf abc; exit 3; }", "cat", false),
                ("printf abc", "{ cat; exit 3; }", false),
            ] {
                let run = shell.run(&both(&format!("( {first} )"), &format!("( {second} )")), b"");
                assert_eq!(run.status == 0, good, "{} {first} | {second}", shell.name);
            }
        }
    }

    #[test]
    fn a_range_ends_early_where_sigpipe_is_ignored() {
        for shell in shells() {
            let area = area();
            let file = target(&area.bytes("large", &b"line\n".repeat(1_000_000)));
            for range in [bytes(1, Some(3)), lines(2, Some(3))] {
                let script = read_script(&file, range).expect("a script");
                let run = shell.run(&format!("trap '' PIPE\n{script}"), b"");
                let data = String::from_utf8_lossy(&run.stdout);
                let expected = if matches!(range, ReadRange::Bytes(_)) { "ine" } else { "line\nline" };
                let complaint = String::from_utf8_lossy(&run.stderr);
                assert_eq!(
                    (data.lines().skip(1).collect::<Vec<_>>().join("\n").as_str(), run.status),
                    (expected, 0),
                    "{} {complaint}",
                    shell.name
                );
            }
        }
    }

    #[test]
    fn a_reading_that_is_cut_says_so() {
        let head = || {
            let mut reading = Reading::new(target("/a"));
            let seen = reading.see(Event::Stdout(b"81a4 9 1700000000\nhalf".to_vec()));
            assert!(matches!(seen, Ok(Step::Data(data)) if data == b"half"));
            reading
        };
        assert!(matches!(head().see(Event::Dropped(5)), Err(Error::TooLarge(large)) if large.message.contains("/a")));
        let status = |code| Event::Exited(crate::values::ExitStatus::from_code(code));
        assert!(matches!(head().see(status(1)), Err(Error::Other(_))));
        assert!(matches!(head().see(status(0)), Ok(Step::End)));
        assert!(matches!(head().see(Event::Failed(Error::Timeout("late".into()))), Err(Error::Timeout(_))));
        assert!(matches!(head().cut(), Error::Unavailable(_)));
    }

    #[test]
    fn a_reason_that_comes_as_output_is_understood() {
        let mut reading = Reading::new(target("/a"));
        for text in ["stat: cannot statx '/real/a': ", "No such file or directory\n", "\n"] {
            assert!(matches!(reading.see(Event::Stdout(text.into())), Ok(Step::More)));
        }
        let end = reading.see(Event::Exited(crate::values::ExitStatus::from_code(1)));
        assert!(matches!(end, Err(Error::NotFound(text)) if text.starts_with("/a: ")));
    }

    #[test]
    fn an_answer_that_is_no_state_is_an_error() {
        for output in ["", "hello\n", &"x".repeat(1000)] {
            let mut reading = Reading::new(target("/a"));
            let seen = reading.see(Event::Stdout(output.into()));
            let end = reading.see(Event::Exited(crate::values::ExitStatus::from_code(0)));
            assert!(seen.is_err() || matches!(end, Err(Error::Other(_))), "{output:?}");
        }
    }
}
