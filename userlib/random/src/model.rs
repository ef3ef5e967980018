// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What must be ordered, by CUDA's documentation alone: a vector clock for each stream.
//! The stub decides what runs when in its own way; the two share no code.

/// Streams of a program, of both devices together.
pub const STREAMS: usize = 12;
/// Streams of one device; those of the first come first.
pub const OF_DEVICE: usize = STREAMS / 2;

/// Kinds of streams, in the order in which a device has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The default stream of the device.
    Legacy,
    /// The program's thread's own.
    PerThread,
    /// Created without flags: ordered with the device's legacy stream.
    Blocking,
    /// Created with `CU_STREAM_NON_BLOCKING`: not ordered with the legacy stream.
    NonBlocking,
}

/// How many actions of each stream have come before something.
pub type Clock = [u32; STREAMS];

/// An action that used memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub stream: usize,
    /// Which of the stream's actions, from 1.
    pub number: u32,
}

/// The order of a program's actions.
#[derive(Default)]
pub struct Order {
    /// What comes before the next action of each stream, itself included.
    clocks: [Clock; STREAMS],
    /// The same, as it was at the last action of each that was neither an event nor a wait.
    worked: [Clock; STREAMS],
    /// How far the program has waited for each stream.
    host: Clock,
    /// Events of a stream, and its waits for them, come behind the legacy stream too, as its work
    /// does. A GPU need not do that.
    events_wait: bool,
}

pub fn device_of(stream: usize) -> usize {
    stream / OF_DEVICE
}

pub fn kind_of(stream: usize) -> Kind {
    match stream % OF_DEVICE {
        0 => Kind::Legacy,
        1 => Kind::PerThread,
        2 | 3 => Kind::Blocking,
        _ => Kind::NonBlocking,
    }
}

/// The default stream of a device.
pub fn legacy(device: usize) -> usize {
    device * OF_DEVICE
}

fn join(clock: &mut Clock, other: &Clock) {
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

impl Order {
    pub fn new(events_wait: bool) -> Self {
        Self {
            events_wait,
            ..Self::default()
        }
    }

    /// What would come before an action in `stream`: that is waited for implicitly too
    /// (CUDA Driver API, "Stream synchronization behavior"). What a blocking stream waits for is
    /// not counted on to come before the legacy stream's actions, until there is work behind
    /// the wait: [`Order::before_event`] says what a GPU has done with the opposite.
    fn before(&self, stream: usize) -> Clock {
        let mut clock = self.clocks[stream];
        join(&mut clock, &self.host);
        let default = legacy(device_of(stream));
        match kind_of(stream) {
            Kind::NonBlocking => {}
            Kind::PerThread | Kind::Blocking => join(&mut clock, &self.clocks[default]),
            Kind::Legacy => (default..default + OF_DEVICE)
                .filter(|&other| kind_of(other) != Kind::NonBlocking)
                .for_each(|other| join(&mut clock, &self.worked[other])),
        }
        clock
    }

    /// What would come before an event of `stream`, or before a wait in it. "All blocking
    /// streams wait on the legacy stream", CUDA says there. On a GPU such an event came behind that
    /// stream's work (`link_program`, 20 of 20), but a program that waits for a blocking stream without
    /// work of its own did not wait for it (0 of 20). So the model counts on neither. In the legacy
    /// stream both are actions, which CUDA says of the wait, and `link_program` has seen of the two.
    fn before_event(&self, stream: usize) -> Clock {
        if self.events_wait || matches!(kind_of(stream), Kind::NonBlocking | Kind::Legacy) {
            return self.before(stream);
        }
        let mut clock = self.clocks[stream];
        join(&mut clock, &self.host);
        clock
    }

    /// Something is put into a stream.
    pub fn act(&mut self, stream: usize) -> Access {
        let access = self.put(stream, self.before(stream));
        self.worked[stream] = self.clocks[stream];
        access
    }

    fn put(&mut self, stream: usize, mut clock: Clock) -> Access {
        clock[stream] += 1;
        self.clocks[stream] = clock;
        Access {
            stream,
            number: clock[stream],
        }
    }

    /// Whether an action comes before what is put into `stream` next.
    pub fn ordered(&self, access: Access, stream: usize) -> bool {
        access.stream == stream || self.before(stream)[access.stream] >= access.number
    }

    /// What is yet to be put into `stream`: others are behind it only by way of an action
    /// that comes later.
    pub fn after_now(&self, stream: usize) -> Access {
        Access {
            stream,
            number: self.clocks[stream][stream] + 1,
        }
    }

    /// An event of `stream`: what it stands for.
    pub fn record(&mut self, stream: usize) -> Clock {
        self.put(stream, self.before_event(stream));
        self.clocks[stream]
    }

    /// `stream` waits for an event.
    pub fn wait(&mut self, stream: usize, event: &Clock) {
        self.put(stream, self.before_event(stream));
        join(&mut self.clocks[stream], event);
    }

    /// What comes before the next action of a stream, as an event would have it.
    pub fn clock(&self, stream: usize) -> Clock {
        self.clocks[stream]
    }

    /// Work that `stream` waits for, without an action of its own.
    pub fn also_after(&mut self, stream: usize, clock: &Clock) {
        join(&mut self.clocks[stream], clock);
    }

    /// The program waits for a stream.
    pub fn synchronize(&mut self, stream: usize) {
        let clock = self.clocks[stream];
        join(&mut self.host, &clock);
    }

    /// The program waits for everything.
    pub fn synchronize_all(&mut self) {
        (0..STREAMS).for_each(|stream| self.synchronize(stream));
    }
}
