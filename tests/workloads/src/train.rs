// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Training as the paper's listing 6 does it, with Darknet's buffers (`layers`).
//!
//! Each mini-batch runs forward and backward through the layers, prefetching what
//! a layer uses. What backward is done with is discarded, as is the workspace
//! after each layer, and the input at the end.

use crate::layers::{self, Layer, Source};
use crate::program::{BufferId, Place, Program, Span, Step, Use};
use crate::scale::blocks;

/// One network at one batch size.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// Name in the zoo.
    pub net: &'static str,
    /// Images, or texts, in a mini-batch.
    pub batch: u64,
    /// Bytes of the workspace that cuDNN is given, in the paper's size.
    pub workspace: f64,
    /// Mini-batches before traffic counts.
    pub warm: usize,
    /// Mini-batches for which it counts.
    pub counted: usize,
}

/// A layer with its memory.
struct Placed {
    sources: Vec<Source>,
    kept: Vec<BufferId>,
    deltas: Vec<BufferId>,
    /// Its weights, and their updates.
    weights: Option<[Span; 2]>,
}

impl Training {
    /// As the paper trains it, with one mini-batch before the one that counts: all
    /// but the first move the same.
    pub fn new(net: &'static str, batch: u64) -> Self {
        // Darknet's buffers of VGG-16 leave this much of what the paper's takes.
        let workspace = if net == "vgg16" { 1.0e9 } else { 0.0 };
        Self {
            net,
            batch,
            workspace,
            warm: 1,
            counted: 1,
        }
    }

    /// Bytes that the network allocates, in the paper's size.
    pub fn bytes(&self) -> f64 {
        let Some((layers, data)) = layers::of(self.net, self.batch) else {
            return 0.0;
        };
        let of = |l: &Layer| l.kept.iter().chain(&l.deltas).sum::<u64>() + 2 * l.weights;
        (data + layers.iter().map(of).sum::<u64>()) as f64 + self.workspace
    }

    /// The program, or `None` if the zoo does not have the network.
    pub fn program(&self) -> Option<Program> {
        let (layers, data) = layers::of(self.net, self.batch)?;
        let mut p = Program::default();
        let weights = Arena::new(&mut p, &layers);
        let data = p.buffer("data", blocks(data as f64));
        let workspace =
            (self.workspace > 0.0).then(|| p.buffer("workspace", blocks(self.workspace)));
        let mut placed = Vec::new();
        for (layer, weights) in layers.iter().zip(weights.layers) {
            let name = &layer.name;
            let mut take = |what: &str, sizes: &[u64]| -> Vec<BufferId> {
                (sizes.iter().enumerate())
                    .map(|(i, &n)| p.buffer(format!("{name}.{what}{i}"), blocks(n as f64)))
                    .collect()
            };
            let kept = take("kept", &layer.kept);
            let deltas = take("delta", &layer.deltas);
            placed.push(Placed {
                sources: layer.sources.clone(),
                kept,
                deltas,
                weights,
            });
        }
        p.host_write(p.all(weights.buffer));
        let net = Net {
            layers: placed,
            data,
            workspace,
        };
        for batch in 0..self.warm + self.counted {
            if batch == self.warm {
                p.push(Step::Start);
            }
            p.host_write(p.all(data));
            p.push(Step::Prefetch(p.all(data), Place::Gpu));
            net.forward(&mut p);
            net.backward(&mut p);
        }
        p.push(Step::Stop);
        p.host_read(p.all(weights.buffer));
        Some(p)
    }
}

/// Weights and updates, which are small and stay, one layer's after another's.
struct Arena {
    buffer: BufferId,
    layers: Vec<Option<[Span; 2]>>,
}

impl Arena {
    fn new(p: &mut Program, layers: &[Layer]) -> Self {
        let total: u64 = layers.iter().map(|l| l.weights).sum();
        let half = blocks(total as f64);
        let buffer = p.buffer("weights", 2 * half);
        let place = |at: u64| (half as f64 * at as f64 / total.max(1) as f64) as usize;
        let mut at = 0;
        let layers = layers.iter().map(|layer| {
            if layer.weights == 0 {
                return None;
            }
            let first = place(at).min(half - 1);
            at += layer.weights;
            let end = place(at).clamp(first + 1, half);
            let span = |first| Span {
                buffer,
                first,
                blocks: end - (first % half),
            };
            Some([span(first), span(half + first)])
        });
        let layers = layers.collect();
        Self { buffer, layers }
    }
}

struct Net {
    layers: Vec<Placed>,
    data: BufferId,
    workspace: Option<BufferId>,
}

impl Net {
    fn value(&self, source: Source) -> BufferId {
        match source {
            Source::Data => self.data,
            Source::Layer(i) => self.layers[i].kept[0],
        }
    }

    /// A layer's kernel, with scratch that is worthless afterwards.
    fn launch(&self, p: &mut Program, mut uses: Vec<Use>) {
        uses.extend(self.workspace.map(|w| p.all(w).write()));
        p.launch(&uses);
        if let Some(w) = self.workspace {
            p.discard(p.all(w));
        }
    }

    fn forward(&self, p: &mut Program) {
        for layer in &self.layers {
            let mut uses = Vec::new();
            for &source in &layer.sources {
                uses.push(p.all(self.value(source)).read());
            }
            uses.extend(layer.weights.map(|[w, _]| w.read()));
            for &kept in &layer.kept {
                uses.push(p.all(kept).write());
            }
            self.launch(p, uses);
        }
    }

    fn backward(&self, p: &mut Program) {
        let Some(last) = self.layers.last() else {
            return;
        };
        // Which gradients hold something already.
        let mut summed = vec![false; self.layers.len()];
        p.launch(&[p.all(last.kept[0]).read(), p.all(last.deltas[0]).write()]);
        for layer in self.layers.iter().rev() {
            let mut uses = vec![p.all(layer.deltas[0]).read()];
            for &delta in &layer.deltas[1..] {
                uses.push(p.all(delta).write());
            }
            for &kept in &layer.kept {
                uses.push(p.all(kept).read());
            }
            for &source in &layer.sources {
                if layer.weights.is_some() {
                    uses.push(p.all(self.value(source)).read());
                }
                if let Source::Layer(i) = source {
                    let delta = p.all(self.layers[i].deltas[0]);
                    let summed = std::mem::replace(&mut summed[i], true);
                    uses.push(if summed {
                        delta.update()
                    } else {
                        delta.write()
                    });
                }
            }
            for span in layer.weights.into_iter().flatten() {
                uses.push(span.update());
            }
            self.launch(p, uses);
            for &buffer in layer.deltas.iter().chain(&layer.kept) {
                p.discard(p.all(buffer));
            }
        }
        p.discard(p.all(self.data));
    }
}
