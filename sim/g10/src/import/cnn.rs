// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Convolutional networks: the modules as PyTorch prints them.
//!
//! The text tells the leaves, not how blocks wire them; that is known by the
//! block's type: ResNet's `Bottleneck`, Inception's `InceptionA` to `InceptionE`
//! and SENet's `SENetUnit`. All others run their children in order.

use super::build::mark_inputs;
use uvmsim_trace::Error;
use uvmsim_trace::Trace;

mod layers;
mod steps;

use layers::Graph;
use layers::LayerId;
use layers::Op;

/// A printed module: a leaf has arguments, a block has children.
struct Module {
    name: String,
    class: String,
    args: String,
    children: Vec<Module>,
    line: u32,
}

impl Module {
    fn error(&self, what: &str) -> Error {
        let object = format!("module {} ({})", self.name, self.class);
        Error::new(self.line, object, what)
    }

    fn child(&self, name: &str) -> Result<&Module, Error> {
        let found = self.children.iter().find(|c| c.name == name);
        found.ok_or_else(|| self.error(&format!("it has no child '{name}'")))
    }

    /// Argument number `i`, or the one named `key`; pairs give both values.
    fn arg(&self, i: usize, key: &str) -> Option<[u64; 2]> {
        let mut depth = 0;
        let parts = self.args.split(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            c == ',' && depth == 0
        });
        let parts: Vec<&str> = parts.map(str::trim).collect();
        let named = parts
            .iter()
            .find_map(|p| p.strip_prefix(key)?.strip_prefix('='));
        let value = named.or_else(|| parts.get(i).copied().filter(|p| !p.contains('=')))?;
        // No layer has numbers beyond 16 bits, and products of four stay in 64.
        let number = |v: &str| v.trim().parse::<u16>().ok().map(u64::from);
        let mut numbers = value.trim_matches(['(', ')']).split(',').map(number);
        let first = numbers.next()??;
        Some([first, numbers.next().flatten().unwrap_or(first)])
    }

    fn need(&self, i: usize, key: &str) -> Result<[u64; 2], Error> {
        self.arg(i, key)
            .ok_or_else(|| self.error(&format!("it has no number '{key}'")))
    }

    fn flag(&self, key: &str) -> bool {
        self.args.contains(&format!("{key}=True"))
    }
}

pub(super) fn build(text: &str, side: u64, batch: u64) -> Result<Trace, Error> {
    let root = parse(text)?;
    let mut g = Graph::new(batch);
    block(&mut g, &root, None, side)?;
    let mut t = steps::trace(&mut g);
    mark_inputs(&mut t);
    Ok(t)
}

fn parse(text: &str) -> Result<Module, Error> {
    let mut open: Vec<Module> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let fail = |what: &str| Error::new(number, "", what);
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if line == ")" {
            let done = open
                .pop()
                .ok_or_else(|| fail("a block is closed that was not opened"))?;
            match open.last_mut() {
                Some(parent) => parent.children.push(done),
                None => return Ok(done),
            }
            continue;
        }
        let (name, rest) = match line.strip_prefix('(').and_then(|l| l.split_once("): ")) {
            Some(found) => found,
            None if open.is_empty() => ("", line),
            None => return Err(fail("expected '(name): Type(...)'")),
        };
        let (class, args) = rest
            .split_once('(')
            .ok_or_else(|| fail("expected '(name): Type(...)'"))?;
        let mut module = Module {
            name: name.into(),
            class: class.into(),
            args: String::new(),
            children: Vec::new(),
            line: number,
        };
        if args.is_empty() {
            open.push(module);
            continue;
        }
        let args = args
            .strip_suffix(')')
            .ok_or_else(|| fail("the module's ')' is missing"))?;
        module.args = args.into();
        match open.last_mut() {
            Some(parent) => parent.children.push(module),
            None => return Err(fail("a layer outside of the network")),
        }
    }
    Err(Error::new(0, "", "the network's last ')' is missing"))
}

/// Inception's blocks but the last: the chains of children that begin at the block's input, and
/// whether a convolution follows the pool beside them.
const INCEPTION: [(&str, &[&str], bool); 4] = [
    (
        "InceptionA",
        &[
            "branch1x1",
            "branch5x5_1 branch5x5_2",
            "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
        ],
        true,
    ),
    (
        "InceptionB",
        &["branch3x3", "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3"],
        false,
    ),
    (
        "InceptionC",
        &[
            "branch1x1",
            "branch7x7_1 branch7x7_2 branch7x7_3",
            "branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 branch7x7dbl_5",
        ],
        true,
    ),
    (
        "InceptionD",
        &[
            "branch3x3_1 branch3x3_2",
            "branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4",
        ],
        false,
    ),
];

/// Inception's pool of nine pixels with the convolution behind it.
fn projected_pool(g: &mut Graph, m: &Module, x: LayerId) -> Result<LayerId, Error> {
    let pool = g.add(Op::MaxPool([3, 1, 1]), &[x]);
    block(g, m.child("branch_pool")?, Some(pool), 0)
}

/// Adds module `m` behind layer `input` and returns its last layer. `None` is the
/// network's input, an image `side` pixels wide and high.
fn block(g: &mut Graph, m: &Module, input: Option<LayerId>, side: u64) -> Result<LayerId, Error> {
    if m.children.is_empty() {
        return leaf(g, m, input, side);
    }
    let inception = INCEPTION.iter().find(|i| i.0 == m.class);
    if let (Some(&(_, branches, projects)), Some(x)) = (inception, input) {
        let mut tails = tails(g, m, x, branches)?;
        tails.push(if projects {
            projected_pool(g, m, x)?
        } else {
            g.add(Op::MaxPool([3, 2, 0]), &[x])
        });
        return Ok(g.add(Op::Concat, &tails));
    }
    match (m.class.as_str(), input) {
        ("Bottleneck", Some(x)) => bottleneck(g, m, x),
        ("SENetUnit", Some(x)) => senet_unit(g, m, x),
        ("InceptionE", Some(x)) => inception_e(g, m, x),
        _ => {
            let mut last = input;
            for c in &m.children {
                last = Some(block(g, c, last, side)?);
            }
            last.ok_or_else(|| m.error("it is empty"))
        }
    }
}

/// Several chains of children, all from `x`; returns their last layers.
fn tails(g: &mut Graph, m: &Module, x: LayerId, branches: &[&str]) -> Result<Vec<LayerId>, Error> {
    let chain = |names: &&str| {
        let mut names = names.split_whitespace();
        names.try_fold(x, |last, name| block(g, m.child(name)?, Some(last), 0))
    };
    branches.iter().map(chain).collect()
}

fn inception_e(g: &mut Graph, m: &Module, x: LayerId) -> Result<LayerId, Error> {
    let first = block(g, m.child("branch1x1")?, Some(x), 0)?;
    let b = tails(g, m, x, &["branch3x3_1"])?[0];
    let split = tails(g, m, b, &["branch3x3_2a", "branch3x3_2b"])?;
    let c0 = g.add(Op::Concat, &split);
    let b = tails(g, m, x, &["branch3x3dbl_1 branch3x3dbl_2"])?[0];
    let split = tails(g, m, b, &["branch3x3dbl_3a", "branch3x3dbl_3b"])?;
    let c1 = g.add(Op::Concat, &split);
    let last = projected_pool(g, m, x)?;
    Ok(g.add(Op::Concat, &[first, c0, c1, last]))
}

/// The artifact's ResNet block: one ReLU, before the addition.
fn bottleneck(g: &mut Graph, m: &Module, x: LayerId) -> Result<LayerId, Error> {
    let mut last = x;
    let mut shortcut = None;
    for c in &m.children {
        if c.name == "downsample" {
            shortcut = Some(block(g, c, Some(x), 0)?);
        } else {
            last = block(g, c, Some(last), 0)?;
        }
    }
    Ok(match shortcut {
        Some(s) => g.add(Op::Add, &[last, s]),
        None => g.add(Op::Add, &[x, last]),
    })
}

/// SENet's unit. The artifact's Scale has one input, the squeezed map, and takes
/// its height and width from the shortcut.
fn senet_unit(g: &mut Graph, m: &Module, x: LayerId) -> Result<LayerId, Error> {
    let body = block(g, m.child("body")?, Some(x), 0)?;
    let gate = block(g, m.child("se")?, Some(body), 0)?;
    let scale = g.add(Op::Scale, &[gate]);
    let shortcut = match m.children.iter().find(|c| c.name == "identity_conv") {
        Some(c) => block(g, c, Some(x), 0)?,
        None => x,
    };
    g.set_scale_like(scale, shortcut);
    let sum = g.add(Op::Add, &[scale, shortcut]);
    block(g, m.child("activ")?, Some(sum), 0)
}

fn leaf(g: &mut Graph, m: &Module, input: Option<LayerId>, side: u64) -> Result<LayerId, Error> {
    let op = match m.class.as_str() {
        "Conv2d" => {
            let channels = [m.need(0, "in_channels")?[0], m.need(1, "out_channels")?[0]];
            let (size, stride) = (m.need(2, "kernel_size")?, m.need(3, "stride")?);
            let pad = m.arg(4, "padding").unwrap_or([0, 0]);
            Op::Conv(channels, [0, 1].map(|i| [size[i], stride[i], pad[i]]))
        }
        "BatchNorm2d" => Op::BatchNorm(m.flag("track_running_stats")),
        "ReLU" => Op::Relu(m.flag("inplace")),
        "Dropout" => Op::Dropout(m.flag("inplace")),
        "MaxPool2d" => {
            let (size, stride) = (m.need(0, "kernel_size")?, m.need(1, "stride")?);
            let pad = m.arg(2, "padding").unwrap_or([0, 0]);
            Op::MaxPool([size[0], stride[0], pad[0]])
        }
        "AdaptiveAvgPool2d" => Op::AvgPool(m.need(0, "output_size")?),
        "Linear" => {
            let features = [m.need(0, "in_features")?[0], m.need(1, "out_features")?[0]];
            Op::Linear(features, m.flag("bias"))
        }
        _ => return Err(m.error("no layer of this type is known")),
    };
    match (input, op) {
        (Some(x), op) => {
            g.check(&op, x).map_err(|what| m.error(&what))?;
            Ok(g.add(op, &[x]))
        }
        (None, op @ Op::Conv([cin, _], _)) => {
            g.check_size(&op, [cin, side, side])
                .map_err(|what| m.error(&what))?;
            Ok(g.add_first(op, [cin, side, side]))
        }
        (None, _) => Err(m.error("the first layer must be a Conv2d")),
    }
}
