//! Worlds in which everything goes wrong that can, and a judge of each RPC: what is promised must
//! hold all the same.
//!
//! All follows from a seed and a [`Shape`]. While a run is busy, hosts ask and answer each other,
//! frames get lost, late, doubled and broken, ways are cut, hosts stand still and restart. After
//! every turn of every host its tables are checked, each frame is looked at as it leaves, and each
//! message as it arrives. Then the trouble ends: every RPC must have one outcome, a failure a
//! reason, and all tables must be as they were at first.

mod fault;
mod ledger;
mod log;
mod member;
mod shape;
mod talks;
mod weather;
mod witness;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

pub use fault::{Fault, Faults};
pub use shape::Shape;
pub use talks::{TalkReport, run_talks};

use crate::rng::Rng;
use crate::sim::{self, World};
use crate::time::{Duration, Instant};
use ledger::{Ledger, SharedLedger};
use log::SharedLog;
use member::Member;
use shape::Setting;
use weather::{Act, Weather};
use witness::Witness;

/// In how much virtual time every RPC must have an outcome once nothing goes wrong any more.
const PATIENCE: Duration = Duration::secs(60);

/// What happened in a run, or in several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// RPCs that began.
    pub started: u64,
    /// RPCs that ended with a response.
    pub responses: u64,
    /// RPCs that ended with an error for which there was a reason.
    pub failures: u64,
    /// RPCs whose client wanted no outcome any more.
    pub forgotten: u64,
    /// How often a handler ran.
    pub runs: u64,
    pub restarts: u64,
    pub closes: u64,
    pub frames: u64,
    pub virtual_time: Duration,
}

/// What was found wrong, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub shape: Shape,
    pub what: String,
    /// The last things that happened.
    pub log: String,
}

/// The run of a thread that is going on.
struct Current {
    seed: u64,
    shape: Shape,
    log: SharedLog,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Lets a run happen.
///
/// # Errors
/// What was found wrong. A check that fails panics, so in a program that aborts on panics nothing
/// comes back: there a hook can ask for [`failure`].
pub fn run(seed: u64, shape: Shape) -> Result<Report, Box<Failure>> {
    let log = SharedLog::default();
    let current = Current {
        seed,
        shape,
        log: Rc::clone(&log),
    };
    CURRENT.set(Some(current));
    let result = catch_unwind(AssertUnwindSafe(|| Course::new(seed, shape, log).run()));
    let result = result.map_err(|payload| failure(&text(payload.as_ref())));
    CURRENT.set(None);
    result.map_err(|failure| failure.expect("the run is this thread's"))
}

/// What the run of this thread has come to if it goes no further; `None` if there is no run.
pub fn failure(what: &str) -> Option<Box<Failure>> {
    CURRENT.with_borrow(|current| {
        let current = current.as_ref()?;
        let log = current.log.try_borrow();
        Some(Box::new(Failure {
            seed: current.seed,
            shape: current.shape,
            what: what.to_owned(),
            log: log.map(|log| log.to_string()).unwrap_or_default(),
        }))
    })
}

/// What a panic said.
fn text(payload: &(dyn Any + Send)) -> String {
    let words = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let words = words.or_else(|| payload.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "a panic without words".to_owned())
}

impl Failure {
    /// The line that repeats it.
    pub fn command(&self) -> String {
        let Shape {
            hosts,
            rpcs,
            faults,
        } = self.shape;
        format!(
            "demihoma sim chaos --seed {} --hosts {hosts} --rpcs {rpcs} --faults {faults}",
            self.seed
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = self.shape.setting(&mut Rng::new(self.seed));
        writeln!(f, "{}\n{setting:?}\n", self.log)?;
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        write!(f, "again: {}", self.command())
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.started += other.started;
        self.responses += other.responses;
        self.failures += other.failures;
        self.forgotten += other.forgotten;
        self.runs += other.runs;
        self.restarts += other.restarts;
        self.closes += other.closes;
        self.frames += other.frames;
        self.virtual_time = self.virtual_time + other.virtual_time;
    }
}

/// One run.
struct Course {
    setting: Setting,
    acts: Vec<(Instant, Act)>,
    rng: Rng,
    world: World<Member>,
    ledger: SharedLedger,
    witness: Rc<RefCell<Witness>>,
}

impl Course {
    fn new(seed: u64, shape: Shape, log: SharedLog) -> Self {
        let mut rng = Rng::new(seed);
        let setting = shape.setting(&mut rng);
        let calm_at = Instant(0) + setting.busy_for;
        let weather = Weather::draw(&shape, calm_at, &mut rng);
        let acts = weather.acts.clone();
        let witness = Witness::new(Rc::clone(&log), setting.homa.unsched_bytes);
        let witness = Rc::new(RefCell::new(witness));
        let give_up = setting.give_up();
        let ledger = Ledger::new(shape, give_up, weather, log, Rc::clone(&witness));
        let ledger = Rc::new(RefCell::new(ledger));
        let members = (0..shape.hosts).map(|host| {
            let (habits, ledger) = (setting.habits, Rc::clone(&ledger));
            Member::new(host.into(), habits, shape.rpcs, rng.next_u64(), ledger)
        });
        let members = members.collect();
        let mut world = World::new(rng.next_u64(), &setting.homa, setting.pages, members);
        world.watch = Some(witness.clone());
        world.faults = setting.links;
        Self {
            setting,
            acts,
            rng,
            world,
            ledger,
            witness,
        }
    }

    fn run(mut self) -> Report {
        for (at, act) in std::mem::take(&mut self.acts) {
            self.world.run_until(at);
            self.act(act);
        }
        self.world.run_until(Instant(0) + self.setting.busy_for);
        self.calm();
        self.settle();
        self.check_end();
        let mut report = self.ledger.borrow().report();
        report.frames = self.witness.borrow().frames;
        report.virtual_time = self.world.now.since(Instant(0));
        report
    }

    fn act(&mut self, act: Act) {
        self.ledger
            .borrow()
            .note(self.world.now, format!("{act:?}"));
        match act {
            Act::Restart(host) => self.restart(host),
            act => act.apply(&mut self.world),
        }
    }

    fn restart(&mut self, host: usize) {
        self.ledger.borrow_mut().on_restart(self.world.now, host);
        let left = self.world.hosts[host].app.left();
        let (seed, habits) = (self.rng.next_u64(), self.setting.habits);
        let member = Member::new(host, habits, left, seed, Rc::clone(&self.ledger));
        self.world.restart(host, self.rng.next_u64(), member);
    }

    /// Nothing goes wrong any more, and nobody asks anything new.
    fn calm(&mut self) {
        self.ledger.borrow().note(self.world.now, "calm".to_owned());
        self.world.faults = sim::Faults::NONE;
        self.world.cuts.clear();
        for host in 0..self.world.hosts.len() {
            self.world.hosts[host].app.end();
            self.world.turn(host);
        }
    }

    /// Until each RPC has its outcome, the last late frame is there, and the last ack given up.
    fn settle(&mut self) {
        let end = self.world.now + PATIENCE;
        while self.ledger.borrow().open_count() > 0 {
            let goes_on = self.world.step() && self.world.now < end;
            assert!(goes_on, "no outcome: {}", self.ledger.borrow().open());
        }
        let waits = self.setting.links.held_max + self.setting.give_up();
        let last = self.world.now + waits + Duration::secs(1);
        self.world.run_until(last);
    }

    fn check_end(&mut self) {
        for (number, host) in self.world.hosts.iter().enumerate() {
            let (number, homa) = (number + 1, host.poller.endpoint());
            host.app.check_end();
            assert_eq!(homa.rpc_count(), 0, "host {number} has RPCs: {homa:#?}");
            assert!(homa.is_quiet(), "host {number} has something to send");
            let pages = self.setting.pages as u32;
            assert_eq!(homa.free_pages(), pages, "host {number}'s pages");
        }
        let finished_for = self.setting.homa.finished_for;
        self.world.run_until(self.world.now + finished_for);
        for host in &self.world.hosts {
            let finished = host.poller.endpoint().finished_count(self.world.now);
            assert_eq!(finished, 0, "finished RPCs remembered for too long");
        }
    }
}
