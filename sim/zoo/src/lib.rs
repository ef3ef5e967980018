// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Training steps of well-known networks, built from shapes alone.
//!
//! [`NETS`] lists the networks that the papers train; [`Entry::build`] makes a
//! step of one: kernels in order, with the tensors that each reads and writes,
//! their sizes, and what each kernel computes and moves. No data, no framework.
//! A [roofline] of a GPU gives the durations.

mod cnn;
pub mod net;
mod ops;
pub mod roofline;
mod seq;

pub use net::Optimizer;
pub use net::Precision;
pub use net::Step;

use net::Net;
use seq::Transformer;
use uvmsim_machine::Machine;
use uvmsim_trace::Trace;

/// What may be chosen of a step.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Samples in the step; at least 1.
    pub batch: u64,
    /// Tokens or time steps in a sample; `None`: the network's own.
    pub tokens: Option<u64>,
    /// Number format.
    pub precision: Precision,
    /// Optimizer; `None`: the network's own.
    pub optimizer: Option<Optimizer>,
}

/// A network of the zoo.
pub struct Entry {
    /// What `uvmsim zoo` calls it.
    pub name: &'static str,
    /// What it is and where from.
    pub about: &'static str,
    /// A batch size to start from.
    pub batch: u64,
    /// Tokens or time steps in a sample; 0: no such thing.
    pub tokens: u64,
    /// Published number of learned parameters.
    pub parameters: u64,
    /// What it is trained with.
    pub optimizer: Optimizer,
    build: fn(&mut Net, u64) -> Vec<net::Val>,
}

/// The most samples, and tokens in a sample, that a step may have.
pub const LARGEST: u64 = 1 << 24;

impl Entry {
    /// A training step. `options.batch` and tokens are taken within 1 and
    /// [`LARGEST`].
    pub fn build(&self, options: &Options) -> Step {
        let optimizer = options.optimizer.unwrap_or(self.optimizer);
        let tokens = options.tokens.unwrap_or(self.tokens).clamp(1, LARGEST);
        let mut net = Net::new(
            self.name,
            options.batch.clamp(1, LARGEST),
            options.precision,
        );
        if self.name == "dcgan" {
            return dcgan(net, optimizer);
        }
        let losses = (self.build)(&mut net, tokens);
        net.train(&losses, optimizer)
    }

    /// A training step as a trace, with durations from `machine`'s roofline.
    pub fn trace(&self, options: &Options, machine: &Machine) -> Trace {
        self.build(options).trace(machine, options.precision)
    }
}

/// Finds a network by name.
pub fn find(name: &str) -> Option<&'static Entry> {
    NETS.iter().find(|e| e.name == name)
}

/// One step of each of DCGAN's networks, as PyTorch's example takes them: the
/// discriminator learns from real and from generated images, then the generator
/// from the discriminator.
fn dcgan(mut n: Net, optimizer: Optimizer) -> Step {
    let batch = n.batch();
    let real = n.input("images", [batch, 3, 64, 64], 4);
    let loss = cnn::dcgan_discriminator(&mut n, real);
    n.backward(&[loss]);
    let fake = cnn::dcgan_generator(&mut n);
    let held = n.detach(fake);
    let loss = cnn::dcgan_discriminator(&mut n, held);
    n.backward(&[loss]);
    n.update("netD", optimizer);
    let loss = cnn::dcgan_discriminator(&mut n, fake);
    n.backward(&[loss]);
    n.update("netG", optimizer);
    n.finish()
}

const BERT_BASE: Transformer = Transformer {
    layers: 12,
    hidden: 768,
    heads: 12,
    feed: 3072,
    tokens: 0,
    pre_norm: false,
    relu: false,
    dropout: true,
};
const BERT_LARGE: Transformer = Transformer {
    layers: 24,
    hidden: 1024,
    heads: 16,
    feed: 4096,
    ..BERT_BASE
};
const GPT2_L: Transformer = Transformer {
    layers: 36,
    hidden: 1280,
    heads: 20,
    feed: 5120,
    pre_norm: true,
    ..BERT_BASE
};
const GPT2_XL: Transformer = Transformer {
    layers: 48,
    hidden: 1600,
    heads: 25,
    feed: 6400,
    ..GPT2_L
};
const OPT: Transformer = Transformer {
    layers: 24,
    hidden: 2048,
    heads: 32,
    feed: 8192,
    relu: true,
    ..GPT2_L
};
const VIT: Transformer = Transformer {
    pre_norm: true,
    dropout: false,
    ..BERT_BASE
};

macro_rules! entry {
    ($name:literal, $about:literal, $batch:literal, $tokens:literal, $parameters:literal, $optimizer:ident, $build:expr) => {
        Entry {
            name: $name,
            about: $about,
            batch: $batch,
            tokens: $tokens,
            parameters: $parameters,
            optimizer: Optimizer::$optimizer,
            build: $build,
        }
    };
}

/// Every network of the zoo. Parameter counts are those that torchvision, timm,
/// Hugging Face, PyTorch's examples and the papers publish.
pub const NETS: &[Entry] = &[
    entry!(
        "alexnet",
        "AlexNet, torchvision",
        2048,
        0,
        61_100_840,
        Momentum,
        |n, _| vec![cnn::alexnet(n)]
    ),
    entry!(
        "vgg16",
        "VGG-16, torchvision",
        128,
        0,
        138_357_544,
        Momentum,
        |n, _| vec![cnn::vgg(n, [2, 2, 3, 3, 3])]
    ),
    entry!(
        "vgg19",
        "VGG-19, torchvision",
        128,
        0,
        143_667_240,
        Momentum,
        |n, _| vec![cnn::vgg(n, [2, 2, 4, 4, 4])]
    ),
    entry!(
        "resnet50",
        "ResNet-50, torchvision",
        256,
        0,
        25_557_032,
        Momentum,
        |n, _| vec![cnn::resnet(n, [3, 4, 6, 3])]
    ),
    entry!(
        "resnet152",
        "ResNet-152, torchvision",
        256,
        0,
        60_192_808,
        Momentum,
        |n, _| vec![cnn::resnet(n, [3, 8, 36, 3])]
    ),
    entry!(
        "resnet200",
        "ResNet-200, timm",
        256,
        0,
        64_673_832,
        Momentum,
        |n, _| vec![cnn::resnet(n, [3, 24, 36, 3])]
    ),
    entry!(
        "darknet19",
        "Darknet-19, YOLO9000",
        256,
        0,
        20_842_376,
        Momentum,
        |n, _| vec![cnn::darknet19(n)]
    ),
    entry!(
        "darknet53",
        "Darknet-53, YOLOv3 (UvmDiscard's ResNet-53)",
        128,
        0,
        41_609_928,
        Momentum,
        |n, _| { vec![cnn::darknet53(n)] }
    ),
    entry!(
        "rnn",
        "Darknet's character RNN",
        150,
        576,
        8_931_584,
        Momentum,
        |n, t| seq::rnn(n, t)
    ),
    entry!(
        "inceptionv3",
        "Inception v3 without auxiliary head, timm",
        512,
        0,
        23_834_568,
        Momentum,
        |n, _| { vec![cnn::inception_v3(n)] }
    ),
    entry!(
        "senet154",
        "SENet-154, timm",
        256,
        0,
        115_088_984,
        Momentum,
        |n, _| vec![cnn::senet154(n)]
    ),
    entry!(
        "mobilenet",
        "MobileNet 1.0 224",
        1024,
        0,
        4_231_976,
        Momentum,
        |n, _| vec![cnn::mobilenet(n)]
    ),
    entry!(
        "dcgan",
        "DCGAN 64 x 64, PyTorch examples",
        4096,
        0,
        6_342_272,
        Adam,
        |n, _| { vec![cnn::dcgan_generator(n)] }
    ),
    entry!(
        "bert-base",
        "BERT base, masked LM, Hugging Face",
        32,
        512,
        109_514_298,
        Adam,
        |n, t| vec![seq::bert(
            n,
            Transformer {
                tokens: t,
                ..BERT_BASE
            }
        )]
    ),
    entry!(
        "bert-large",
        "BERT large, masked LM, Hugging Face",
        16,
        512,
        335_174_458,
        Adam,
        |n, t| vec![seq::bert(
            n,
            Transformer {
                tokens: t,
                ..BERT_LARGE
            }
        )]
    ),
    entry!(
        "gpt2-l",
        "GPT-2 large, Hugging Face",
        4,
        1024,
        774_030_080,
        Adam,
        |n, t| vec![seq::decoder(
            n,
            Transformer {
                tokens: t,
                ..GPT2_L
            },
            50_257,
            1024
        )]
    ),
    entry!(
        "gpt2-xl",
        "GPT-2 XL, Hugging Face",
        4,
        1024,
        1_557_611_200,
        Adam,
        |n, t| vec![seq::decoder(
            n,
            Transformer {
                tokens: t,
                ..GPT2_XL
            },
            50_257,
            1024
        )]
    ),
    entry!(
        "opt-1.3b",
        "OPT-1.3B, Hugging Face",
        8,
        2048,
        1_315_758_080,
        Adam,
        |n, t| vec![seq::decoder(
            n,
            Transformer { tokens: t, ..OPT },
            50_272,
            2050
        )]
    ),
    entry!(
        "vit-base",
        "ViT-B/16, torchvision",
        256,
        197,
        86_567_656,
        Adam,
        |n, _| vec![seq::vit(n, Transformer { tokens: 197, ..VIT })]
    ),
    entry!(
        "dlrm",
        "DLRM, Criteo Kaggle, 16-wide",
        131072,
        0,
        540_677_217,
        Sgd,
        |n, _| vec![seq::dlrm(n, 16)]
    ),
];

#[cfg(test)]
mod tests;
