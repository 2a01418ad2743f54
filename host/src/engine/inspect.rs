//! What a component asks for and offers, read from its bytes without running any of it.

use wit_component::DecodedWasm;

use super::component::Interfaces;
use crate::error::{Code, Error, Result};

/// Reads a component's interfaces. Check the bytes with [`classify`](crate::trust::classify) first.
pub fn inspect(bytes: &[u8]) -> Result<Interfaces> {
    let unreadable = |why: String| {
        Error::new(Code::ComponentInvalid, format!("the component's interfaces can't be read: {why}"))
            .hint("it may be damaged, or made by a toolchain that is much newer than this gateway")
    };
    let (resolve, world) = match wit_component::decode(bytes).map_err(|error| unreadable(format!("{error:#}")))? {
        DecodedWasm::Component(resolve, world) => (resolve, world),
        DecodedWasm::WitPackage(..) => {
            return Err(Error::new(Code::ComponentWorld, "this is a WIT package, which only describes interfaces")
                .hint("give the component that implements them"));
        }
    };
    let world = &resolve.worlds[world];
    let names = |items: &indexmap::IndexMap<_, _>| items.keys().map(|key| resolve.name_world_key(key)).collect();
    Ok(Interfaces { imports: names(&world.imports), exports: names(&world.exports) })
}
