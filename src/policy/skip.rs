//! Why a balancing pass did nothing. Every early way out has a name here and a counter.

use serde::Serialize;
use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal : $words:literal;)+) => {
        /// Why nothing was moved.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum SkipReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl SkipReason {
            /// All reasons, in the order in which a pass can meet them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The counter's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// The reason in words.
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words),+ }
            }
        }
    };
}

reasons! {
    /// `sched_balance_domains`: the interval has not passed.
    NotDue = "not_due": "its time had not come";
    /// `should_we_balance`: another CPU of the group does it.
    NotElected = "not_elected": "another CPU balances for its group";
    /// `should_we_balance`: a task arrived at the newly idle CPU.
    TaskArrived = "task_arrived": "a task arrived meanwhile";
    /// The serialize flag was taken.
    SerializeBusy = "serialize_busy": "another CPU held the serialize flag";
    /// `sched_balance_newidle`: newidle balancing is off.
    NewidleOff = "newidle_off": "newidle balancing is off";
    /// `sched_balance_newidle`: no CPU had more than one task.
    NotOverloaded = "not_overloaded": "no CPU of the machine had two tasks";
    /// `sched_balance_newidle`: average idle time below the cost.
    IdleTooShort = "idle_too_short": "its usual idle time is shorter than a pass takes";
    /// `sched_balance_newidle`: the level has no NEWIDLE flag, or is serialized and excluded.
    NewidleLevel = "newidle_level": "newidle balancing does not reach this level";
    /// `sched_balance_newidle`: the success-ratio dice said no.
    NewidleDice = "newidle_dice": "the dice said no: this level seldom yields a task";
    /// `sched_balance_find_src_group`: no other group has a task to give.
    NoBusiest = "no_busiest": "no other group had anything to give";
    /// The local group's type is above the busiest's.
    LocalBusier = "local_busier": "its own group is in a worse state than the busiest";
    /// Both overloaded, local average load not below the busiest's.
    LocalLoadHigher = "local_load_higher": "its own group's average load is not below the busiest's";
    /// Both overloaded, local average load not below the domain's.
    LocalAboveDomain = "local_above_domain": "its own group is not below the domain's average load";
    /// Both overloaded, difference within `imbalance_pct`.
    WithinPct = "within_pct": "the difference is within imbalance_pct";
    /// The busiest group is not overloaded and the destination is busy.
    DstBusy = "dst_busy": "the busiest group is not overloaded and this CPU is busy";
    /// Idle CPUs are even to one.
    IdleEven = "idle_even": "the groups have as many idle CPUs, give or take one";
    /// The busiest group has one task.
    OneTask = "one_task": "the busiest group has a single task";
    /// NUMA imbalance tolerated.
    NumaTolerated = "numa_tolerated": "so small an imbalance between nodes is left alone";
    /// `calculate_imbalance` gave zero.
    NoImbalance = "no_imbalance": "the imbalance came to nothing";
    /// `sched_balance_find_src_rq`: no suitable queue.
    NoBusiestQueue = "no_busiest_queue": "no queue of the busiest group was suitable";
    /// The source queue was empty or down to one task.
    SourceDrained = "source_drained": "the source queue had drained";
    /// All waiting tasks are bound elsewhere.
    AllPinned = "all_pinned": "no waiting task may run there";
    /// Tasks ran too recently.
    CacheHot = "cache_hot": "the tasks that could move were cache-hot";
    /// Tasks carry more than may be moved.
    TooBig = "too_big": "the tasks that could move were too big for the imbalance";
    /// The host refused every move.
    MovesRefused = "moves_refused": "every chosen task had moved, gone or changed meanwhile";
    /// The source has one task and it is running.
    OnlyRunning = "only_running": "the only task there was running";
    /// Another CPU is already pushing from that source.
    ActiveBusy = "active_busy": "another CPU is already pushing from that source";
    /// The running task may not run on the destination.
    RunningPinned = "running_pinned": "the running task may not run there";
    /// The push was refused for another reason.
    PushRefused = "push_refused": "the running task had changed meanwhile";
    /// `nohz_balancer_kick`: nohz balancing is off.
    NohzOff = "nohz_off": "nohz balancing is off";
    /// `nohz_balancer_kick`: not due.
    NohzNotDue = "nohz_not_due": "idle balancing was not due";
    /// `nohz_balancer_kick`: no CPU idles.
    NohzNobodyIdles = "nohz_nobody_idles": "no CPU idled";
    /// `nohz_balancer_kick`: none of its tests held.
    NohzNoReason = "nohz_no_reason": "the busy CPU had no reason to ask for help";
    /// `kick_ilb`: no helper.
    NohzNoHelper = "nohz_no_helper": "no idle CPU was there to help";
    /// `kick_ilb`: the helper has been asked already.
    NohzPending = "nohz_pending": "the idle CPU had been asked already";
    /// `_nohz_idle_balance`: the helper got work.
    NohzAborted = "nohz_aborted": "the helper got work of its own";
}

impl SkipReason {
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`SkipReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}
