// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Transformers, the recurrent network and the recommendation model.

use serde::Deserialize;

use crate::net::Net;
use crate::net::Val;
use crate::ops::Conv;

/// The shape of a transformer.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Transformer {
    /// How many layers there are.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads of a layer.
    pub heads: u64,
    /// Width of the feed-forward layer.
    pub feed: u64,
    /// Tokens in a sample.
    #[serde(default)]
    pub tokens: u64,
    /// Whether each block normalises its input (GPT-2) or its output (BERT).
    #[serde(default)]
    pub pre_norm: bool,
    /// Whether the feed-forward layer has ReLU instead of GELU.
    #[serde(default)]
    pub relu: bool,
    /// Whether there is dropout.
    #[serde(default)]
    pub dropout: bool,
}

impl Transformer {
    /// All blocks, on `[batch · tokens, hidden]`.
    fn blocks(&self, n: &mut Net, mut x: Val) -> Val {
        for i in 0..self.layers {
            x = n.part(&format!("layer{i}"), |n| self.block(n, x));
        }
        x
    }

    fn block(&self, n: &mut Net, x: Val) -> Val {
        if self.pre_norm {
            let y = n.layer_norm("ln_1", x);
            let y = n.scope("attn", |n| self.attention(n, y));
            let x = n.add("add_1", x, y);
            let y = n.layer_norm("ln_2", x);
            let y = n.scope("mlp", |n| self.feed_forward(n, y));
            n.add("add_2", x, y)
        } else {
            let y = n.scope("attn", |n| self.attention(n, x));
            let x = n.add("add_1", x, y);
            let x = n.layer_norm("ln_1", x);
            let y = n.scope("mlp", |n| self.feed_forward(n, x));
            let x = n.add("add_2", x, y);
            n.layer_norm("ln_2", x)
        }
    }

    fn attention(&self, n: &mut Net, x: Val) -> Val {
        let (rows, s, h) = (x.shape[0], self.tokens, self.heads);
        let batch = rows / s;
        let q = n.linear("query", x, self.hidden, true);
        let k = n.linear("key", x, self.hidden, true);
        let v = n.linear("value", x, self.hidden, true);
        let flops = 2 * batch * s * s * self.hidden;
        let scores = n.matmul("scores", q, k, [batch * h * s, s, 1, 1], flops);
        let p = n.softmax("softmax", scores);
        let p = self.drop(n, "dropout", p);
        let y = n.matmul("context", p, v, [rows, self.hidden, 1, 1], flops);
        let y = n.copy("merge", y, y.shape);
        let y = n.linear("output", y, self.hidden, true);
        self.drop(n, "output_dropout", y)
    }

    fn feed_forward(&self, n: &mut Net, x: Val) -> Val {
        let y = n.linear("up", x, self.feed, true);
        let y = if self.relu {
            n.from_output("relu", y, 1)
        } else {
            n.gelu("gelu", y)
        };
        let y = n.linear("down", y, self.hidden, true);
        self.drop(n, "dropout", y)
    }

    fn drop(&self, n: &mut Net, name: &str, x: Val) -> Val {
        if self.dropout {
            n.dropout(name, x)
        } else {
            x
        }
    }
}

/// BERT with its masked language model head (Devlin et al., 2019; Hugging Face).
pub fn bert(n: &mut Net, t: Transformer) -> Val {
    const VOCABULARY: u64 = 30_522;
    let rows = n.batch * t.tokens;
    let shape = [rows, t.hidden, 1, 1];
    let ids = n.input("input_ids", [rows, 1, 1, 1], 8);
    let types = n.input("token_type_ids", [rows, 1, 1, 1], 8);
    let words = n.param("embeddings.word", VOCABULARY * t.hidden);
    let x = n.scope("embeddings", |n| {
        let positions = n.param("position", 512 * t.hidden);
        let kinds = n.param("token_type", 2 * t.hidden);
        let x = n.embedding("word.lookup", words, ids, t.hidden, shape);
        let y = n.embedding("token_type.lookup", kinds, types, t.hidden, shape);
        let x = n.add("add", x, y);
        let y = n.embedding("position.lookup", positions, ids, t.hidden, shape);
        let x = n.add_in_place("add_position", x, y);
        let x = n.layer_norm("ln", x);
        n.dropout("dropout", x)
    });
    let x = t.blocks(n, x);
    n.scope("head", |n| {
        let x = n.linear("transform", x, t.hidden, true);
        let x = n.gelu("gelu", x);
        let x = n.layer_norm("ln", x);
        let x = n.linear_with("decoder", x, words, VOCABULARY, true);
        n.cross_entropy(x)
    })
}

/// A decoder with learned positions and tied head: GPT-2 (Radford et al., 2019),
/// OPT (Zhang et al., 2022).
pub fn decoder(n: &mut Net, t: Transformer, vocabulary: u64, positions: u64) -> Val {
    let rows = n.batch * t.tokens;
    let shape = [rows, t.hidden, 1, 1];
    let ids = n.input("input_ids", [rows, 1, 1, 1], 8);
    let words = n.param("wte", vocabulary * t.hidden);
    let places = n.param("wpe", positions * t.hidden);
    let x = n.embedding("wte.lookup", words, ids, t.hidden, shape);
    let y = n.embedding("wpe.lookup", places, ids, t.hidden, shape);
    let x = n.add("add", x, y);
    let x = if t.dropout { n.dropout("drop", x) } else { x };
    let x = t.blocks(n, x);
    let x = n.layer_norm("ln_f", x);
    let x = n.linear_with("lm_head", x, words, vocabulary, false);
    n.cross_entropy(x)
}

/// ViT with 16 × 16 patches (Dosovitskiy et al., 2021).
pub fn vit(n: &mut Net, t: Transformer) -> Val {
    let batch = n.batch;
    let images = n.input("images", [batch, 3, 224, 224], 4);
    let class = n.param("cls_token", t.hidden);
    let places = n.param("pos_embed", t.tokens * t.hidden);
    let patches = Conv::new(t.hidden, 16).stride(16).pad(0).bias();
    let x = n.conv("patch_embed", images, patches);
    let rows = [batch * t.tokens, t.hidden, 1, 1];
    let x = n.tokens("embed", x, &[class, places], rows);
    let x = t.blocks(n, x);
    let x = n.layer_norm("norm", x);
    let x = n.copy_part("pool", x, [batch, t.hidden, 1, 1]);
    let x = n.linear("head", x, 1000, true);
    n.cross_entropy(x)
}

/// Darknet's character model: three vanilla recurrent layers of 1024 with batch
/// normalisation (`rnn.train.cfg`).
pub fn rnn(n: &mut Net, steps: u64) -> Vec<Val> {
    const HIDDEN: u64 = 1024;
    let batch = n.batch;
    let mut state = [None; 3];
    let mut losses = Vec::new();
    for _ in 0..steps {
        let mut x = n.input("characters", [batch, 256, 1, 1], 4);
        for (i, state) in state.iter_mut().enumerate() {
            x = n.scope(&format!("rnn{i}"), |n| {
                let mut h = connected(n, "input", x, HIDDEN);
                if let Some(old) = *state {
                    let back = connected(n, "self", old, HIDDEN);
                    h = n.add("state", h, back);
                }
                *state = Some(h);
                connected(n, "output", h, HIDDEN)
            });
        }
        let y = n.linear("connected", x, 256, true);
        losses.push(n.cross_entropy(y));
    }
    losses
}

fn connected(n: &mut Net, name: &str, x: Val, out: u64) -> Val {
    n.scope(name, |n| {
        let x = n.linear("gemm", x, out, false);
        let x = n.batch_norm("bn", x);
        n.relu("leaky", x)
    })
}

/// DLRM as MLPerf's Criteo Kaggle script has it (Naumov et al., 2019).
/// `tables`: the rows of the embedding tables, each `dim` wide.
pub fn dlrm(n: &mut Net, dim: u64, tables: &[u64]) -> Val {
    let batch = n.batch;
    let mut x = n.input("dense", [batch, 13, 1, 1], 4);
    for (i, out) in [512, 256, 64, dim].into_iter().enumerate() {
        x = n.linear(&format!("bottom{i}"), x, out, true);
        x = n.relu(&format!("bottom{i}.relu"), x);
    }
    let mut features = vec![x];
    for (i, rows) in tables.iter().enumerate() {
        let table = n.param(&format!("embedding{i}"), rows * dim);
        let index = n.input(&format!("sparse{i}"), [batch, 1, 1, 1], 8);
        let name = format!("embedding{i}.lookup");
        features.push(n.embedding(&name, table, index, dim, [batch, dim, 1, 1]));
    }
    let all = n.concat("features", &features);
    // Dot products of all pairs of the 27 vectors, and the dense one.
    let pairs = 27 * 26 / 2;
    let flops = 2 * batch * 27 * 27 * dim;
    let z = n.pairs("interact", all, [batch, pairs, 1, 1], flops);
    let mut x = n.concat("top.in", &[x, z]);
    for (i, out) in [512, 256].into_iter().enumerate() {
        x = n.linear(&format!("top{i}"), x, out, true);
        x = n.relu(&format!("top{i}.relu"), x);
    }
    x = n.linear("top2", x, 1, true);
    let x = n.sigmoid("sigmoid", x);
    n.simple_loss("loss", x)
}
