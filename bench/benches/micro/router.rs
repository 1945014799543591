//! How long it takes to say which backend a tool belongs to, by the number of backends; and which
//! shard a session.

use std::{hint::black_box, rc::Rc};

use criterion::{BenchmarkId, Criterion};
use serde_json::{Map, json};
use shardgate::{
    config::compiled::{CompiledUser, VirtualHost},
    route::{learned::Learned, names::route_tool},
    session::IdKeys,
    steer::{ConnectionHistory, decide},
    upstream::target::Targets,
};
use shards::slots::SlotTable;

fn host(backends: usize) -> Rc<VirtualHost> {
    let backends: Map<_, _> = (0..backends)
        .map(|index| {
            (
                format!("backend{index}"),
                json!({"url": "http://a.example/mcp"}),
            )
        })
        .collect();
    let config = json!({"virtual_hosts": {"main": {"backends": backends}}});
    let config = serde_json::from_value(config).unwrap();
    let user = CompiledUser::new(&config, &Targets::default());
    user.host("main").unwrap().clone()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("router");
    let learned = Learned::default();
    for count in [1, 5, 50] {
        let host = host(count);
        let name = match count {
            1 => "search_documents".to_owned(),
            _ => format!("backend{}-search_documents", count / 2),
        };
        let route = route_tool(&host, &learned, &name).unwrap();
        assert_eq!(route.original, "search_documents");
        group.bench_with_input(BenchmarkId::new("tool", count), &name, |bencher, name| {
            bencher.iter(|| route_tool(&host, &learned, black_box(name)));
        });
    }
    let slots = SlotTable::new(4);
    let session = IdKeys::new(&[7; 32], "gw01").mint(|id| slots.owner_of(id) == 2);
    let session = session.unwrap();
    group.bench_function("steer", |bencher| {
        bencher.iter(|| {
            let mut history = ConnectionHistory::default();
            decide(2, &slots, Some(black_box(&session)), &mut history, true)
        });
    });
    group.finish();
}
