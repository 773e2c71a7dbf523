//! The end that asks, and takes the time.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use demihoma::addr::Addr;
use demihoma::dpdk::floor;
use demihoma::libos::{LibOS, OperationResult, QDesc, Sga};

use super::report::{Report, Trips};
use super::{Arguments, CLIENT_END, IPPROTO_HOMA, SERVER_END, SERVER_PORT, Way, ip, lab, open};
use crate::bench::progress;
use crate::failure::Failure;

/// Round trips of one window, some 10 ms; the first few warm up and do not count.
const WINDOW_TRIPS: u32 = 1_000;
pub(super) const WARMUP_TRIPS: u32 = 50;

/// A ping without an answer for so long is lost.
const PING_TIMEOUT: Duration = Duration::from_millis(100);

/// An RPC without an answer for so long means that the server is lost.
const CALL_TIMEOUT: demihoma::time::Duration = demihoma::time::Duration::secs(3);

/// Rounds that even the shortest run makes.
const ROUNDS_MIN: usize = 3;

struct Client {
    os: LibOS,
    qd: QDesc,
    /// What all requests hold.
    request: Sga,
    server: Server,
    floor: Trips,
    tokens: Trips,
    lost: u64,
}

/// The other process. It ends with this one: its standard input does.
struct Server {
    child: Child,
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    lab::furnish()?;
    // Asked before this thread is pinned to one of them.
    let has_two_cores = lab::core_of(CLIENT_END).is_some();
    let server = Server::start()?;
    let mut client = Client::new(server, arguments.size)?;
    client.measure(arguments.seconds)?;
    let report = Report {
        request_bytes: arguments.size,
        floor: &client.floor,
        tokens: &client.tokens,
        pings_lost: client.lost,
        has_two_cores,
    };
    report.print(arguments.json);
    Ok(())
}

impl Client {
    fn new(server: Server, size: u32) -> Result<Self, Failure> {
        let mut os = open(CLIENT_END)?;
        let qd = os.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)?;
        let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
        Ok(Self {
            request: os.sga_of(&bytes)?,
            os,
            qd,
            server,
            floor: Trips::new()?,
            tokens: Trips::new()?,
            lost: 0,
        })
    }

    /// Windows of the two ways by turns, so that both see the same disturbances.
    fn measure(&mut self, takes: Duration) -> Result<(), Failure> {
        let bar = progress(takes.as_millis() as u64, takes);
        bar.set_message("bench net");
        let (start, mut rounds) = (Instant::now(), 0);
        while rounds < ROUNDS_MIN || start.elapsed() < takes {
            self.server.order(Way::Floor)?;
            let trips = self.pings()?;
            self.floor.add(trips);
            self.server.order(Way::Tokens)?;
            let trips = self.calls()?;
            self.tokens.add(trips);
            rounds += 1;
            bar.set_position(start.elapsed().as_millis() as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn pings(&mut self) -> Result<Vec<u64>, Failure> {
        let count = WINDOW_TRIPS + WARMUP_TRIPS;
        let pings = floor::ping(self.os.device_mut(), count, PING_TIMEOUT, || {});
        self.lost += pings.lost;
        if pings.nanos.len() <= WARMUP_TRIPS as usize {
            return Err(Failure("the server's port answers no pings".to_owned()));
        }
        Ok(pings.nanos)
    }

    fn calls(&mut self) -> Result<Vec<u64>, Failure> {
        let count = WINDOW_TRIPS + WARMUP_TRIPS;
        let to = Addr::new(ip(SERVER_END), SERVER_PORT);
        let mut nanos = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let start = Instant::now();
            let (call, _) = self.os.call(self.qd, &self.request.view(), to, 0)?;
            match self.os.wait(call, Some(CALL_TIMEOUT))?.result {
                OperationResult::Pop(response) => {
                    nanos.push(start.elapsed().as_nanos() as u64);
                    if response.len != self.request.len {
                        return Err(Failure("a response has another length".to_owned()));
                    }
                    self.os.sgafree(response.handle.into())?;
                }
                OperationResult::Failed(error) => return Err(error.into()),
                other => return Err(Failure(format!("{other:?} is no response"))),
            }
        }
        Ok(nanos)
    }
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let mut child = Command::new(env::current_exe()?)
            .args(["bench", "net", "--role", "server"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let words = BufReader::new(child.stdout.take().expect("it was piped"));
        Ok(Self {
            child,
            orders,
            words,
        })
    }

    /// Makes the server answer that way from now on.
    fn order(&mut self, way: Way) -> Result<(), Failure> {
        let orders = self.orders.as_mut().expect("it is there until the end");
        // If the server has ended it has said why.
        let ended = || Failure("the server process ended early".to_owned());
        writeln!(orders, "{}", way.word()).map_err(|_| ended())?;
        loop {
            let mut line = String::new();
            if self.words.read_line(&mut line)? == 0 {
                return Err(ended());
            }
            if Way::of(&line) == Some(way) {
                return Ok(());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        // Nothing can be done about an error here.
        let _ = self.child.wait();
    }
}
