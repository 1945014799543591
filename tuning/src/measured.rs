//! Points on disk: `cores.json` of a measurement, or run folders of the load generator.

use std::{
    fs,
    path::{Path, PathBuf},
};

use loadgen::record::Recording;
use serde::{Deserialize, Serialize};

use crate::model::Point;

/// Version of `cores.json`.
const FORMAT: u32 = 1;
const FILE: &str = "cores.json";
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Points and where they come from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Version of the file.
    pub(crate) format: u32,
    /// Machines, as they call themselves.
    pub(crate) machines: Vec<String>,
    /// Cores of the measured machine that shards may use, where known.
    pub(crate) cores: Option<u16>,
    /// How calls spread over connections, where known.
    pub(crate) pattern: Option<String>,
    /// The points.
    pub(crate) points: Vec<Point>,
    /// What a reader should know.
    pub(crate) remarks: Vec<String>,
}

impl Measured {
    /// Reads folders: of `tune cores`, or of the load generator, the latter as `FOLDER=SHARDS` when
    /// the run does not tell how many shards its target had.
    pub(crate) fn load(folders: &[String]) -> Result<Self, String> {
        let mut all = Self {
            format: FORMAT,
            ..Self::default()
        };
        for folder in folders {
            let (path, shards) = match folder.rsplit_once('=') {
                Some((path, digits)) if !Path::new(folder).exists() => {
                    let shards = digits.parse::<u16>().ok().filter(|shards| *shards > 0);
                    let shards =
                        shards.ok_or_else(|| format!("{folder}: not a number of shards"))?;
                    (PathBuf::from(path), Some(shards))
                }
                _ => (PathBuf::from(folder), None),
            };
            let one = if path.join(FILE).exists() {
                Self::read(&path.join(FILE))?
            } else {
                let recording = Recording::load(&path).map_err(|fault| fault.to_string())?;
                Self::of(&recording, shards).map_err(|fault| format!("{folder}: {fault}"))?
            };
            all.take_in(one);
        }
        if all.points.is_empty() {
            return Err("nothing was measured in these folders".to_owned());
        }
        Ok(all)
    }

    fn read(path: &Path) -> Result<Self, String> {
        let fault = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let size = fs::metadata(path).map_err(|error| fault(&error))?.len();
        if size > FILE_BYTES_MAX {
            return Err(fault(&"too large"));
        }
        let bytes = fs::read(path).map_err(|error| fault(&error))?;
        let measured: Self = serde_json::from_slice(&bytes).map_err(|error| fault(&error))?;
        if measured.format != FORMAT {
            return Err(fault(&format!("format {} is not known", measured.format)));
        }
        Ok(measured)
    }

    fn take_in(&mut self, other: Self) {
        for machine in other.machines {
            if !self.machines.contains(&machine) {
                self.machines.push(machine);
            }
        }
        if self.machines.len() > 1 {
            let remark = "the runs are of several machines: their points are mixed".to_owned();
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
        self.cores = self.cores.max(other.cores);
        self.pattern = self.pattern.take().or(other.pattern);
        self.points.extend(other.points);
        self.remarks.extend(other.remarks);
    }

    /// The points of a run: its steps, or all of it as one.
    fn of(recording: &Recording, shards: Option<u16>) -> Result<Self, String> {
        let shards = shards
            .or_else(|| target_shards(recording))
            .ok_or("how many shards the target had is not in it: say FOLDER=SHARDS")?;
        let whole = recording.response();
        let at = |quantile: f64| whole.value_at_quantile(quantile) as f64 / 1000.0;
        let steps = &recording.steps;
        let points = if steps.is_empty() {
            vec![Point {
                shards,
                rate: recording
                    .asked
                    .rate
                    .unwrap_or_else(|| recording.good_per_s()),
                good_per_s: recording.good_per_s(),
                p50_us: at(0.5),
                p99_us: at(0.99),
                p999_us: at(0.999),
                error_share: recording.error_share(),
                sent_share: recording.sent_share(),
                is_met: true,
                ..Point::default()
            }]
        } else {
            steps
                .iter()
                .map(|step| Point {
                    shards,
                    rate: step.rate,
                    good_per_s: step.good_per_s,
                    p50_us: step.p50_us,
                    p99_us: step.p99_us,
                    p999_us: step.p999_us,
                    error_share: step.error_share,
                    sent_share: step.sent_share,
                    is_met: step.is_met,
                    ..Point::default()
                })
                .collect()
        };
        let mut remarks = Vec::new();
        if recording.asked.mode == loadgen::record::Mode::Closed {
            remarks.push(
                "a closed loop waits for slow replies: its percentiles are lower than clients see"
                    .to_owned(),
            );
        }
        Ok(Self {
            format: FORMAT,
            machines: recording
                .machines
                .iter()
                .map(|machine| machine.host.clone())
                .collect(),
            cores: None,
            pattern: recording.asked.settings.get("pattern").cloned(),
            points,
            remarks,
        })
    }

    /// Writes `cores.json`.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), String> {
        let path = folder.join(FILE);
        let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        fs::create_dir_all(folder).map_err(|error| fault(&error))?;
        let text = serde_json::to_vec_pretty(self).map_err(|error| fault(&error))?;
        fs::write(&path, text).map_err(|error| fault(&error))
    }

    /// A measurement that begins.
    pub(crate) fn begin() -> Self {
        Self {
            format: FORMAT,
            machines: vec![loadgen::record::Machine::here().host],
            ..Self::default()
        }
    }
}

/// The shards of the target, as the generator was told.
fn target_shards(recording: &Recording) -> Option<u16> {
    let told = recording.asked.settings.get("target_shards");
    told.and_then(|text| text.parse().ok())
        .or_else(|| u16::try_from(recording.owners.len()).ok())
        .filter(|shards| *shards > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen::record::{Recorder, Step, Timing};
    use std::time::Duration;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tuning-{name}-{}", std::process::id()));
        // Left by an earlier run, if it is there at all.
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn recording() -> Recording {
        let mut recorder = Recorder::new(true, Duration::ZERO);
        let operation = recorder.operation("tools/call");
        for index in 0..1000_u64 {
            let intended = Duration::from_millis(index);
            let done = intended + Duration::from_micros(100 + index);
            let timing = Timing {
                intended,
                sent: intended,
                done,
            };
            recorder.good(operation, Some((index % 2) as u16), timing, 10);
        }
        let mut recording = recorder.finish(1_000);
        recording.asked.rate = Some(1000.0);
        recording
    }

    #[test]
    fn a_run_is_a_point_with_its_own_percentiles() {
        let folder = folder("run");
        recording().save(&folder).unwrap();
        let name = folder.to_str().unwrap().to_owned();
        let measured = Measured::load(std::slice::from_ref(&name)).unwrap();
        let [point] = measured.points.as_slice() else {
            panic!("{measured:?}");
        };
        assert_eq!((point.shards, point.rate), (2, 1000.0));
        assert!((point.p50_us / 600.0 - 1.0).abs() < 0.01, "{point:?}");
        assert!((point.p99_us / 1090.0 - 1.0).abs() < 0.01, "{point:?}");
        let told = Measured::load(&[format!("{name}=4")]).unwrap();
        assert_eq!(told.points[0].shards, 4);
        assert!(Measured::load(&[format!("{name}=x")]).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn steps_are_points_and_what_tells_no_shards_is_asked_about() {
        let mut recording = recording();
        recording.steps = vec![
            Step {
                rate: 500.0,
                p99_us: 7.0,
                ..Step::default()
            },
            Step {
                rate: 900.0,
                ..Step::default()
            },
        ];
        let measured = Measured::of(&recording, None).unwrap();
        assert_eq!(measured.points.len(), 2);
        assert_eq!(measured.points[0].p99_us, 7.0);
        recording.owners.clear();
        assert!(
            Measured::of(&recording, None)
                .unwrap_err()
                .contains("=SHARDS")
        );
    }

    #[test]
    fn measured_points_are_read_back_and_other_formats_are_not() {
        let folder = folder("cores");
        let measured = Measured {
            points: vec![Point {
                shards: 2,
                rate: 10.0,
                busy: Some(0.5),
                ..Point::default()
            }],
            ..Measured::begin()
        };
        measured.save(&folder).unwrap();
        let name = [folder.to_str().unwrap().to_owned()];
        assert_eq!(Measured::load(&name).unwrap().points, measured.points);
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"format\": 1", "\"format\": 2")).unwrap();
        assert!(Measured::load(&name).unwrap_err().contains("format 2"));
        assert!(Measured::load(&["/no/such/folder".to_owned()]).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
