//! Prompt caches of providers: prefixes of content blocks, kept for a time instead of a capacity.
//!
//! - `prefixes` prompts as paths of content blocks
//! - `cache`    what is kept of them, what a request finds, and why it finds no more
#![deny(missing_docs)]

pub mod cache;
pub mod prefixes;
