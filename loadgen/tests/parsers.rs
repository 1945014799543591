//! What people write is read or refused, never more: any text, and texts that are nearly right.

use std::time::Duration;

use loadgen::{
    backend::Stall,
    delay::Delay,
    operation::{Sizes, parse_mix},
    scenario::{EXAMPLE, Plan, Secrets},
    slo::Slo,
    units::{parse_bytes, parse_share, parse_time, seconds_or_time, show_ns},
};
use proptest::prelude::*;

fn delay() -> impl Strategy<Value = Delay> {
    let time = || (0_u64..60_000_000).prop_map(Duration::from_micros);
    prop_oneof![
        time().prop_map(Delay::Fixed),
        (time(), time()).prop_map(|(one, other)| Delay::Uniform(one.min(other), one.max(other))),
        time().prop_map(Delay::Exponential),
        (time(), 0_u32..50).prop_map(|(median, tenths)| Delay::LogNormal {
            median,
            sigma: f64::from(tenths) / 10.0,
        }),
    ]
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
        let _ = parse_time(&text);
        let _ = seconds_or_time(&text);
        let _ = parse_bytes(&text);
        let _ = parse_share(&text);
        let _ = parse_mix(&text);
        let _ = text.parse::<Delay>();
        let _ = text.parse::<Sizes>();
        let _ = text.parse::<Slo>();
        let _ = Plan::parse(&text).map(|plan| plan.resolve(Secrets::default()));
    }

    #[test]
    fn nearly_right_texts_too(text in "[a-z]{0,9}[:=/.,]?[0-9.]{0,12}(us|ms|s|m|h|k|%|\\.\\.)?[0-9]{0,3}") {
        let _ = parse_time(&text).map(|time| show_ns(time.as_nanos() as u64));
        let _ = parse_bytes(&text);
        if let Some(share) = parse_share(&text) {
            prop_assert!((0.0..=1.0).contains(&share));
        }
        if let Ok(mix) = parse_mix(&text) {
            prop_assert!(mix.iter().all(|(_, weight)| *weight > 0.0));
        }
        let _ = text.parse::<Slo>().map(|slo| slo.to_string());
        if let Ok(sizes) = text.parse::<Sizes>() {
            prop_assert!(sizes.min <= sizes.max && sizes.max <= Sizes::BYTES_MAX);
        }
    }

    #[test]
    fn a_delay_is_read_as_it_is_written(delay in delay()) {
        prop_assert_eq!(delay.to_string().replace('µ', "u").parse::<Delay>(), Ok(delay));
    }

    /// A damaged scenario is a fault with a place, or another sound scenario.
    #[test]
    fn damaged_scenarios_are_faults(at in 0_usize..4000, with in "\\PC{0,3}", drop in 0_usize..20) {
        let at = at % EXAMPLE.len();
        let end = (at + drop).min(EXAMPLE.len());
        let mut text = EXAMPLE.to_owned();
        // The example is ASCII.
        text.replace_range(at..end, &with);
        match Plan::parse(&text) {
            Ok(plan) => {
                let _ = plan.resolve(Secrets::default());
            }
            Err(fault) => prop_assert!(!fault.to_string().is_empty()),
        }
    }

    #[test]
    fn a_stall_never_holds_longer_than_it_is(
        every in 2_u64..100_000, share in 0.0..1.0_f64, elapsed in 0_u64..10_000_000,
    ) {
        let (every, elapsed) = (Duration::from_millis(every), Duration::from_millis(elapsed));
        let length = every.mul_f64(share);
        let left = Stall { every, length }.left(elapsed);
        prop_assert!(left <= length);
        // At its end nothing is left.
        prop_assert_eq!(Stall { every, length }.left(elapsed + left), if left.is_zero() { left } else { Duration::ZERO });
    }
}
