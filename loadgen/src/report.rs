//! Reports of a run: its folder, a page to read, and comparison with another run.
//!
//! A run's folder holds `report.json` (a summary with a versioned schema), interval logs
//! (`*.hlog`) with every time that was measured, percentile tables (`*.hgrm`) and `report.html`.
//! [`folder::load`] makes the same [`crate::record::Recording`] of it again.

pub mod compare;
pub mod document;
pub mod folder;
pub mod hgrm;
pub mod hlog;
pub mod html;
mod utc;
