//! A fake machine with one balancer for all of it, and a clock.

use scx_baton::balancer::fake::FakeHost;
use scx_baton::balancer::{Balancer, Config, Shared};
use scx_baton::cpumask::Cpumask;
use scx_baton::domains::DomainTree;
use scx_baton::policy::Facts;
use scx_baton::stats::{Counters, PassCounters};
use scx_baton::units::Nanos;
use std::sync::Arc;

pub(crate) const TICK: Nanos = Nanos::from_ms(1);

pub(crate) struct Lab {
    pub(crate) host: FakeHost,
    pub(crate) balancer: Balancer,
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: Config,
}

impl Lab {
    pub(crate) fn new(tree: DomainTree) -> Self {
        let width = tree.chains.len();
        let facts = Arc::new(Facts::new(&tree));
        let shared = Arc::new(Shared::new(&tree, &facts, TICK));
        let balancer =
            Balancer::new(Arc::new(tree), facts, Arc::clone(&shared), &Cpumask::full(width));
        Self { host: FakeHost::new(width), balancer, shared, config: Config::default() }
    }

    pub(crate) fn set(&mut self, assignment: &str) {
        self.config.tunables.apply(assignment).expect("a valid setting");
        self.config.epoch += 1;
    }

    /// Lets time pass tick by tick, balancing whenever something is due.
    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.host.now += TICK;
            if self.host.now >= self.balancer.next_due() {
                self.balancer.round(&mut self.host, &self.config);
            }
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.balancer.counters().total()
    }

    pub(crate) fn sum(&self, of: impl Fn(&PassCounters) -> u64) -> u64 {
        self.counters().sum(of)
    }

    pub(crate) fn mask(&self, list: &str) -> Cpumask {
        Cpumask::parse_list(list, self.host.queues.len()).expect("a CPU list")
    }
}
