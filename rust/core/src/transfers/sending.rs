//! Sending: the store's orders are sent over their channels as soon as their dependencies have arrived.

use super::feed::Feed;
use super::handles::TransferId;
use super::job::Transmission;
use super::mover::Mover;
use super::peers::Now;
use super::plugins::Sending;
use super::traffic::SentRecord;
use super::transfer::Transfer;
use crate::digest::Record;
use crate::store::{Answer, MoveId, Order, Times, GPU, REMOTE};
use crate::tiers::Route;

impl Mover {
    /// Sends the store's new orders, or queues them behind their dependencies. `computed`: the times at which
    /// a step had computed the first and the last layer of the blocks now written through.
    pub fn issue(&mut self, now: &mut Now<'_>, computed: Option<Times>) -> Answer<()> {
        let moving = now.store.moving().filter(|moving| moving.has_orders());
        let Some(moving) = moving else {
            return Ok(());
        };
        for order in moving.take_orders() {
            self.accept(now, &order, computed)?;
        }
        Ok(())
    }

    /// Sends orders that were taken from the store.
    pub fn send_orders(&mut self, now: &mut Now<'_>, orders: &[Order]) -> Answer<()> {
        orders
            .iter()
            .try_for_each(|order| self.accept(now, order, None))
    }

    /// Sends an order, or queues it behind its dependencies; `computed` as in [`Mover::issue`].
    pub(crate) fn accept(
        &mut self,
        now: &mut Now<'_>,
        order: &Order,
        computed: Option<Times>,
    ) -> Answer<()> {
        let from = if order.from == REMOTE {
            self.config.remote
        } else {
            order.from
        };
        if let Some(id) = self.in_flight(order.id) {
            return self.write_last(now, id, order);
        }
        let id = self.begin(order.id, Route::new(from, order.to), order.blocks);
        if self.config.layer_pipelining && order.from == GPU && order.after.is_empty() {
            self.transfers[id].computed = computed;
        }
        self.in_flight.insert(order.id, id);
        if order.from == REMOTE {
            return self.accept_read(now, id, order);
        }
        if let (Some(pages), Some(moving)) = (&self.config.pages, now.store.moving()) {
            let carried = moving
                .blocks_of_move(order.id)
                .map(|blocks| pages.of(blocks));
            self.transfers[id].carried = carried.map(Box::new);
        }
        self.launch_after(now, id, order)
    }

    /// Sends the last batch of a backlog, for which a transfer has stood so far.
    fn write_last(&mut self, now: &mut Now<'_>, id: TransferId, order: &Order) -> Answer<()> {
        let transfer = &mut self.transfers[id];
        transfer.blocks = order.blocks;
        transfer.waits.retain(|&other| other != id);
        transfer.dependents.retain(|&other| other != id);
        self.launch_after(now, id, order)
    }

    /// Chooses a transfer's channel, and launches it once the moves that its order names have finished.
    fn launch_after(&mut self, now: &mut Now<'_>, id: TransferId, order: &Order) -> Answer<()> {
        let sending = Sending {
            blocks: order.blocks,
            size_bytes: self.job_of(self.transfer(id)).size_bytes,
            now_ns: now.ns,
        };
        let transfer = self.transfer(id);
        let rail = self.lane(transfer.route()).choose(&sending)?;
        self.transfers[id].rail = rail;
        for before in self.all_in_flight(&order.after) {
            self.wait_for(id, before);
            let source = &self.transfers[before];
            if source.comes_up() && source.to == order.from {
                self.follow(id, before);
            }
        }
        self.launch(now, id)
    }

    /// Makes a transfer wait for another one.
    pub fn wait_for(&mut self, id: TransferId, before: TransferId) {
        if !self.transfers[id].waits.contains(&before) {
            self.transfers[id].waits.push(before);
            self.transfers[before].dependents.push(id);
        }
    }

    /// Makes a transfer send on the blocks that another one brings.
    pub(super) fn follow(&mut self, id: TransferId, below: TransferId) {
        self.keep(below);
        if let Some(other) = self.transfers[id].below.replace(below) {
            self.forget(other);
        }
    }

    /// Sends a transfer once its dependencies have arrived, or their first layer if that is sufficient.
    pub(super) fn launch(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let transfer = &self.transfers[id];
        if let Some(relay) = transfer.relay {
            return self.pass_on(now, id, relay);
        }
        if transfer.waits.is_empty() {
            return match transfer.feed() {
                Feed::AtHand => self.send(now, id, None),
                Feed::Comes(sent) => self.send(now, id, Some(sent)),
                Feed::Awaited => Ok(()),
            };
        }
        let Some(feed) = self.feed(transfer, now.ns) else {
            return Ok(());
        };
        self.transfers[id].waits.clear();
        if self.goes_by_layer(id) {
            self.submit(id, Some(feed), now.ns);
            return Ok(());
        }
        let fed = &mut self.transfers[feed];
        fed.dependents.retain(|&other| other != id);
        let sent = fed.sent;
        self.send(now, id, sent)
    }

    /// Returns the hop that feeds a transfer layer by layer, if the transfer waits for nothing else.
    fn feed(&self, transfer: &Transfer, now_ns: u64) -> Option<TransferId> {
        let &[before] = transfer.waits.as_slice() else {
            return None;
        };
        let hop = self.transfer(before);
        let fed = self.streams(transfer) && hop.feeds(transfer) && transfer.feed() == Feed::AtHand;
        let sent = self.sent(before);
        let has_come = sent.is_some_and(|sent| sent.first_layer_ns <= now_ns);
        (fed && has_come).then_some(before)
    }

    /// Returns true if a transfer is fed, and feeds, layer by layer.
    pub(super) fn streams(&self, transfer: &Transfer) -> bool {
        let hop = transfer.hop.as_deref();
        hop.map_or(self.config.layer_pipelining, |hop| hop.streams)
    }

    fn send(
        &mut self,
        now: &mut Now<'_>,
        id: TransferId,
        feed: Option<Transmission>,
    ) -> Answer<()> {
        if self.goes_by_layer(id) {
            self.submit(id, None, now.ns);
            return Ok(());
        }
        self.charge(id, now.ns);
        let transfer = &self.transfers[id];
        let computed = transfer.computed;
        let job = self.job_of(transfer);
        let layers = self.config.layers;
        let latency_ns = self.channel_of(transfer).config.latency_ns;
        let mut is_whole = false;
        let mut sent = {
            let mut channel = self.channel_of(transfer);
            channel.demand.ask(job.size_bytes, now.ns);
            match (computed, feed) {
                (Some(computed), _) => {
                    // No other job came meanwhile that is not in the channel's queue: the layers went as
                    // computed.
                    let first_ns = computed.first_layer_ns.max(channel.last_call_ns);
                    let step = Transmission {
                        start_ns: first_ns,
                        first_layer_ns: first_ns,
                        completion_ns: now.ns,
                        per_layer_ns: (now.ns - first_ns) / (layers - 1).max(1),
                    };
                    channel.forward(&job, &step)
                }
                (None, Some(before)) if before.completion_ns > now.ns => {
                    // Fed now, though the hop's first layer may have arrived earlier.
                    let fed = Transmission {
                        first_layer_ns: now.ns,
                        ..before
                    };
                    channel.forward(&job, &fed)
                }
                _ => {
                    is_whole = true;
                    channel.transmit(&job, now.ns)
                }
            }
        };
        let transfer = &mut self.transfers[id];
        if let (true, GPU, Some(carried)) = (is_whole, transfer.to, &mut transfer.carried) {
            sent.first_layer_ns = carried.arrive(&sent, latency_ns);
        }
        self.note(now, id, sent)?;
        self.arrives_at(id, sent);
        Ok(())
    }

    /// Returns true if a transfer's first layer is usable before all of it has arrived.
    pub(super) fn comes_by_layer(&self, transfer: &Transfer) -> bool {
        self.streams(transfer) && (transfer.to < transfer.from || transfer.hop.is_some())
    }

    /// Counts a transfer whose times are final, and reports the times to the store.
    pub(super) fn note(
        &mut self,
        now: &mut Now<'_>,
        id: TransferId,
        sent: Transmission,
    ) -> Answer<()> {
        let transfer = &self.transfers[id];
        let (route, blocks) = (transfer.route(), transfer.blocks);
        let (move_id, is_hop) = (transfer.id, transfer.hop.is_some());
        let job = self.job_of(transfer);
        let whole = blocks * self.config.block_bytes;
        let is_other = transfer.carried.is_some() || !self.config.forms.is_empty();
        debug_assert!(is_other || job.size_bytes == whole, "I9");
        self.traffic.carry(route, job.size_bytes);
        if let (false, Some(moving)) = (is_hop, now.store.moving()) {
            self.traffic.tiers[route.to].written += job.size_bytes;
            let times = Times {
                first_layer_ns: sent.first_layer_ns,
                ready_ns: sent.completion_ns,
            };
            moving.set_times(move_id, times)?;
        }
        let subject = ((route.from as u64) << 8 | route.to as u64) << 40 | blocks;
        let kind = Record::Transfer as u8;
        let records = now.store.records_mut();
        records.note(kind, now.ns, subject, sent.completion_ns);
        if let Some(log) = &mut self.traffic.log {
            log.push(SentRecord {
                id: move_id,
                route,
                blocks,
                sent,
            });
        }
        Ok(())
    }

    /// Schedules the arrival of a transfer at final times: its first layer, if that is usable early, and all
    /// of it.
    fn arrives_at(&mut self, id: TransferId, sent: Transmission) {
        self.transfers[id].sent = Some(sent);
        let by_layer = self.comes_by_layer(&self.transfers[id]);
        if by_layer && sent.first_layer_ns < sent.completion_ns {
            self.arrivals.schedule(sent.first_layer_ns, id, false);
        }
        self.arrivals.schedule(sent.completion_ns, id, true);
    }

    /// Schedules the arrival of a move at the final times of a transmission.
    pub fn arrive(&mut self, id: MoveId, route: Route, blocks: u64, sent: Transmission) {
        let slot = self.begin(id, route, blocks);
        self.in_flight.insert(id, slot);
        self.arrives_at(slot, sent);
    }

    /// Records the cost of a transfer that starts on its channel now; transfers below the CPU cost the steps
    /// nothing.
    pub(super) fn charge(&mut self, id: TransferId, now_ns: u64) {
        let transfer = self.transfer(id);
        if self.copies.is_none() || (transfer.from != GPU && transfer.to != GPU) {
            return;
        }
        let (link, job) = (self.channel_of(transfer).config, self.job_of(transfer));
        if let Some(copies) = &mut self.copies {
            copies.sent(&link, &job, now_ns);
        }
    }
}
