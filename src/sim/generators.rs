//! Named workloads.

use super::program::{Gives, Op, Source, Start, Workload, forever};
use super::random::Time;
use crate::units::Nanos;

const fn us(n: u64) -> Nanos {
    Nanos::from_us(n)
}

/// `n` tasks that always want to run.
pub fn hogs(w: &mut Workload, n: u32) {
    let hog = w.template("hog", forever(vec![Op::Run(Time::Fixed(us(1000))), Op::Done]));
    w.start(hog, n);
}

/// Tasks that work for a moment and sleep long: `n` of them.
pub fn sparse(w: &mut Workload, n: u32, run: Time, sleep: Time) {
    let idler = w.template("idler", forever(vec![Op::Sleep(sleep), Op::Run(run), Op::Done]));
    w.start(idler, n);
}

/// `hackbench -p`: groups of 20 senders and 20 receivers; each sender sends `loops` messages of
/// 100 bytes to each receiver of its group.
pub fn hackbench(w: &mut Workload, groups: u32, loops: u32) {
    const FAN: u32 = 20;
    for _ in 0..groups {
        let first = w.pipe(65_536);
        (1..FAN).for_each(|_| {
            w.pipe(65_536);
        });
        let work = Op::Run(Time::Fixed(Nanos(900)));
        let mut send: Vec<Op> =
            (0..FAN).flat_map(|i| [work.clone(), Op::Write(first + i, 100)]).collect();
        send.push(Op::Repeat { from: 0, times: loops, counter: 0 });
        let sender = w.template("sender", send);
        w.start(sender, FAN);
        for i in 0..FAN {
            let program = vec![
                Op::Read(first + i, 100),
                work.clone(),
                Op::Done,
                Op::Repeat { from: 0, times: loops.saturating_mul(FAN), counter: 0 },
            ];
            let receiver = w.template("receiver", program);
            w.start(receiver, 1);
        }
    }
}

/// An OLTP server at full load: each client has its worker; a transaction is `statements` times a
/// stretch of work, now and then under one of a few locks, and a wait for I/O or the client.
pub fn oltp(w: &mut Workload, clients: u32, work: Time, io: Time, locks: u32) {
    let first = w.locks;
    w.locks += locks;
    for _ in 0..clients {
        let (request, reply) = (w.semaphore(0), w.semaphore(0));
        let mut program = vec![Op::Wait(request), Op::Run(work), Op::Sleep(io), Op::Run(work)];
        if locks > 0 {
            program.extend([
                Op::Lock { first, nr: locks },
                Op::Run(Time::Fixed(us(5))),
                Op::Unlock,
            ]);
        }
        program.extend([Op::Done, Op::Post(reply)]);
        let worker = w.template("worker", forever(program));
        let client = vec![
            Op::Run(Time::Exponential(us(20))),
            Op::Post(request),
            Op::Wait(reply),
            Op::Sleep(Time::Exponential(us(100))),
        ];
        let client = w.template("client", forever(client));
        w.start(worker, 1);
        w.start(client, 1);
    }
}

/// lmbench's `bw_pipe`: a task forks another, which writes chunks of 64 KiB that the first one reads.
/// `on`: the CPU where that one begins.
pub fn pipe_pair(w: &mut Workload, on: Option<u32>) {
    let pipe = w.pipe(65_536);
    let write = w.template("writer", forever(vec![Op::Write(pipe, 65_536)]));
    let read = vec![
        Op::Fork(write, 1),
        Op::Read(pipe, 65_536),
        Op::Done,
        Op::Repeat { from: 1, times: 0, counter: 0 },
    ];
    let read = w.template("reader", read);
    w.starts.push(Start { template: read, nr: 1, at: Nanos::ZERO, on });
}

/// `make -j`: a task that keeps `jobs` compilers running, each living for an exponential time.
pub fn make(w: &mut Workload, jobs: u32, mean: Nanos) {
    let slots = w.semaphore(jobs);
    let job = vec![
        Op::Run(Time::Exponential(mean)),
        Op::Sleep(Time::Exponential(Nanos(mean.0 / 10))),
        Op::Run(Time::Exponential(Nanos(mean.0 / 4))),
        Op::Done,
        Op::Post(slots),
    ];
    let job = w.template("compiler", job);
    let make = forever(vec![Op::Wait(slots), Op::Run(Time::Fixed(us(300))), Op::Fork(job, 1)]);
    let make = w.template("make", make);
    w.start(make, 1);
}

/// Request and reply: `servers` tasks answer requests that come at exponential intervals.
pub fn request_reply(w: &mut Workload, servers: u32, interval: Nanos, work: Time) {
    let requests = w.semaphore(0);
    let program = forever(vec![Op::Wait(requests), Op::Run(work), Op::Done]);
    let server = w.template("server", program);
    w.start(server, servers);
    w.sources.push(Source { interval: Time::Exponential(interval), gives: Gives::Post(requests) });
}
