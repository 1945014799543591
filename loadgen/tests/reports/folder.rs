//! The folder itself: exact round trips, merging, damage.

use std::fs;

use loadgen::{
    record::Recording,
    report::{document::Document, folder::FolderFault, hgrm},
};

use crate::{
    sample::{Shape, recording, search},
    scratch,
};

#[test]
fn a_run_is_read_as_it_was_recorded() {
    for (name, run) in [
        ("plain", recording(&Shape::default())),
        ("search", search()),
    ] {
        let folder = scratch(name);
        run.save(&folder).unwrap();
        let read = Recording::load(&folder).unwrap();
        assert_eq!(read.steps, run.steps);
        assert_eq!(read.found_max, run.found_max);
        assert!(read == run, "{name}");
        let again = scratch(&format!("{name}-again"));
        Recording::load(&folder).unwrap().save(&again).unwrap();
        for file in [
            "report.json",
            "response.hlog",
            "response-tools_call.hgrm",
            "slip.hgrm",
        ] {
            let read = |folder: &std::path::Path| fs::read(folder.join(file)).unwrap();
            assert_eq!(read(&folder), read(&again), "{name} {file}");
        }
    }
}

#[test]
fn joined_folders_are_one_recording() {
    let shapes = [1, 2, 3].map(|seed| Shape {
        seed,
        seconds: 3,
        ..Shape::default()
    });
    let mut live = Recording::default();
    let mut joined = Recording::default();
    for (index, shape) in shapes.iter().enumerate() {
        let run = recording(shape);
        live.merge(&run);
        let folder = scratch(&format!("join-{index}"));
        run.save(&folder).unwrap();
        joined.merge(&Recording::load(&folder).unwrap());
    }
    assert_eq!(joined, live);
    let alone: u64 = shapes.iter().map(|shape| recording(shape).good()).sum();
    assert_eq!((joined.good(), joined.machines.len()), (alone, 1));
    // A percentile of the sum lies between those of its parts, and is none of their means.
    let p99 = |run: &Recording| run.response().value_at_quantile(0.99);
    let parts = shapes.each_ref().map(|shape| p99(&recording(shape)));
    assert!(parts.iter().min().unwrap() <= &p99(&joined));
    assert!(&p99(&joined) <= parts.iter().max().unwrap());
}

#[test]
fn the_summary_and_the_tables_say_what_the_logs_say() {
    let folder = scratch("summary");
    let run = recording(&Shape::default());
    run.save(&folder).unwrap();
    let document = Document::parse(&fs::read(folder.join("report.json")).unwrap()).unwrap();
    let times = document.operations["tools_call"].response_us;
    let table = fs::read_to_string(folder.join("response-tools_call.hgrm")).unwrap();
    let rows = hgrm::read(&table).unwrap();
    let last = rows.last().unwrap();
    assert_eq!((last.count, last.value), (times.count, times.max));
    let p50 = hgrm::value_at(&rows, 0.5).unwrap();
    assert!((p50 - times.p50).abs() < 0.001, "{p50} {}", times.p50);
    assert_eq!(document.summary.offered, run.offered());
    assert_eq!(document.run.started, "2026-11-30T12:00:00Z");
}

#[test]
fn a_folder_with_a_run_is_not_written_over() {
    let folder = scratch("taken");
    let run = recording(&Shape {
        seconds: 1,
        ..Shape::default()
    });
    run.save(&folder).unwrap();
    assert!(matches!(run.save(&folder), Err(FolderFault::Taken(_))));
}

#[test]
fn damage_is_told_with_the_file() {
    let folder = scratch("damaged");
    let run = recording(&Shape {
        seconds: 1,
        ..Shape::default()
    });
    let fault_after = |file: &str, change: &dyn Fn(String) -> String| {
        // A fresh folder each time: only one thing is wrong.
        let _ = fs::remove_dir_all(&folder);
        run.save(&folder).unwrap();
        let path = folder.join(file);
        fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
        Recording::load(&folder).unwrap_err().to_string()
    };
    for (file, from, to, expected) in [
        (
            "report.json",
            "shardgate.loadgen.report/1",
            "other/9",
            "another version",
        ),
        ("report.json", "\"good\"", "\"gut\"", "missing field `good`"),
        (
            "report.json",
            "\"tools_list\"",
            "\"../x\"",
            "an operation's name",
        ),
        (
            "report.json",
            "\"bytes\": ",
            "\"bytes\": 900719925474",
            "a count above 2^53",
        ),
        (
            "report.json",
            "\"tools_list\"",
            "\"prompts\"",
            "response.hlog: prompts is not what",
        ),
        (
            "response.hlog",
            "Tag=tools_list",
            "Tag=tools_call",
            "is not what the summary says",
        ),
        (
            "response.hlog",
            "HISTFAAA",
            "HISTFBBB",
            "response.hlog: line",
        ),
    ] {
        let told = fault_after(file, &|text| text.replacen(from, to, 1));
        assert!(told.contains(expected), "{told}");
        assert!(
            told.contains(file) || told.contains("response.hlog"),
            "{told}"
        );
    }
    let told = fault_after("slip.hlog", &|_| String::new());
    assert!(told.contains("slip.hlog: slip is not what"), "{told}");
    let _ = fs::remove_file(folder.join("report.json"));
    assert!(Recording::load(&folder).is_err());
}
