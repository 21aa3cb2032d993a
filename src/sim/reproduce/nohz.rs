//! The nohz counter on a machine of 480 CPUs: seed 3.

use super::{Figure, Reproduction, Size, simulate};
use crate::policy::tunables::{NohzCount, NohzOrder};
use crate::sim::costs::Site;
use crate::sim::engine::Setup;
use crate::sim::generators::hackbench;
use crate::sim::program::Workload;
use crate::sim::report::Report;
use crate::topology::synthetic;
use crate::units::Nanos;

fn run_one(size: Size, count: NohzCount, order: NohzOrder) -> Option<Report> {
    let (machine, groups, ms) = match size {
        Size::Full => ("granite-rapids-snc3", 40, 150),
        Size::Small => ("2x2x8 smt=2 dist=10,15,26", 3, 100),
    };
    let mut w = Workload::default();
    hackbench(&mut w, groups, 10_000);
    let mut setup = Setup::new(synthetic::parse(machine).ok()?, w, Nanos::from_ms(ms));
    setup.tunables.nohz_count = count;
    setup.tunables.nohz_order = order;
    // The same machine as in `serialize`, with what was fitted there.
    setup.costs.line_ns = super::serialize::FITTED;
    setup.check_every = Nanos::ZERO;
    Some(simulate(setup))
}

pub(super) fn run(size: Size) -> Reproduction {
    let counter = run_one(size, NohzCount::Counter, NohzOrder::CountFirst);
    let mask = run_one(size, NohzCount::Mask, NohzOrder::TimeFirst);
    let site = |r: &Option<Report>, site: Site| {
        r.as_ref().map_or(f64::NAN, |r| {
            let all = r.cpus as f64 * r.duration_ns as f64;
            r.lines.site_ns[site as usize] as f64 * 100.0 / all
        })
    };
    let time = |r| site(r, Site::ExitIdle);
    let writes = |r: &Option<Report>| {
        let counters = r.as_ref().and_then(|r| r.counters.as_ref());
        counters.map_or(f64::NAN, |c| c.nohz_line_writes as f64 / c.nohz_transitions as f64)
    };
    let paper = 0.81 / 0.35;
    let figure = |what: &str, paper, simulated, wanted| Figure {
        what: what.into(),
        paper: Some(paper),
        simulated,
        wanted,
    };
    Reproduction {
        name: "nohz",
        figures: vec![
            figure(
                "time in nohz_balance_exit_idle, counter : mask",
                paper,
                time(&counter) / time(&mask),
                (paper * 2.0 / 3.0, paper * 4.0 / 3.0),
            ),
            figure("writes per transition, counter", 2.0, writes(&counter), (1.9, 2.1)),
            figure("writes per transition, mask", 1.0, writes(&mask), (0.95, 1.05)),
        ],
        assumptions: vec![
            "nothing fitted here: line transfers as fitted in `serialize`, for the same machine".into(),
            "one line holds the mask's address (read before each change of the mask), the counter, \
             the marks set at idle entry and the times read at every busy tick, as in the kernel"
                .into(),
            "`counter` looks at the counter at every busy tick (count-first), `mask` at the mask \
             only when idle balancing is due (time-first), as before and after the patches"
                .into(),
            format!(
                "absolute shares here: counter {:.4} %, mask {:.4} % of CPU time (paper 0.81 and \
                 0.35 % of cycles in nohz_balance_exit_idle), and in the rest of \
                 nohz_balancer_kick {:.4} % and {:.4} % (paper 0.21 and 0.09): only the ratio of the \
                 former is compared",
                time(&counter),
                time(&mask),
                site(&counter, Site::Kick),
                site(&mask, Site::Kick)
            ),
        ],
        notes: String::new(),
    }
}
