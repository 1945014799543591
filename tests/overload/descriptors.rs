//! Promise 15: running out of descriptors is survived: what is there is served, the accept loop
//! does not spin, and accepting goes on when there are some again.

use std::time::{Duration, Instant};

use crate::{
    house::House,
    is_long,
    support::{Ask, Backend, Connection, eventually},
    text_of,
};

const DESCRIPTORS: usize = 160;
/// The pause after a failed accept, of each shard.
const BACK_OFF: Duration = Duration::from_millis(50);

#[test]
fn running_out_of_descriptors_is_survived_on_either_driver() {
    for driver in ["epoll", "auto"] {
        let backend = Backend::start("a", &["one"]);
        let arguments = ["--io-driver", driver, "--idle-timeout", "120s"];
        let house = House::start(backend, Some(DESCRIPTORS), &arguments);
        let mut client = house.open();
        assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
        let mut more: Vec<Connection> = (0..2 * DESCRIPTORS)
            .map(|_| Connection::open(house.address))
            .collect();
        eventually("it has run out", || {
            (house.metric("shardgate_accept_errors_total") > 2).then_some(())
        });
        // For a while: who is in is served, and the processor is idle else.
        let (started, ticks) = (Instant::now(), house.used_ticks());
        let errors = house.metric("shardgate_accept_errors_total");
        let time = Duration::from_secs(if is_long() { 30 } else { 1 });
        let mut calls = 0_u32;
        while started.elapsed() < time {
            assert_eq!(text_of(&client.call("2", "one", "{}")), "a one {}");
            calls += 1;
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let spent = started.elapsed();
        let used = Duration::from_millis(10) * u32::try_from(house.used_ticks() - ticks).unwrap();
        let failed = house.metric("shardgate_accept_errors_total") - errors;
        println!("{driver}: {failed} failed accepts and {used:?} of processor time in {spent:?}");
        let failures_max = 2 * spent.as_millis() / BACK_OFF.as_millis() + 10;
        assert!(u128::from(failed) <= failures_max, "{failed}");
        let of_calls = Duration::from_millis(4) * calls;
        assert!(used <= spent / 10 + of_calls, "{used:?} for {calls} calls");
        assert!(calls > 5);

        more.clear();
        eventually("a new one is served", || {
            let mut fresh = Connection::open(house.address);
            fresh.try_send(Ask::new("GET", "/nowhere").bytes());
            fresh.fill().then_some(())
        });
        assert_eq!(text_of(&client.call("3", "one", "{}")), "a one {}");
        assert_eq!(house.metric("shardgate_panics_total"), 0);
    }
}
