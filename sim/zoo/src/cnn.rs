// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The convolutional networks of the zoo.

use crate::net::Net;
use crate::net::Val;
use crate::ops::Conv;

/// Images of `side` × `side` in three colours.
fn images(n: &mut Net, side: u64) -> Val {
    let batch = n.batch;
    n.input("images", [batch, 3, side, side], 4)
}

/// `[batch, c, h, w]` as `[batch, c·h·w]`.
fn flatten(n: &mut Net, x: Val) -> Val {
    n.view(x, [x.shape[0], x.shape[1] * x.shape[2] * x.shape[3], 1, 1])
}

/// Global average pooling and a classifier, with or without dropout.
fn classify(n: &mut Net, x: Val, dropout: bool) -> Val {
    let mut x = n.avg_pool_to("avgpool", x, 1);
    if dropout {
        x = n.dropout("dropout", x);
    }
    let x = flatten(n, x);
    let x = n.linear("fc", x, 1000, true);
    n.cross_entropy(x)
}

/// Convolution, batch normalisation, ReLU.
fn conv_bn_relu(n: &mut Net, name: &str, x: Val, c: Conv) -> Val {
    n.scope(name, |n| {
        let x = n.conv("conv", x, c);
        let x = n.batch_norm("bn", x);
        n.relu("relu", x)
    })
}

/// AlexNet as torchvision has it (Krizhevsky, 2014: one weird trick).
pub fn alexnet(n: &mut Net) -> Val {
    let x = images(n, 224);
    let layers = [
        (Conv::new(64, 11).stride(4).pad(2), true),
        (Conv::new(192, 5), true),
        (Conv::new(384, 3), false),
        (Conv::new(256, 3), false),
        (Conv::new(256, 3), true),
    ];
    let mut x = x;
    for (i, (c, pool)) in layers.into_iter().enumerate() {
        x = n.conv(&format!("conv{}", i + 1), x, c.bias());
        x = n.relu(&format!("relu{}", i + 1), x);
        if pool {
            x = n.max_pool(&format!("pool{}", i + 1), x, 3, 2, 0, false);
        }
    }
    x = flatten(n, x);
    x = n.dropout("drop6", x);
    x = n.linear("fc6", x, 4096, true);
    x = n.relu("relu6", x);
    x = n.dropout("drop7", x);
    x = n.linear("fc7", x, 4096, true);
    x = n.relu("relu7", x);
    x = n.linear("fc8", x, 1000, true);
    n.cross_entropy(x)
}

/// VGG with `blocks` convolutions in each stage (Simonyan, Zisserman, 2015).
pub fn vgg(n: &mut Net, blocks: [u64; 5]) -> Val {
    let mut x = images(n, 224);
    for (stage, (count, width)) in blocks.into_iter().zip([64, 128, 256, 512, 512]).enumerate() {
        for i in 1..=count {
            let c = Conv::new(width, 3).bias();
            x = n.conv(&format!("conv{}_{i}", stage + 1), x, c);
            x = n.relu(&format!("relu{}_{i}", stage + 1), x);
        }
        x = n.max_pool(&format!("pool{}", stage + 1), x, 2, 2, 0, false);
    }
    x = flatten(n, x);
    for i in 6..=7 {
        x = n.linear(&format!("fc{i}"), x, 4096, true);
        x = n.relu(&format!("relu{i}"), x);
        x = n.dropout(&format!("drop{i}"), x);
    }
    x = n.linear("fc8", x, 1000, true);
    n.cross_entropy(x)
}

/// ResNet of bottlenecks, stride in the 3 × 3 (He et al., 2016; torchvision).
pub fn resnet(n: &mut Net, blocks: [u64; 4]) -> Val {
    let x = images(n, 224);
    let mut x = conv_bn_relu(n, "stem", x, Conv::new(64, 7).stride(2));
    x = n.max_pool("maxpool", x, 3, 2, 1, false);
    x = stages(n, x, blocks, bottleneck);
    classify(n, x, false)
}

/// A block of a residual network: of a width, with a stride.
type Block = fn(&mut Net, Val, u64, u64) -> Val;

/// Four stages of so many blocks each; all but the first halve the sides.
fn stages(n: &mut Net, mut x: Val, blocks: [u64; 4], block: Block) -> Val {
    for (stage, count) in blocks.into_iter().enumerate() {
        for i in 0..count {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            let name = format!("layer{}.{i}", stage + 1);
            x = n.part(&name, |n| block(n, x, 64 << stage, stride));
        }
    }
    x
}

fn bottleneck(n: &mut Net, x: Val, width: u64, stride: u64) -> Val {
    let y = conv_bn_relu(n, "1", x, Conv::new(width, 1));
    let y = conv_bn_relu(n, "2", y, Conv::new(width, 3).stride(stride));
    let y = n.conv("conv3", y, Conv::new(4 * width, 1));
    let y = n.batch_norm("bn3", y);
    let short = shortcut(n, x, Conv::new(4 * width, 1).stride(stride));
    let y = n.add_in_place("add", y, short);
    n.relu("relu", y)
}

/// `x`, by way of a convolution where that has other channels.
fn shortcut(n: &mut Net, x: Val, c: Conv) -> Val {
    if x.shape[1] == c.out {
        return x;
    }
    let s = n.conv("downsample.conv", x, c);
    n.batch_norm("downsample.bn", s)
}

/// Darknet-19 (Redmon, Farhadi, 2017: YOLO9000, table 6).
pub fn darknet19(n: &mut Net) -> Val {
    let mut x = images(n, 224);
    let mut layer = 0;
    let mut conv = |n: &mut Net, x: Val, out: u64, kernel: u64| {
        layer += 1;
        conv_bn_relu(n, &format!("{layer}"), x, Conv::new(out, kernel))
    };
    for (i, width) in [32, 64, 128, 256, 512, 1024].into_iter().enumerate() {
        x = conv(n, x, width, 3);
        for _ in 0..[0, 0, 1, 1, 2, 2][i] {
            x = conv(n, x, width / 2, 1);
            x = conv(n, x, width, 3);
        }
        if i < 5 {
            x = n.max_pool(&format!("pool{}", i + 1), x, 2, 2, 0, false);
        }
    }
    x = n.conv("19", x, Conv::new(1000, 1).bias());
    x = n.avg_pool_to("avgpool", x, 1);
    x = flatten(n, x);
    n.cross_entropy(x)
}

/// Darknet-53 (Redmon, Farhadi, 2018: YOLOv3, table 1).
pub fn darknet53(n: &mut Net) -> Val {
    let mut x = images(n, 256);
    x = conv_bn_relu(n, "0", x, Conv::new(32, 3));
    for (stage, count) in [1, 2, 8, 8, 4].into_iter().enumerate() {
        let width = 64 << stage;
        x = n.scope(&format!("stage{}", stage + 1), |n| {
            let mut x = conv_bn_relu(n, "down", x, Conv::new(width, 3).stride(2));
            for i in 0..count {
                x = n.part(&format!("{i}"), |n| {
                    let y = conv_bn_relu(n, "1", x, Conv::new(width / 2, 1));
                    let y = conv_bn_relu(n, "2", y, Conv::new(width, 3));
                    n.add("add", x, y)
                });
            }
            x
        });
    }
    classify(n, x, false)
}

/// MobileNet (Howard et al., 2017, table 1). `layers`: their channels and strides.
pub fn mobilenet(n: &mut Net, layers: &[(u64, u64)]) -> Val {
    let x = images(n, 224);
    let mut x = conv_bn_relu(n, "0", x, Conv::new(32, 3).stride(2));
    for (i, &(out, stride)) in layers.iter().enumerate() {
        let c = x.shape[1];
        let depthwise = Conv::new(c, 3).stride(stride).groups(c);
        x = conv_bn_relu(n, &format!("{}.dw", i + 1), x, depthwise);
        x = conv_bn_relu(n, &format!("{}.pw", i + 1), x, Conv::new(out, 1));
    }
    classify(n, x, false)
}

/// Inception v3 without its auxiliary classifier (Szegedy et al., 2016;
/// torchvision).
pub fn inception_v3(n: &mut Net) -> Val {
    let c = conv_bn_relu;
    let x = images(n, 299);
    let x = c(n, "1a", x, Conv::new(32, 3).stride(2).pad(0));
    let x = c(n, "2a", x, Conv::new(32, 3).pad(0));
    let x = c(n, "2b", x, Conv::new(64, 3));
    let x = n.max_pool("pool1", x, 3, 2, 0, false);
    let x = c(n, "3b", x, Conv::new(80, 1));
    let x = c(n, "4a", x, Conv::new(192, 3).pad(0));
    let mut x = n.max_pool("pool2", x, 3, 2, 0, false);
    for (name, pool) in [("5b", 32), ("5c", 64), ("5d", 64)] {
        x = n.part(name, |n| inception_a(n, x, pool));
    }
    x = n.scope("6a", |n| {
        let a = c(n, "3x3", x, Conv::new(384, 3).stride(2).pad(0));
        let b = c(n, "dbl1", x, Conv::new(64, 1));
        let b = c(n, "dbl2", b, Conv::new(96, 3));
        let b = c(n, "dbl3", b, Conv::new(96, 3).stride(2).pad(0));
        let p = n.max_pool("pool", x, 3, 2, 0, false);
        n.concat("cat", &[a, b, p])
    });
    for (name, width) in [("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)] {
        x = n.part(name, |n| inception_c(n, x, width));
    }
    x = n.scope("7a", |n| {
        let a = c(n, "3x3_1", x, Conv::new(192, 1));
        let a = c(n, "3x3_2", a, Conv::new(320, 3).stride(2).pad(0));
        let b = c(n, "7x7_1", x, Conv::new(192, 1));
        let b = c(n, "7x7_2", b, Conv::new(192, 1).rect(1, 7));
        let b = c(n, "7x7_3", b, Conv::new(192, 1).rect(7, 1));
        let b = c(n, "7x7_4", b, Conv::new(192, 3).stride(2).pad(0));
        let p = n.max_pool("pool", x, 3, 2, 0, false);
        n.concat("cat", &[a, b, p])
    });
    for name in ["7b", "7c"] {
        x = n.part(name, |n| inception_e(n, x));
    }
    classify(n, x, true)
}

fn inception_a(n: &mut Net, x: Val, pool: u64) -> Val {
    let c = conv_bn_relu;
    let a = c(n, "1x1", x, Conv::new(64, 1));
    let b = c(n, "5x5_1", x, Conv::new(48, 1));
    let b = c(n, "5x5_2", b, Conv::new(64, 5));
    let d = c(n, "dbl1", x, Conv::new(64, 1));
    let d = c(n, "dbl2", d, Conv::new(96, 3));
    let d = c(n, "dbl3", d, Conv::new(96, 3));
    let p = n.avg_pool_same("avg", x);
    let p = c(n, "pool", p, Conv::new(pool, 1));
    n.concat("cat", &[a, b, d, p])
}

fn inception_c(n: &mut Net, x: Val, width: u64) -> Val {
    let c = conv_bn_relu;
    let a = c(n, "1x1", x, Conv::new(192, 1));
    let b = c(n, "7x7_1", x, Conv::new(width, 1));
    let b = c(n, "7x7_2", b, Conv::new(width, 1).rect(1, 7));
    let b = c(n, "7x7_3", b, Conv::new(192, 1).rect(7, 1));
    let d = c(n, "dbl1", x, Conv::new(width, 1));
    let d = c(n, "dbl2", d, Conv::new(width, 1).rect(7, 1));
    let d = c(n, "dbl3", d, Conv::new(width, 1).rect(1, 7));
    let d = c(n, "dbl4", d, Conv::new(width, 1).rect(7, 1));
    let d = c(n, "dbl5", d, Conv::new(192, 1).rect(1, 7));
    let p = n.avg_pool_same("avg", x);
    let p = c(n, "pool", p, Conv::new(192, 1));
    n.concat("cat", &[a, b, d, p])
}

fn inception_e(n: &mut Net, x: Val) -> Val {
    let c = conv_bn_relu;
    let a = c(n, "1x1", x, Conv::new(320, 1));
    let b = c(n, "3x3_1", x, Conv::new(384, 1));
    let b1 = c(n, "3x3_2a", b, Conv::new(384, 1).rect(1, 3));
    let b2 = c(n, "3x3_2b", b, Conv::new(384, 1).rect(3, 1));
    let d = c(n, "dbl1", x, Conv::new(448, 1));
    let d = c(n, "dbl2", d, Conv::new(384, 3));
    let d1 = c(n, "dbl3a", d, Conv::new(384, 1).rect(1, 3));
    let d2 = c(n, "dbl3b", d, Conv::new(384, 1).rect(3, 1));
    let p = n.avg_pool_same("avg", x);
    let p = c(n, "pool", p, Conv::new(192, 1));
    n.concat("cat", &[a, b1, b2, d1, d2, p])
}

/// SENet-154 (Hu et al., 2018).
pub fn senet154(n: &mut Net) -> Val {
    let x = images(n, 224);
    let x = conv_bn_relu(n, "stem1", x, Conv::new(64, 3).stride(2));
    let x = conv_bn_relu(n, "stem2", x, Conv::new(64, 3));
    let x = conv_bn_relu(n, "stem3", x, Conv::new(128, 3));
    let x = n.max_pool("pool", x, 3, 2, 0, true);
    let x = stages(n, x, [3, 8, 36, 3], se_bottleneck);
    classify(n, x, true)
}

fn se_bottleneck(n: &mut Net, x: Val, width: u64, stride: u64) -> Val {
    let out = 4 * width;
    let y = conv_bn_relu(n, "1", x, Conv::new(2 * width, 1));
    let y = conv_bn_relu(n, "2", y, Conv::new(out, 3).stride(stride).groups(64));
    let y = n.conv("conv3", y, Conv::new(out, 1));
    let y = n.batch_norm("bn3", y);
    // The first stage keeps the shape and has a 1 × 1 shortcut.
    let kernel = if stride == 1 { 1 } else { 3 };
    let short = shortcut(n, x, Conv::new(out, kernel).stride(stride));
    let s = n.avg_pool_to("se.pool", y, 1);
    let s = n.conv("se.fc1", s, Conv::new(out / 16, 1).bias());
    let s = n.relu("se.relu", s);
    let s = n.conv("se.fc2", s, Conv::new(out, 1).bias());
    let s = n.sigmoid("se.sigmoid", s);
    let y = n.scale("se.scale", y, s);
    let y = n.add_in_place("add", y, short);
    n.relu("relu", y)
}

/// DCGAN's generator for 64 × 64 images (Radford et al., 2016; PyTorch examples).
pub fn dcgan_generator(n: &mut Net) -> Val {
    let batch = n.batch;
    let z = n.input("noise", [batch, 100, 1, 1], 4);
    n.scope("netG", |n| {
        let mut x = z;
        for (i, out) in [512, 256, 128, 64].into_iter().enumerate() {
            let c = Conv::new(out, 4).transposed();
            let c = if i == 0 { c.pad(0) } else { c.stride(2).pad(1) };
            x = conv_bn_relu(n, &format!("{i}"), x, c);
        }
        let x = n.conv("4.conv", x, Conv::new(3, 4).transposed().stride(2).pad(1));
        n.tanh("4.tanh", x)
    })
}

/// DCGAN's discriminator and its loss.
pub fn dcgan_discriminator(n: &mut Net, x: Val) -> Val {
    n.scope("netD", |n| {
        let mut x = n.conv("0.conv", x, Conv::new(64, 4).stride(2).pad(1));
        x = n.relu("0.relu", x);
        for (i, out) in [128, 256, 512].into_iter().enumerate() {
            let c = Conv::new(out, 4).stride(2).pad(1);
            x = conv_bn_relu(n, &format!("{}", i + 1), x, c);
        }
        let x = n.conv("4.conv", x, Conv::new(1, 4).pad(0));
        let x = n.sigmoid("4.sigmoid", x);
        n.simple_loss("loss", x)
    })
}
