//! Calls on streams by chance.

use super::*;
use crate::rng::Rng;

/// Two sides, each calling what it likes on whatever descriptor it has or had.
struct Caller {
    qds: Vec<QDesc>,
    messages: Vec<Sga>,
    /// Tokens that have no result yet.
    pending: Vec<QToken>,
}

impl Caller {
    fn call(&mut self, os: &mut Os, rng: &mut Rng, own: u8) {
        let qd = match self.qds.len() as u64 {
            0 => QDesc(500),
            count => self.qds[rng.below(count) as usize],
        };
        let port = 7000 + rng.below(3) as u16;
        let started = match rng.below(16) {
            0 | 1 => {
                self.qds
                    .extend(os.socket(libc::AF_INET, libc::SOCK_STREAM, 0));
                return;
            }
            2 => {
                let _ = os.bind(qd, Addr::new(ip(own), port));
                return;
            }
            3 => {
                let _ = os.listen(qd, 1 + rng.below(3) as i32);
                return;
            }
            4 | 5 => os.accept(qd),
            6 | 7 => os.connect(qd, Addr::new(ip(1 + rng.below(2) as u8), port)),
            8..=11 => {
                let len = [1, 100, 5_000, 70_000, 1_000_000][rng.below(5) as usize];
                let Ok(sga) = os.sgaalloc(len) else { return };
                let pushed = os.push(qd, &sga.view());
                os.sgafree(sga.handle.into()).unwrap();
                pushed
            }
            12..=14 => os.pop(qd, [None, Some(500)][rng.below(2) as usize]),
            _ if rng.below(4) > 0 => return,
            _ => {
                os.set_linger(qd, Some(Duration::micros(rng.below(300))))
                    .ok();
                let _ = os.close(qd);
                return;
            }
        };
        self.pending.extend(started);
    }

    /// Takes what is there, and frees some of it.
    fn take(&mut self, os: &mut Os, rng: &mut Rng) {
        let mut results = Vec::new();
        let _ = os.wait_next_n(
            |result| {
                results.push(result);
                true
            },
            Some(Duration::ZERO),
        );
        for result in results {
            let place = self.pending.iter().position(|&qt| qt == result.qt);
            self.pending
                .swap_remove(place.expect("each token has one result"));
            match result.result {
                OperationResult::Pop(sga) => self.messages.push(sga),
                OperationResult::Accept { qd, .. } => self.qds.push(qd),
                OperationResult::Push | OperationResult::Connect | OperationResult::Close => {}
                OperationResult::Failed(_) => {}
            }
        }
        while self.messages.len() as u64 > rng.below(20) {
            let sga = self.messages.swap_remove(0);
            os.sgafree(sga.handle.into()).unwrap();
        }
    }

    fn end(&mut self, os: &mut Os, rng: &mut Rng) {
        for qd in os.desk.queues.qds() {
            os.set_linger(qd, Some(Duration::ZERO)).unwrap();
            os.close(qd).unwrap();
        }
        while !self.messages.is_empty() || !self.pending.is_empty() {
            self.take(os, rng);
        }
    }
}

#[test]
fn calls_in_any_order_leave_nothing_behind() {
    let (mut opened, mut messages) = (0, 0);
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut world = World::new();
        let mut callers = [(); 2].map(|()| Caller {
            qds: Vec::new(),
            messages: Vec::new(),
            pending: Vec::new(),
        });
        for _ in 0..1_000 {
            callers[0].call(&mut world.client, &mut rng, 1);
            callers[1].call(&mut world.server, &mut rng, 2);
            for _ in 0..rng.below(4) {
                callers[0].take(&mut world.client, &mut rng);
                callers[1].take(&mut world.server, &mut rng);
            }
        }
        callers[0].end(&mut world.client, &mut rng);
        callers[1].end(&mut world.server, &mut rng);
        world.live(Duration::millis(200));
        for os in [&mut world.client, &mut world.server] {
            let stats = os.channel_stats();
            opened += stats.opened;
            messages += stats.messages_in;
            assert!(
                os.desk.channels.is_empty(),
                "seed {seed}: {:?}",
                os.desk.channels
            );
            assert!(os.desk.tokens.is_empty(), "seed {seed}");
            assert_eq!(os.desk.buffers.used_bytes(), 0, "seed {seed}");
            assert_eq!(os.poller.homa().rpc_count(), 0, "seed {seed}");
            assert_eq!(os.poller.homa().free_pages(), 256, "seed {seed}");
        }
    }
    assert!(opened > 100 && messages > 500, "{opened} and {messages}");
}
