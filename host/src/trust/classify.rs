//! Says what is wrong with bytes that are no component, each case with its own code.

use wasmparser::{Chunk, Parser, Payload, Validator, WasmFeatures};

use crate::error::{Code, Error, Result};

/// Accepts bytes that are one whole, valid WebAssembly component. What it imports and exports, and whether the engine
/// has all that it uses, is for the engine to say.
///
/// Errors: [`Code::ComponentEmpty`], [`Code::ComponentText`], [`Code::ComponentCoreModule`],
/// [`Code::ComponentTruncated`], [`Code::ComponentInvalid`].
pub fn classify(bytes: &[u8]) -> Result<()> {
    const MAGIC: &[u8] = b"\0asm";
    if bytes.is_empty() {
        return Err(Error::new(Code::ComponentEmpty, "the component file is empty").hint("build it again"));
    }
    if !bytes.starts_with(MAGIC) {
        if MAGIC.starts_with(bytes) {
            return Err(truncated(bytes));
        }
        return Err(not_wasm(bytes));
    }
    if bytes.len() < 8 {
        return Err(truncated(bytes));
    }
    if Parser::is_core_wasm(bytes) {
        return Err(Error::new(Code::ComponentCoreModule, "a core WebAssembly module, not a component")
            .hint("make it a component: `sandgate provider componentize FILE -o OUT`"));
    }
    if !Parser::is_component(bytes) {
        let version = bytes[4..8].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        return Err(invalid(format!("its version bytes, {version}, are not those of a component")));
    }
    if breaks_off(bytes) {
        return Err(truncated(bytes));
    }
    // All proposals: whether the engine has them is its own check, with a better message.
    match Validator::new_with_features(WasmFeatures::all()).validate_all(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(invalid(format!("{} (at byte {})", error.message(), error.offset()))),
    }
}

fn not_wasm(bytes: &[u8]) -> Error {
    // The beginning is enough to tell text from data; it may end in the middle of a character.
    let head = &bytes[..bytes.len().min(4096)];
    let cut = |error: &std::str::Utf8Error| error.error_len().is_none() && head.len() < bytes.len();
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if cut(&error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        Err(_) => "\0",
    };
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return invalid("it does not begin as WebAssembly does".to_owned());
    }
    let code = text.trim_start_matches('\u{feff}').trim_start();
    if code.starts_with("(component") || code.starts_with("(module") || code.starts_with(";;") || code.starts_with("(;")
    {
        return Error::new(Code::ComponentText, "WebAssembly in its text form, not the binary one")
            .hint("convert it: `wasm-tools parse FILE -o OUT`");
    }
    Error::new(Code::ComponentText, "a text file, not WebAssembly").hint("name the .wasm file")
}

fn truncated(bytes: &[u8]) -> Error {
    Error::new(Code::ComponentTruncated, format!("the component breaks off in the middle, after {} bytes", bytes.len()))
        .hint("copy or download it again")
}

fn invalid(why: String) -> Error {
    Error::new(Code::ComponentInvalid, format!("not a valid WebAssembly component: {why}"))
        .hint("build it again; `wasm-tools validate FILE` says more")
}

/// Whether the bytes end inside something that announced more.
fn breaks_off(mut bytes: &[u8]) -> bool {
    let mut parser = Parser::new(0);
    // The parsers around the current one: a component holds modules and components.
    let mut outer = Vec::new();
    loop {
        match parser.parse(bytes, false) {
            // At the end of the outermost component it can't know that there is no further section.
            Ok(Chunk::NeedMoreData(_)) => return !(bytes.is_empty() && outer.is_empty()),
            Ok(Chunk::Parsed { consumed, payload }) => {
                bytes = bytes.get(consumed..).unwrap_or_default();
                match payload {
                    Payload::ModuleSection { parser: inner, .. } | Payload::ComponentSection { parser: inner, .. } => {
                        outer.push(std::mem::replace(&mut parser, inner));
                    }
                    Payload::End(_) => match outer.pop() {
                        Some(around) => parser = around,
                        None => return false,
                    },
                    _ => {}
                }
            }
            // The validator says it better.
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Option<Code> {
        classify(bytes).err().map(|error| error.code())
    }

    /// A component with a core module that has code, an instance, and an exported function.
    fn component() -> Vec<u8> {
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        let module = [
            &b"\0asm\x01\0\0\0"[..],
            b"\x01\x05\x01\x60\0\x01\x7f",
            b"\x03\x02\x01\0",
            b"\x07\x05\x01\x01f\0\0",
            b"\x0a\x06\x01\x04\0\x41\x2a\x0b",
        ]
        .concat();
        bytes.push(1);
        bytes.push(module.len() as u8);
        bytes.extend(&module);
        // A core instance of the module, an alias of its export, a type, a lifted function, an export.
        bytes.extend(b"\x02\x04\x01\0\0\0");
        bytes.extend(b"\x06\x07\x01\0\0\x01\0\x01f");
        bytes.extend(b"\x07\x05\x01\x40\0\0\x79");
        bytes.extend(b"\x08\x06\x01\0\0\0\0\0");
        bytes.extend(b"\x0b\x07\x01\0\x01f\x01\0\0");
        bytes
    }

    #[test]
    fn a_component_is_accepted() {
        assert_eq!(classify(&component()), Ok(()));
        assert_eq!(classify(b"\0asm\x0d\0\x01\0"), Ok(()));
    }

    #[test]
    fn each_kind_of_wrong_file_has_its_code() {
        assert_eq!(code(b""), Some(Code::ComponentEmpty));
        assert_eq!(code(b"(component)"), Some(Code::ComponentText));
        assert_eq!(code(b"\n ;; a comment\n(module)"), Some(Code::ComponentText));
        assert_eq!(code(b"<html>not found</html>"), Some(Code::ComponentText));
        assert_eq!(code("ä".repeat(4000).as_bytes()), Some(Code::ComponentText));
        assert_eq!(code(b"\0asm\x01\0\0\0"), Some(Code::ComponentCoreModule));
        assert_eq!(code(b"\0a"), Some(Code::ComponentTruncated));
        assert_eq!(code(b"\0asm\x0d\0"), Some(Code::ComponentTruncated));
        assert_eq!(code(b"\0asm\x0d\0\x02\0"), Some(Code::ComponentInvalid));
        assert_eq!(code(b"\x7fELF\x02\x01\x01\0\0"), Some(Code::ComponentInvalid));
        assert_eq!(code(b"\xff\xff"), Some(Code::ComponentInvalid));
        let mut broken = component();
        let at = broken.windows(2).position(|pair| pair == b"\x41\x2a").unwrap();
        broken[at] = 0x42;
        assert_eq!(code(&broken), Some(Code::ComponentInvalid), "an i64 where an i32 is promised");
    }

    #[test]
    fn messages_say_what_to_do() {
        let text = |bytes: &[u8]| classify(bytes).unwrap_err().to_string();
        assert!(text(b"(component)").contains("wasm-tools parse"));
        assert!(text(b"hello").contains("name the .wasm file"));
        assert!(text(b"\0asm\x01\0\0\0").contains("sandgate provider componentize"));
        assert!(text(&component()[..40]).contains("breaks off in the middle, after 40 bytes"));
    }

    #[test]
    fn a_component_cut_anywhere_is_truncated_or_ends_between_sections() {
        let whole = component();
        let mut truncated = 0;
        for length in 1..whole.len() {
            match code(&whole[..length]) {
                Some(Code::ComponentTruncated) => truncated += 1,
                // Nothing in the format says that a section is missing.
                None => {}
                other => panic!("{length}: {other:?}"),
            }
        }
        assert!(truncated > whole.len() * 8 / 10, "{truncated} of {}", whole.len());
    }

    #[test]
    fn mutated_bytes_never_panic() {
        let whole = component();
        // A small generator of our own: the same bytes in every run.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + next() % 4 {
                let at = next() % bytes.len();
                match next() % 3 {
                    0 => bytes[at] = next() as u8,
                    1 => bytes.insert(at, next() as u8),
                    _ => drop(bytes.remove(at)),
                }
            }
            refused += usize::from(classify(&bytes).is_err());
        }
        assert!(refused > 10_000, "{refused}");
    }
}
