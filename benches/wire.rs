//! What reading and writing a packet costs.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use demihoma::wire::homa::{Ack, Common, DATA_LEN, Data, Grant, Placement, RpcId, parse};

const COMMON: Common = Common {
    sport: 32_768,
    dport: 99,
    id: RpcId(0x1234_5678),
};

const DATA: Data = Data {
    message_length: 64,
    incoming: 64,
    ack: Some(Ack {
        client_id: RpcId(0x1234_5676),
        server_port: 99,
    }),
    cutoff_version: 1,
    retransmit: false,
    empty_reply: false,
    life: 0,
    offset: 0,
    placement: Placement::InSequence,
};

fn wire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    group.throughput(Throughput::Elements(1));
    let mut packet = [0; DATA_LEN + 64];
    DATA.emit(&COMMON, &mut packet);
    group.bench_function("parse DATA of 64 B", |b| {
        b.iter(|| parse(black_box(&packet)))
    });
    group.bench_function("emit DATA", |b| {
        b.iter(|| DATA.emit(black_box(&COMMON), black_box(&mut packet)));
    });
    let grant = Grant {
        offset: 100_000,
        priority: 3,
    };
    let mut packet = [0; Grant::LEN];
    grant.emit(&COMMON, &mut packet);
    group.bench_function("parse GRANT", |b| b.iter(|| parse(black_box(&packet))));
    group.bench_function("emit GRANT", |b| {
        b.iter(|| grant.emit(black_box(&COMMON), black_box(&mut packet)));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    // Short: `make bench` is to show trends, not the last percent.
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = wire
}
criterion_main!(benches);
