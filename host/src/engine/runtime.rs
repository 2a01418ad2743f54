//! One wasmtime engine for all providers: allocation, the compile cache, the ticker, and how many calls may run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{Config, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::cache::CompileCache;
use super::limits::TICK;
use crate::error::{Code, Error, Result};

/// Whether instances come from a pool made at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// If the machine has the address space; a warning says so if not.
    #[default]
    Auto,
    /// Fail to start without.
    On,
    /// Never: each instance maps its own memory, which takes some 30 to 80 µs instead of 20.
    Off,
}

/// How the engine runs guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most linear memory of one call, in bytes.
    pub memory_limit: usize,
    /// The most elements of one table.
    pub table_elements: usize,
    /// CPU time of one call between two signs of progress.
    pub cpu_limit: Duration,
    /// Wall-clock time of one call between two signs of progress.
    pub call_timeout: Duration,
    /// The most calls that run at once.
    pub max_instances: usize,
    /// The most calls that wait for a place.
    pub queue: usize,
    /// How long one waits.
    pub queue_timeout: Duration,
    /// How many instances, of all providers together, are kept for the next call of the same sandbox; 0: none.
    pub idle_instances: usize,
    /// The most stack of a guest, in bytes.
    pub stack: usize,
    /// Pooling allocation.
    pub pooling: Pooling,
    /// Where compiled components are kept; none: compile at every start.
    pub cache_dir: Option<PathBuf>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            memory_limit: 64 << 20,
            table_elements: 20_000,
            cpu_limit: Duration::from_secs(10),
            call_timeout: Duration::from_secs(120),
            max_instances: 256,
            queue: 1024,
            queue_timeout: Duration::from_secs(30),
            idle_instances: 32,
            stack: 512 << 10,
            pooling: Pooling::Auto,
            cache_dir: None,
        }
    }
}

/// A component made by a usual toolchain has a main module, an adapter and a few shims.
const CORE_INSTANCES_PER_COMPONENT: u32 = 12;
/// Main module and adapter; one to spare.
const MEMORIES_PER_COMPONENT: u32 = 3;
/// Each module may have its own function table.
const TABLES_PER_COMPONENT: u32 = 6;
/// A call runs its export and any number of guest tasks, mostly one or two at a time.
const STACKS_PER_CALL: u32 = 3;
/// Store slots that are being given back while their successors start.
const SPARE_INSTANCES: usize = 8;
/// wasmtime's own bookkeeping per instance. A component of a megabyte of code needs some 100 KiB.
const INSTANCE_SIZE: usize = 1 << 20;

/// The engine and what bounds its use. Cheap to share.
pub struct Runtime {
    engine: Engine,
    options: EngineOptions,
    cache: Option<CompileCache>,
    /// Why there is no pool, if there is none.
    pooling_off: Option<String>,
    calls: Arc<Semaphore>,
    /// For the idle instances of all providers together, since the pool has room for so many.
    idle: Arc<Semaphore>,
    waiting: AtomicUsize,
    ticker: Arc<Ticker>,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.ticker.close();
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Starts the engine.
    pub fn new(options: EngineOptions) -> Result<Arc<Self>> {
        let cache = options.cache_dir.as_deref().and_then(CompileCache::open);
        let config = |pooled: bool| base_config(&options, pooled);
        let (engine, pooling_off) = match options.pooling {
            Pooling::Off => (Engine::new(&config(false)), Some("off by configuration".to_owned())),
            Pooling::On => (Engine::new(&config(true)), None),
            Pooling::Auto => match Engine::new(&config(true)) {
                Ok(engine) => (Ok(engine), None),
                Err(error) => {
                    let reason = format!("{error:#}");
                    tracing::warn!(
                        reason,
                        "no instance pool: every call maps its own memory, which adds some 50 µs; raise the address \
                         space limit (ulimit -v), lower engine.max_instances, or set engine.pooling = \"off\""
                    );
                    (Engine::new(&config(false)), Some(reason))
                }
            },
        };
        let engine = engine.map_err(|error| {
            Error::config(format!("the WebAssembly engine does not start: {error:#}"))
                .hint("lower engine.max_instances or engine.memory_limit_mib, or set engine.pooling = \"off\"")
        })?;
        let ticker = Ticker::start(engine.weak())?;
        let calls = Arc::new(Semaphore::new(options.max_instances));
        let idle = Arc::new(Semaphore::new(options.idle_instances));
        Ok(Arc::new(Self { engine, options, cache, pooling_off, calls, idle, waiting: AtomicUsize::new(0), ticker }))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn cache(&self) -> Option<&CompileCache> {
        self.cache.as_ref()
    }

    /// How it was started.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Why there is no instance pool; none: there is one.
    pub fn pooling_off(&self) -> Option<&str> {
        self.pooling_off.as_deref()
    }

    /// A place for one call: at once, or after waiting in a bounded queue, or [`Code::Busy`].
    pub(super) async fn enter(self: &Arc<Self>) -> Result<Place> {
        let permit = match Arc::clone(&self.calls).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait().await?,
        };
        self.ticker.enter();
        Ok(Place { _permit: permit, ticker: Arc::clone(&self.ticker) })
    }

    async fn wait(self: &Arc<Self>) -> Result<OwnedSemaphorePermit> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let ahead = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if ahead >= self.options.queue {
            return Err(self.busy(format!("{ahead} calls are waiting already")));
        }
        match tokio::time::timeout(self.options.queue_timeout, Arc::clone(&self.calls).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Error::internal("the engine has been shut down")),
            Err(_) => Err(self.busy(format!("none became free within {:?}", self.options.queue_timeout))),
        }
    }

    /// A place for an instance that waits for its sandbox's next call, if one is free.
    pub(super) fn idle_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.idle).try_acquire_owned().ok()
    }

    pub(super) fn busy(&self, why: String) -> Error {
        Error::new(
            Code::Busy,
            format!("all {} places for provider calls are taken and {why}", self.options.max_instances),
        )
        .hint("try again shortly, or raise engine.max_instances or engine.queue")
        .retry_after_ms(1000)
    }
}

/// The right to run one call.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    ticker: Arc<Ticker>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.ticker.leave();
    }
}

fn base_config(options: &EngineOptions, pooled: bool) -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.max_wasm_stack(options.stack);
    // Room for host code below the guest's own stack.
    config.async_stack_size(options.stack + (512 << 10));
    if pooled {
        let calls = u32::try_from(options.max_instances + options.idle_instances + SPARE_INSTANCES).unwrap_or(u32::MAX);
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(calls)
            .total_core_instances(calls.saturating_mul(4))
            .total_memories(calls.saturating_mul(2))
            .total_tables(calls.saturating_mul(4))
            .total_stacks(calls.saturating_mul(STACKS_PER_CALL))
            .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
            .max_memories_per_component(MEMORIES_PER_COMPONENT)
            .max_tables_per_component(TABLES_PER_COMPONENT)
            .max_component_instance_size(INSTANCE_SIZE)
            .max_core_instance_size(INSTANCE_SIZE)
            .table_elements(options.table_elements)
            .max_memory_size(options.memory_limit);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    } else {
        config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
    }
    config
}

/// Moves the engine's epoch on while calls run, from a thread of its own; sleeps while none does.
#[derive(Debug, Default)]
struct Ticker {
    work: Mutex<Work>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    running: usize,
    /// The runtime is gone; streams of its last calls may still run.
    closed: bool,
}

impl Ticker {
    fn start(engine: EngineWeak) -> Result<Arc<Self>> {
        let ticker = Arc::new(Self::default());
        let weak = Arc::downgrade(&ticker);
        std::thread::Builder::new()
            .name("sandgate-ticker".into())
            .spawn(move || {
                loop {
                    // Both handles are weak, so that the thread ends with the runtime.
                    let (Some(ticker), Some(engine)) = (weak.upgrade(), engine.upgrade()) else { return };
                    engine.increment_epoch();
                    let mut work = ticker.work.lock();
                    while work.running == 0 && !work.closed {
                        ticker.wake.wait(&mut work);
                    }
                    drop(work);
                    drop((ticker, engine));
                    std::thread::sleep(TICK);
                }
            })
            .map_err(|error| Error::internal(format!("no thread for the engine's ticker: {error}")))?;
        Ok(ticker)
    }

    fn enter(&self) {
        let mut work = self.work.lock();
        work.running += 1;
        if work.running == 1 {
            self.wake.notify_one();
        }
    }

    fn leave(&self) {
        self.work.lock().running -= 1;
    }

    /// Lets the thread, and with it the engine and its pool, end as soon as nothing runs any more.
    fn close(&self) {
        self.work.lock().closed = true;
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> EngineOptions {
        EngineOptions {
            max_instances: 1,
            queue: 1,
            queue_timeout: Duration::from_millis(20),
            ..EngineOptions::default()
        }
    }

    #[tokio::test]
    async fn a_full_house_queues_and_then_refuses() {
        let runtime = Runtime::new(options()).unwrap();
        let place = runtime.enter().await.unwrap();
        let error = runtime.enter().await.unwrap_err();
        assert_eq!(error.code(), Code::Busy);
        assert!(error.to_string().contains("within 20ms") && error.retry_after().is_some(), "{error}");

        let waiting = tokio::spawn({
            let runtime = Arc::clone(&runtime);
            async move { runtime.enter().await.map(drop) }
        });
        while runtime.waiting.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let error = runtime.enter().await.unwrap_err();
        assert!(error.to_string().contains("1 calls are waiting"), "{error}");
        drop(place);
        waiting.await.unwrap().unwrap();
    }

    #[test]
    fn the_pool_is_there_or_says_why() {
        let runtime = Runtime::new(EngineOptions::default()).unwrap();
        assert_eq!(runtime.pooling_off(), None);
        let off = Runtime::new(EngineOptions { pooling: Pooling::Off, ..EngineOptions::default() }).unwrap();
        assert_eq!(off.pooling_off(), Some("off by configuration"));
    }
}
