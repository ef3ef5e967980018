// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Training as the paper's listing 6 does it, with Darknet's buffers.
//!
//! Layers and their shapes come from the zoo, which has them from the networks'
//! publications. Darknet allocates for each layer its output and the gradient of
//! that (`delta`), with batch normalisation the convolution's result (`x`), in
//! pooling the places of the maxima, and for all weights as much again for their
//! updates. At the paper's batch sizes this comes to what §7.5 says the networks
//! allocate, within a few per cent (`cells` compares).
//!
//! Each mini-batch runs forward and backward through the layers, prefetching what
//! a layer uses. What backward is done with is discarded, as is the workspace
//! after each layer, and the input at the end.

use uvmsim_trace::Kind;
use uvmsim_zoo::net::Tensor;
use uvmsim_zoo::{Options, Precision, Step as ZooStep};

use crate::program::{BufferId, Place, Program, Span, Step, Use};
use crate::scale::blocks;

/// One network at one batch size.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// Name in the zoo.
    pub net: &'static str,
    /// Images, or texts.
    pub batch: u64,
    /// Bytes of the workspace that cuDNN is given, in the paper's size.
    pub workspace: f64,
    /// Mini-batches before traffic counts.
    pub warm: usize,
    /// Mini-batches for which it counts.
    pub counted: usize,
}

/// What a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Data,
    Layer(usize),
}

/// A layer of Darknet's, with sizes in the paper's bytes.
#[derive(Clone, Debug)]
struct Layer {
    name: String,
    sources: Vec<Source>,
    /// Written by forward and read by backward; the first is the output.
    kept: Vec<u64>,
    /// Gradients: the first of the output, by the next layer; the others by
    /// backward itself.
    deltas: Vec<u64>,
    weights: u64,
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

    fn step(&self, batch: u64, tokens: Option<u64>) -> Option<ZooStep> {
        let options = Options {
            batch,
            tokens,
            precision: Precision::Fp32,
            optimizer: None,
        };
        Some(uvmsim_zoo::find(self.net)?.build(&options))
    }

    /// The layers, and the bytes of a mini-batch's data.
    fn layers(&self) -> Option<(Vec<Layer>, u64)> {
        if self.net == "rnn" {
            return self.recurrent();
        }
        Some(feed_forward(&self.step(self.batch, None)?))
    }

    /// Darknet's RNN goes through all time steps layer by layer, with buffers for
    /// all of them. Each of its layers is three connected ones, `input`, `self` and
    /// `output`, with the state between them.
    fn recurrent(&self) -> Option<(Vec<Layer>, u64)> {
        let steps = uvmsim_zoo::find(self.net)?.tokens;
        let rows = self.batch * steps;
        // The second time step is the first with a `self`.
        let step = self.step(rows, Some(2))?;
        let of = |name: &str| {
            let found = step.tensors.iter().filter(|t| t.name.starts_with(name));
            found.map(|t| t.bytes).max().unwrap_or(0)
        };
        let mut layers = Vec::new();
        for i in 0..3 {
            let part = |part: &str, what: &str| of(&format!("rnn{i}.{part}.{what}"));
            let out = part("output", "bn.out");
            let mut kept = vec![out];
            let mut deltas = vec![out];
            for name in ["input", "self"] {
                kept.push(part(name, "bn.out"));
                deltas.push(part(name, "bn.out"));
            }
            for name in ["input", "self", "output"] {
                kept.push(part(name, "gemm.out"));
            }
            kept.push(of(&format!("rnn{i}.state.out")));
            layers.push(Layer {
                name: format!("rnn{i}"),
                sources: vec![if i == 0 {
                    Source::Data
                } else {
                    Source::Layer(i - 1)
                }],
                kept,
                deltas,
                weights: ["input", "self", "output"]
                    .iter()
                    .map(|name| part(name, "gemm.weight"))
                    .sum(),
            });
        }
        layers.push(Layer {
            name: "connected".into(),
            sources: vec![Source::Layer(2)],
            kept: vec![of("connected.out")],
            deltas: vec![of("connected.out")],
            weights: of("connected.weight"),
        });
        Some((layers, of("characters")))
    }

    /// Bytes that the network allocates, in the paper's size.
    pub fn bytes(&self) -> f64 {
        let Some((layers, data)) = self.layers() else {
            return 0.0;
        };
        let of = |l: &Layer| l.kept.iter().chain(&l.deltas).sum::<u64>() + 2 * l.weights;
        (data + layers.iter().map(of).sum::<u64>()) as f64 + self.workspace
    }

    /// The program, or `None` if the zoo does not have the network.
    pub fn program(&self) -> Option<Program> {
        let (layers, data) = self.layers()?;
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

/// The layers of a step whose values flow forward only.
fn feed_forward(step: &ZooStep) -> (Vec<Layer>, u64) {
    let mut layers: Vec<Layer> = Vec::new();
    let mut data = 0;
    // Where the value of a tensor comes from.
    let mut made = vec![None; step.tensors.len()];
    for (id, tensor) in step.tensors.iter().enumerate() {
        if tensor.kind == Kind::Input {
            made[id] = Some(Source::Data);
            data += tensor.bytes;
        }
    }
    let of = |ids: &[usize], kind: Kind| -> Vec<(usize, Tensor)> {
        (ids.iter().map(|&id| (id, step.tensors[id].clone())))
            .filter(|(_, t)| t.kind == kind)
            .collect()
    };
    for kernel in &step.kernels[..step.phases[0]] {
        let mut sources: Vec<Source> = kernel.reads.iter().filter_map(|&t| made[t]).collect();
        sources.dedup();
        let weights: u64 = of(&kernel.reads, Kind::Weight)
            .iter()
            .map(|(_, t)| t.bytes)
            .sum();
        let written = of(&kernel.writes, Kind::Activation);
        let Some((out, out_bytes)) = written.first().map(|(id, t)| (*id, t.bytes)) else {
            continue;
        };
        let name = kernel.name.trim_end_matches(".forward");
        let alone = match sources[..] {
            [Source::Layer(only)] => Some(only),
            _ => None,
        };
        // In place in Darknet, or next to nothing.
        let in_place = kernel.reads.contains(&out)
            || ["drop", "log_softmax"].iter().any(|n| name.starts_with(n));
        match alone {
            Some(layer) if in_place => made[out] = Some(Source::Layer(layer)),
            // Normalised in the output, after a copy to x, as large as it is.
            Some(layer) if name.ends_with("bn") => {
                layers[layer].kept.push(out_bytes);
                layers[layer].weights += weights;
                made[out] = Some(Source::Layer(layer));
            }
            _ => {
                let mut kept = vec![out_bytes];
                // The zoo's indices are of 8 bytes, Darknet's of 4.
                let index = written.iter().find(|(_, t)| t.name.ends_with(".index"));
                kept.extend(index.map(|(_, t)| t.bytes / 2));
                made[out] = Some(Source::Layer(layers.len()));
                layers.push(Layer {
                    name: name.into(),
                    sources,
                    kept,
                    deltas: vec![out_bytes],
                    weights,
                });
            }
        }
    }
    (layers, data)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_those_of_the_networks() {
        // Convolutions, connected layers, pools, shortcuts, and the loss.
        for (net, layers) in [
            ("vgg16", 13 + 3 + 5 + 1),
            ("darknet19", 19 + 5 + 1 + 1),
            ("darknet53", 52 + 1 + 1 + 23 + 1),
            ("rnn", 3 + 1),
        ] {
            let (found, _) = Training::new(net, 1).layers().expect("in the zoo");
            assert_eq!(found.len(), layers, "{net}");
            let parameters = uvmsim_zoo::find(net).map_or(0, |e| e.parameters);
            let weights: u64 = found.iter().map(|l| l.weights).sum();
            let off = weights as f64 / 4.0 / parameters as f64 - 1.0;
            // The zoo counts no running means, which are weights here.
            assert!(off.abs() < 0.01, "{net}: {off:+.4} of {parameters}");
        }
    }

    #[test]
    fn normalised_layers_keep_what_they_normalise() {
        let (layers, data) = Training::new("darknet19", 2).layers().expect("in the zoo");
        let first = 2 * 32 * 224 * 224 * 4;
        assert_eq!(data, 2 * 3 * 224 * 224 * 4 + 2 * 8);
        assert_eq!(
            (&layers[0].kept[..], &layers[0].deltas[..]),
            (&[first; 2][..], &[first][..])
        );
        // A pool keeps 4 bytes for each of its maxima.
        assert_eq!(layers[1].kept, [first / 4; 2]);
        assert_eq!(layers[1].sources, [Source::Layer(0)]);
    }
}
