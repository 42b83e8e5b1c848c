//! Remarks about accepted rows and about the lines between them.

use super::super::audit::{BlockSizes, ChainAudit, UnknownKeys};
use super::super::columns::{blank_lines, disordered_rows, silent_rows, Counter};
use super::super::problem::Finding;
use super::super::Settings;

/// The remarks so far, each counted with its first occurrence.
#[derive(Default)]
pub struct Remarks {
    pub audit: ChainAudit,
    pub sizes: BlockSizes,
    pub unknown: UnknownKeys,
    fewer: Counter,
    without: Counter,
    silent: Counter,
    pub blank: Counter,
    pub mark: Counter,
    pub disorder: Counter,
    pub orphans: Counter,
}

impl Remarks {
    /// Examines an accepted row of `ids` block ids.
    pub fn note(&mut self, line: u64, ids: u64, input: u64, output: u64, block_size: u64) {
        if ids == 0 {
            self.without.hit(line, String::new);
        } else {
            self.sizes.note(input, ids);
            if ids < input / block_size {
                self.fewer
                    .hit(line, || format!("{ids} ids for {input} tokens"));
            }
        }
        if output == 0 {
            self.silent.hit(line, String::new);
        }
    }

    /// Adds the findings of `rows` accepted rows.
    pub fn findings(self, settings: &Settings, rows: u64, found: &mut Vec<Finding>) {
        let size = settings.block_size;
        let fits = self.sizes.only().filter(|&b| b != size);
        let hint = fits.map_or(String::new(), |b| {
            format!("; every row fits blocks of {b} tokens")
        });
        let fewer = |c: &Counter| {
            format!(
                "{} rows name fewer blocks than their prompts hold at {size} tokens an id (first {}); the rest is \
                 private{hint}",
                c.count, c.example
            )
        };
        self.fewer.into("fewer-ids", fewer, found);
        let without = |c: &Counter| {
            format!(
                "{} of {rows} rows name no block; their prompts are private",
                c.count
            )
        };
        self.without.into("no-ids", without, found);
        self.silent.into("no-output", silent_rows, found);
        self.audit.findings(found);
        let disordered = disordered_rows(settings.order);
        self.disorder.into("time-order", disordered, found);
        let orphans = |c: &Counter| {
            format!(
                "{} rows follow a chat that is not in the trace (first {}); each starts a session",
                c.count, c.example
            )
        };
        self.orphans.into("missing-parent", orphans, found);
        self.unknown.findings(found);
        self.blank.into("blank-line", blank_lines, found);
        let mark =
            |_: &Counter| "the file starts with a byte order mark, which is skipped".to_owned();
        self.mark.into("byte-order-mark", mark, found);
    }
}
