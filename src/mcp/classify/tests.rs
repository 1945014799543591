//! The decision table, row by row, and every combination against rules that hold for all.

use proptest::prelude::*;

use super::*;

const BOTH: Enabled = Enabled {
    stateless: true,
    legacy: VersionSet::ALL,
};
const OLD: &[u8] = b"2025-11-25";
const NEW: &[u8] = STATELESS.as_bytes();
const UNKNOWN: &[u8] = b"2099-01-01";

fn request<'a>(header: Header<'a>, meta: Meta<'a>) -> Marks<'a> {
    Marks {
        header,
        meta,
        kind: Kind::Request,
        is_initialize: false,
        has_session: false,
    }
}

#[test]
fn the_rows_of_the_table() {
    use Header::{Absent, One, Several};
    use Meta::{NotText, Text};
    let judge = |marks: &Marks<'static>| classify(BOTH, marks);
    let with_session = |marks: Marks<'static>| Marks {
        has_session: true,
        ..marks
    };
    let initialize = |marks: Marks<'static>| Marks {
        is_initialize: true,
        ..marks
    };
    let none = Meta::Absent;
    // D1
    assert_eq!(
        judge(&request(Several(true), none)),
        Err(Misfit::HeaderTwice)
    );
    assert_eq!(
        judge(&request(Several(false), Text(STATELESS))),
        Err(Misfit::HeaderTwice)
    );
    assert_eq!(
        judge(&request(Several(false), none)),
        Err(Misfit::LegacyHeaderTwice)
    );
    // D2
    let answer = Marks {
        kind: Kind::Response,
        ..request(One(NEW), none)
    };
    assert_eq!(judge(&answer), Err(Misfit::Answer));
    // D3
    assert_eq!(judge(&request(One(NEW), none)), Err(Misfit::MetaMissing));
    assert_eq!(judge(&request(One(NEW), NotText)), Err(Misfit::MetaMissing));
    assert_eq!(judge(&request(Absent, NotText)), Err(Misfit::MetaMissing));
    // D4
    assert_eq!(
        judge(&request(Absent, Text(STATELESS))),
        Err(Misfit::HeaderMissing)
    );
    // D5
    assert_eq!(
        judge(&request(One(OLD), Text(STATELESS))),
        Err(Misfit::Mismatch)
    );
    assert_eq!(
        judge(&request(One(NEW), Text("2025-11-25"))),
        Err(Misfit::Mismatch)
    );
    assert_eq!(
        judge(&initialize(request(One(NEW), none))),
        Err(Misfit::Mismatch)
    );
    // D6
    for name in ["2099-01-01", "2025-11-25", ""] {
        assert_eq!(
            judge(&request(One(name.as_bytes()), Text(name))),
            Err(Misfit::Unsupported(name.as_bytes()))
        );
    }
    // D7, whatever session id rides along, and even for `initialize`.
    let plain = request(One(NEW), Text(STATELESS));
    for marks in [plain, with_session(plain), initialize(plain)] {
        assert_eq!(judge(&marks), Ok(Profile::Stateless));
    }
    // D8
    assert_eq!(
        judge(&request(One(UNKNOWN), none)),
        Err(Misfit::Unsupported(UNKNOWN))
    );
    for marks in [
        with_session(request(One(UNKNOWN), none)),
        initialize(request(One(UNKNOWN), none)),
    ] {
        assert_eq!(judge(&marks), Err(Misfit::LegacyVersion));
    }
    // D9
    for marks in [
        initialize(request(Absent, none)),
        initialize(with_session(request(One(OLD), none))),
    ] {
        assert_eq!(judge(&marks), Ok(Profile::Initialize));
    }
    // D10
    assert_eq!(
        judge(&with_session(request(Absent, none))),
        Ok(Profile::Session(None))
    );
    assert_eq!(
        judge(&with_session(request(One(OLD), none))),
        Ok(Profile::Session(Some(Version::V2025_11_25)))
    );
    // D11
    assert_eq!(judge(&request(Absent, none)), Err(Misfit::NoSession));
    assert_eq!(judge(&request(One(OLD), none)), Err(Misfit::NoSession));
}

#[test]
fn notifications_to_nobody_are_dropped() {
    let told = Marks {
        kind: Kind::Notification,
        ..request(Header::One(NEW), Meta::Text(STATELESS))
    };
    assert_eq!(classify(BOTH, &told), Ok(Profile::Dropped));
    let bare = Marks {
        meta: Meta::Absent,
        ..told
    };
    assert_eq!(classify(BOTH, &bare), Ok(Profile::Dropped));
}

#[test]
fn a_profile_that_is_off_is_not_served() {
    let legacy = Enabled {
        stateless: false,
        legacy: VersionSet::ALL,
    };
    let stateless = Enabled {
        stateless: true,
        legacy: VersionSet::NONE,
    };
    let new = request(Header::One(NEW), Meta::Text(STATELESS));
    assert_eq!(classify(legacy, &new), Err(Misfit::StatelessOff));
    assert_eq!(
        classify(legacy, &request(Header::One(UNKNOWN), Meta::Absent)),
        Err(Misfit::LegacyVersion)
    );
    assert_eq!(classify(stateless, &new), Ok(Profile::Stateless));
    let old = Marks {
        is_initialize: true,
        ..request(Header::Absent, Meta::Absent)
    };
    assert_eq!(classify(stateless, &old), Err(Misfit::Unsupported(b"")));
    let old = Marks {
        has_session: true,
        ..request(Header::One(OLD), Meta::Absent)
    };
    assert_eq!(classify(stateless, &old), Err(Misfit::Unsupported(OLD)));
    let told = Marks {
        kind: Kind::Notification,
        ..old
    };
    assert_eq!(classify(stateless, &told), Ok(Profile::Dropped));
}

#[test]
fn a_revision_that_is_not_among_the_served_is_as_an_unknown_one() {
    let enabled = |stateless| Enabled {
        stateless,
        legacy: VersionSet::NONE.with(Version::V2025_06_18),
    };
    let old = request(Header::One(OLD), Meta::Absent);
    let in_session = Marks {
        has_session: true,
        ..old
    };
    assert_eq!(classify(enabled(true), &old), Err(Misfit::Unsupported(OLD)));
    assert_eq!(classify(enabled(false), &old), Err(Misfit::LegacyVersion));
    assert_eq!(
        classify(enabled(true), &in_session),
        Err(Misfit::LegacyVersion)
    );
    let served = Marks {
        header: Header::One(b"2025-06-18"),
        ..in_session
    };
    assert_eq!(
        classify(enabled(true), &served),
        Ok(Profile::Session(Some(Version::V2025_06_18)))
    );
}

fn header() -> impl Strategy<Value = Header<'static>> {
    prop_oneof![
        Just(Header::Absent),
        any::<bool>().prop_map(Header::Several),
        prop::sample::select(vec![OLD, NEW, UNKNOWN, b""]).prop_map(Header::One),
    ]
}

fn meta() -> impl Strategy<Value = Meta<'static>> {
    prop_oneof![
        Just(Meta::Absent),
        Just(Meta::NotText),
        prop::sample::select(vec![STATELESS, "2025-11-25", "2099-01-01", ""]).prop_map(Meta::Text),
    ]
}

proptest! {
    /// What can reach a session or a backend has said so, unmistakably.
    #[test]
    fn nothing_passes_that_did_not_say_what_it_is(
        header in header(),
        meta in meta(),
        kind in prop::sample::select(vec![Kind::Request, Kind::Notification, Kind::Response]),
        is_initialize in any::<bool>(),
        has_session in any::<bool>(),
        stateless in any::<bool>(),
        legacy in any::<bool>(),
    ) {
        let with_sessions = if legacy { VersionSet::ALL } else { VersionSet::NONE };
        let enabled = Enabled { stateless, legacy: with_sessions };
        let marks = Marks { header, meta, kind, is_initialize, has_session };
        match classify(enabled, &marks) {
            Ok(Profile::Stateless) => {
                prop_assert!(stateless && kind == Kind::Request);
                prop_assert_eq!(header, Header::One(NEW));
                prop_assert_eq!(meta, Meta::Text(STATELESS));
            }
            Ok(Profile::Dropped) => prop_assert!(kind == Kind::Notification && stateless || !legacy),
            Ok(Profile::Initialize) => {
                prop_assert!(legacy && is_initialize && kind == Kind::Request);
                prop_assert_eq!(meta, Meta::Absent);
            }
            Ok(Profile::Session(version)) => {
                prop_assert!(legacy && has_session && meta == Meta::Absent);
                let named = version.map_or(Header::Absent, |one| Header::One(one.name().as_bytes()));
                prop_assert_eq!(header, named);
            }
            Err(_) => {}
        }
        // A session id changes nothing of a stateless request.
        if meta != Meta::Absent || header == Header::One(NEW) {
            let other = Marks { has_session: !has_session, ..marks };
            prop_assert_eq!(classify(enabled, &marks), classify(enabled, &other));
        }
    }
}
