//! Bytes that are no provider, each kind with its own code.

use sandgate::engine::{EngineOptions, Pooling, Provider, Runtime, inspect};
use sandgate::error::{Code, Result};
use sandgate::trust::classify;

use crate::support::{granted, hostile, local, options};

/// As a gateway does it.
async fn load(options: EngineOptions, bytes: &[u8]) -> Result<()> {
    classify(bytes)?;
    let inspected = inspect(bytes);
    let runtime = Runtime::new(options)?;
    let loaded = Provider::load(&runtime, bytes.to_vec(), granted("{}")).await.map(drop);
    if loaded.is_ok() {
        inspected?;
    }
    loaded
}

/// The same component with another name of the same length inside.
fn renamed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, at)| *at == from.as_bytes()).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{from}");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

/// A component with one instance of a module that has a memory of so many pages and a table of so many elements.
fn with_sizes(pages: u32, elements: u32) -> Vec<u8> {
    let leb = |mut value: u32| {
        let mut bytes = Vec::new();
        while value > 127 {
            bytes.push(value as u8 | 128);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let section = |id: u8, body: Vec<u8>| [vec![id], leb(body.len() as u32), body].concat();
    let table = section(4, [vec![1, 0x70, 0], leb(elements)].concat());
    let memory = section(5, [vec![1, 0], leb(pages)].concat());
    let module = [b"\0asm\x01\0\0\0".to_vec(), table, memory].concat();
    [b"\0asm\x0d\0\x01\0".to_vec(), section(1, module), section(2, vec![1, 0, 0, 0])].concat()
}

#[tokio::test]
async fn each_kind_of_wrong_bytes_has_its_code() {
    let whole = local();
    let cases: [(&str, Vec<u8>, Code, &str); 9] = [
        ("empty", Vec::new(), Code::ComponentEmpty, "empty"),
        ("text", b"(component)".to_vec(), Code::ComponentText, "wasm-tools parse"),
        ("core", b"\0asm\x01\0\0\0".to_vec(), Code::ComponentCoreModule, "sandgate provider componentize"),
        ("half", whole[..whole.len() / 2].to_vec(), Code::ComponentTruncated, "breaks off"),
        ("random", (0..999_u32).map(|at| (at * at + 7) as u8 | 1).collect(), Code::ComponentInvalid, "begin"),
        ("no exports", b"\0asm\x0d\0\x01\0".to_vec(), Code::ComponentWorld, "no sandbox provider"),
        (
            "a newer world",
            renamed(
                &renamed(&whole, "provider/lifecycle@0.1.0", "provider/lifecycle@0.2.0"),
                "provider/sandbox@0.1.0",
                "provider/sandbox@0.2.0",
            ),
            Code::ComponentWorld,
            "made for sandgate:provider@0.2.0; this gateway offers 0.1.0",
        ),
        (
            "an unknown import",
            renamed(&whole, "capability/settings@0.1.0", "capability/sittings@0.1.0"),
            Code::ComponentWorld,
            "imports sandgate:capability/sittings@0.1.0",
        ),
        ("a large memory", with_sizes(1_601, 1), Code::ComponentTooLarge, "a memory of 100.1 MiB; the limit is 64 MiB"),
    ];
    for (what, bytes, code, part) in cases {
        let error = load(options(), &bytes).await.unwrap_err();
        assert_eq!(error.code(), code, "{what}: {error}");
        assert!(error.to_string().contains(part), "{what}: {error}");
    }
}

#[tokio::test]
async fn what_begins_too_large_says_so_in_mebibytes_and_names_the_key() {
    for pooling in [Pooling::Auto, Pooling::Off] {
        let small = EngineOptions { memory_limit: 1 << 20, pooling, ..options() };
        let error = load(small, &hostile()).await.unwrap_err();
        assert_eq!(error.code(), Code::ComponentTooLarge, "{error}");
        let text = error.to_string();
        assert!(text.contains("the limit is 1 MiB") && text.contains("engine.memory_limit_mib"), "{text}");

        let error = load(EngineOptions { pooling, ..options() }, &with_sizes(1, 20_001)).await.unwrap_err();
        assert_eq!(error.code(), Code::ComponentTooLarge, "{error}");
        assert!(error.to_string().contains("engine.table_elements"), "{error}");
        let error = load(EngineOptions { pooling, ..options() }, &with_sizes(1, 20_000)).await.unwrap_err();
        assert_eq!(error.code(), Code::ComponentWorld, "it fits, but is no provider: {error}");
    }
}

#[tokio::test]
async fn a_component_cut_anywhere_is_refused() {
    let whole = local();
    let runtime = Runtime::new(options()).unwrap();
    let mut truncated = 0;
    for length in (0..whole.len()).step_by(499).chain(whole.len() - 64..whole.len()) {
        let bytes = &whole[..length];
        match classify(bytes) {
            Err(error) if error.code() == Code::ComponentTruncated => truncated += 1,
            Err(error) => assert_eq!(error.code(), Code::ComponentEmpty, "{length}: {error}"),
            // Nothing in the format says that a section is missing at the end, but then it lacks exports.
            Ok(()) => {
                let loaded = Provider::load(&runtime, bytes.to_vec(), granted("{}")).await;
                // Names and other custom sections may be missing; nothing works differently without them.
                if let Err(error) = loaded {
                    assert!(matches!(error.code(), Code::ComponentWorld | Code::ComponentInvalid), "{length}: {error}");
                }
            }
        }
    }
    assert!(truncated > 300, "{truncated}");
}

#[tokio::test]
async fn the_engine_itself_takes_nothing_but_components() {
    let runtime = Runtime::new(options()).unwrap();
    for (bytes, code) in [
        (&b""[..], Code::ComponentEmpty),
        (b"(component)", Code::ComponentText),
        (b"\0asm\x01\0\0\0", Code::ComponentCoreModule),
        (b"\0asm", Code::ComponentTruncated),
        (&[0xff; 100], Code::ComponentInvalid),
    ] {
        let error = Provider::load(&runtime, bytes.to_vec(), granted("{}")).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}
