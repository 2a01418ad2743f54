//! What a component's modules need to begin with, held against the limits before anything is compiled: the engine would
//! say it in pages, and only when it has a pool.

use wasmparser::{Parser, Payload};

use super::runtime::EngineOptions;
use crate::error::{Code, Error, Result};

/// A page of linear memory, unless the memory says otherwise.
const PAGE_LOG2: u32 = 16;

/// Refuses a component with a memory or table that begins beyond the limits. Bytes that can't be read are for the
/// compiler to judge.
pub(super) fn check(options: &EngineOptions, name: &str, bytes: &[u8]) -> Result<()> {
    let limit = options.memory_limit as u128;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::MemorySection(memories)) => {
                for memory in memories.into_iter().flatten() {
                    let needed =
                        u128::from(memory.initial) << memory.page_size_log2.unwrap_or(PAGE_LOG2).min(PAGE_LOG2);
                    if needed > limit {
                        return Err(too_large(name, "memory", &mebibytes(needed), &mebibytes(limit))
                            .hint("raise engine.memory_limit_mib, or build the provider with less memory"));
                    }
                }
            }
            Ok(Payload::TableSection(tables)) => {
                for table in tables.into_iter().flatten() {
                    if table.ty.initial > options.table_elements as u64 {
                        let (needed, limit) = (table.ty.initial, options.table_elements);
                        return Err(too_large(name, "table", &format!("{needed} elements"), &format!("{limit}"))
                            .hint("raise engine.table_elements, or build a smaller provider"));
                    }
                }
            }
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

fn too_large(name: &str, what: &str, needed: &str, limit: &str) -> Error {
    Error::new(
        Code::ComponentTooLarge,
        format!("the component of provider {name} begins with a {what} of {needed}; the limit is {limit}"),
    )
}

/// Rounded up to tenths, so that it never reads as if it fitted.
fn mebibytes(bytes: u128) -> String {
    let tenths = (bytes * 10).div_ceil(1 << 20);
    if tenths.is_multiple_of(10) {
        format!("{} MiB", tenths / 10)
    } else {
        format!("{}.{} MiB", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_mebibytes() {
        assert_eq!(mebibytes(64 << 20), "64 MiB");
        assert_eq!(mebibytes((64 << 20) + 1), "64.1 MiB");
        assert_eq!(mebibytes(17 << 16), "1.1 MiB");
    }
}
