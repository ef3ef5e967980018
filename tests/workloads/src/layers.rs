// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The layers of the networks, with the buffers that Darknet gives them.
//!
//! Layers and shapes come from the zoo, which has them from the networks'
//! publications. Darknet allocates for each layer its output and the gradient of
//! that (`delta`), with batch normalisation the convolution's result (`x`), in
//! pooling the places of the maxima, and for all weights as much again for their
//! updates. At the paper's batch sizes this comes to what §7.5 says the networks
//! allocate, within a few per cent (a test of `cases` compares).

use uvmsim_trace::{Kernel, Kind, TensorId, Trace};
use uvmsim_zoo::{Options, Precision, Step};

/// What a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The data of the mini-batch.
    Data,
    /// The output of a layer, by number.
    Layer(usize),
}

/// A layer. Sizes are in bytes, unscaled.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its name in the zoo.
    pub name: String,
    /// The outputs that it reads in forward.
    pub sources: Vec<Source>,
    /// Written by forward and read by backward; the first is the output.
    pub kept: Vec<u64>,
    /// Gradients: the first, of the output, is written by the backward of those who
    /// read it; the others by the layer's own.
    pub deltas: Vec<u64>,
    /// Bytes of all its weights together.
    pub weights: u64,
}

/// The layers of a network of the zoo in order, and the size of a mini-batch's
/// data. `None`: no such network.
pub fn of(net: &str, batch: u64) -> Option<(Vec<Layer>, u64)> {
    let entry = uvmsim_zoo::find(net)?;
    let build = |batch, tokens| {
        entry.build(&Options {
            tokens,
            ..Options::new(batch, Precision::Fp32)
        })
    };
    if net == "rnn" {
        // The second time step is the first with a `self`.
        return Some(recurrent(&build(batch * entry.tokens, Some(2)).trace));
    }
    Some(Reader::read(&build(batch, None)))
}

/// Darknet's RNN goes through all time steps layer by layer, with buffers for all
/// of them: a `step` with a row for each sample and time. Each of its layers is
/// three connected ones, `input`, `self` and `output`, and a state.
fn recurrent(step: &Trace) -> (Vec<Layer>, u64) {
    const PARTS: [&str; 3] = ["output", "input", "self"];
    let of = |name: &str| {
        let found = step.tensors.iter().filter(|t| t.name.starts_with(name));
        found.map(|t| t.bytes).max().unwrap_or(0)
    };
    let mut layers: Vec<Layer> = Vec::new();
    for name in ["rnn0", "rnn1", "rnn2"] {
        let each = |what: &str| PARTS.map(|part| of(&format!("{name}.{part}.{what}")));
        let source = layers
            .len()
            .checked_sub(1)
            .map_or(Source::Data, Source::Layer);
        layers.push(Layer {
            name: name.into(),
            sources: vec![source],
            kept: [
                &each("bn.out")[..],
                &each("gemm.out"),
                &[of(&format!("{name}.state.out"))],
            ]
            .concat(),
            deltas: each("bn.out").to_vec(),
            weights: each("gemm.weight").iter().sum(),
        });
    }
    layers.push(Layer {
        name: "connected".into(),
        sources: vec![Source::Layer(layers.len() - 1)],
        kept: vec![of("connected.out")],
        deltas: vec![of("connected.out")],
        weights: of("connected.weight"),
    });
    (layers, of("characters"))
}

/// Makes layers of a step's forward kernels.
struct Reader<'a> {
    step: &'a Trace,
    layers: Vec<Layer>,
    /// Where the value of a tensor comes from.
    made: Vec<Option<Source>>,
}

impl<'a> Reader<'a> {
    fn read(
        &Step {
            ref trace, phases, ..
        }: &'a Step,
    ) -> (Vec<Layer>, u64) {
        let is_data = |kind: Kind| (kind == Kind::Input).then_some(Source::Data);
        let mut reader = Self {
            step: trace,
            layers: Vec::new(),
            made: trace.tensors.iter().map(|t| is_data(t.kind)).collect(),
        };
        for kernel in &trace.kernels[..phases[0]] {
            reader.kernel(kernel);
        }
        let data = trace.tensors.iter().filter(|t| t.kind == Kind::Input);
        (reader.layers, data.map(|t| t.bytes).sum())
    }

    /// Those of some tensors that are of a kind, with their sizes.
    fn of(&self, ids: &'a [TensorId], kind: Kind) -> impl Iterator<Item = (TensorId, u64)> + 'a {
        let step = self.step;
        (ids.iter())
            .filter(move |&&id| step.tensor(id).kind == kind)
            .map(move |&id| (id, step.tensor(id).bytes))
    }

    fn kernel(&mut self, kernel: &'a Kernel) {
        let mut sources: Vec<Source> = kernel
            .reads
            .iter()
            .filter_map(|&t| self.made[t.index()])
            .collect();
        sources.dedup();
        let weights: u64 = self.of(&kernel.reads, Kind::Weight).map(|(_, n)| n).sum();
        let mut written = self.of(&kernel.writes, Kind::Activation);
        let Some((out, bytes)) = written.next() else {
            return;
        };
        let name = kernel.name.trim_end_matches(".forward");
        // In place in Darknet, or next to nothing.
        let in_place = kernel.reads.contains(&out)
            || name.starts_with("drop")
            || name.starts_with("log_softmax");
        let layer = match sources[..] {
            [Source::Layer(layer)] if in_place => layer,
            // Normalised in the output, after a copy to x, as large as it is.
            [Source::Layer(layer)] if name.ends_with("bn") => {
                self.layers[layer].kept.push(bytes);
                self.layers[layer].weights += weights;
                layer
            }
            _ => {
                let mut kept = vec![bytes];
                // The zoo's indices are of 8 bytes, Darknet's of 4.
                let is_index = |id: TensorId| self.step.tensor(id).name.ends_with(".index");
                kept.extend(written.find(|&(id, _)| is_index(id)).map(|(_, n)| n / 2));
                self.layers.push(Layer {
                    name: name.into(),
                    sources,
                    kept,
                    deltas: vec![bytes],
                    weights,
                });
                self.layers.len() - 1
            }
        };
        self.made[out.index()] = Some(Source::Layer(layer));
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
            let (found, _) = of(net, 1).expect("in the zoo");
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
        let (layers, data) = of("darknet19", 2).expect("in the zoo");
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
