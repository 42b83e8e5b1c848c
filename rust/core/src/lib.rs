//! The pure core of kvsim: no Python, no `unsafe`, typed errors, integers in and integers out.
//!
//! Each module is one room; this page is their table of contents.
#![forbid(unsafe_code)]

pub mod policies;
pub mod replay;
pub mod tokens;
pub mod trace;
