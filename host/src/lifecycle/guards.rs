//! The rules that keep sandboxes safe, each with a name, so that a simulation can take one out and show that it notices.

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Guard {
    /// Nothing is stopped without a claim to destroy.
    DestroyClaim = 1,
    /// The claim is refreshed until the stop has returned.
    Heartbeat = 1 << 1,
    /// What was decided without a slot's lock counts only while the slot's version is the same.
    VersionCheck = 1 << 2,
    /// A transition holds the slot's lock from its beginning to its end.
    TransitionLock = 1 << 3,
    /// A sandbox is adopted only after it was seen unowned for a whole time to live.
    AdoptionGrace = 1 << 4,
    /// The release of a teardown's claim follows its last refresh.
    ReleaseLast = 1 << 5,
    /// A sandbox in use is not reaped.
    Pins = 1 << 6,
    /// A stop begins only while its claim is known to be fresh.
    ClaimAge = 1 << 7,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::DestroyClaim,
        Self::Heartbeat,
        Self::VersionCheck,
        Self::TransitionLock,
        Self::AdoptionGrace,
        Self::ReleaseLast,
        Self::Pins,
        Self::ClaimAge,
    ];
}

/// Which rules hold. In a gateway all of them, always: a build without the `simulation` feature keeps no record of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guards {
    #[cfg(any(test, feature = "simulation"))]
    removed: u16,
}

impl Guards {
    /// All rules but one.
    #[cfg(any(test, feature = "simulation"))]
    pub fn without(guard: Guard) -> Self {
        Self { removed: guard as u16 }
    }

    /// Whether a rule holds.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn hold(&self, guard: Guard) -> bool {
        self.removed & guard as u16 == 0
    }

    /// Whether a rule holds.
    #[cfg(not(any(test, feature = "simulation")))]
    #[expect(clippy::unused_self, reason = "the same call as in a simulation")]
    pub(super) const fn hold(&self, _: Guard) -> bool {
        true
    }
}
