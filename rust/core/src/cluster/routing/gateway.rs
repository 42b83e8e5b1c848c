//! Inputs of a gateway's rule, of a request and of each machine, and the trait of its rules.

/// A request at its arrival, and every machine as the gateway sees it at that time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of a block.
    pub block_tokens: u64,
    /// Name of the prompt's first blocks, if it has that many.
    pub class: Option<i64>,
    /// By machine, the leading blocks of the prompt on its GPU.
    pub gpu_blocks: &'a [u32],
    /// By machine, the unfinished requests that were sent there.
    pub active: &'a [u64],
    /// Current time.
    pub now_ns: u64,
}

impl Seen<'_> {
    /// Share of the prompt's blocks, a partial last block included, on a machine's GPU.
    pub fn share(&self, machine: usize) -> f64 {
        let blocks = self.prompt_tokens.div_ceil(self.block_tokens);
        let share = f64::from(self.gpu_blocks[machine]) / blocks.max(1) as f64;
        share.min(1.0)
    }

    /// Fewest and most requests of a machine.
    pub fn least_and_most(&self) -> (u64, u64) {
        let least = self.active.iter().min().copied().unwrap_or(0);
        (least, self.active.iter().max().copied().unwrap_or(0))
    }

    /// The first of the least loaded machines among some.
    pub fn least_loaded(&self, among: impl Fn(usize) -> bool) -> Option<usize> {
        let candidates = (0..self.active.len()).filter(|&machine| among(machine));
        candidates.min_by_key(|&machine| self.active[machine])
    }

    /// By machine, (1 − weight) × uncached share + weight × (requests − least) / (scale + most − least).
    pub fn weighed(&self, weight: f64, scale: f64) -> Vec<f64> {
        let (least, most) = self.least_and_most();
        let span = scale + (most - least) as f64;
        let cost = |(machine, &active): (usize, &u64)| {
            let load = (active - least) as f64 / span;
            (1.0 - weight) * (1.0 - self.share(machine)) + weight * load
        };
        self.active.iter().enumerate().map(cost).collect()
    }
}

/// A rule of a gateway; it may keep state from choice to choice.
pub trait GatewayRule: Send {
    /// Leading blocks that name the class of a prompt; 0: the rule has no classes.
    fn class_blocks(&self) -> u64 {
        0
    }

    /// The machines that are equally good, in ascending order; a choice of one of them follows.
    fn equal(&mut self, seen: &Seen<'_>) -> Vec<usize>;
}

/// The machines of the smallest cost, in ascending order.
pub fn cheapest(costs: &[f64]) -> Vec<usize> {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let machines = 0..costs.len();
    machines
        .filter(|&machine| costs[machine] == least)
        .collect()
}
