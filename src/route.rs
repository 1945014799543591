//! Names: which backend a name means, and what a backend's name looks like from outside.

pub mod cursor;
pub mod family;
pub mod learned;
pub mod merge;
pub mod names;
pub mod rewrite;
pub mod template;
