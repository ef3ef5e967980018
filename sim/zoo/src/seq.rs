// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Transformers, the recurrent network and the recommendation model.

use serde::Deserialize;
use uvmsim_trace::TensorId;

use crate::net::Net;
use crate::net::Val;
use crate::ops::Conv;

/// Which linear layers of a block have a bias.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Biases {
    /// Each of them has one.
    #[default]
    All,
    /// The four of the attention have one.
    Attention,
    /// Those of queries, keys and values have one.
    Qkv,
    /// None of them has one.
    None,
}

/// The shape of a transformer.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Transformer {
    /// How many layers there are.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads of a layer.
    pub heads: u64,
    /// Heads that keys and values have, of which each serves as many queries' (GQA); 0: all.
    pub kv_heads: u64,
    /// Width of a head; 0: what `hidden` has for each.
    pub head_dim: u64,
    /// Width of the feed-forward layer.
    pub feed: u64,
    /// Tokens in a sample.
    pub tokens: u64,
    /// Whether each block normalises its input (GPT-2) or its output (BERT).
    pub pre_norm: bool,
    /// Whether the feed-forward layer has ReLU instead of GELU.
    pub relu: bool,
    /// Whether there is dropout.
    pub dropout: bool,
    /// Which linear layers have a bias.
    pub biases: Biases,
    /// Whether it normalises by the root mean square instead of mean and variance.
    pub rms_norm: bool,
    /// Whether queries and keys are turned by their positions (RoPE).
    pub rotary: bool,
    /// Whether the feed-forward layer has a gate, with SiLU (SwiGLU).
    pub gated: bool,
    /// Whether attention keeps no scores (FlashAttention), and is causal.
    pub flash: bool,
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
            let y = self.norm(n, "ln_1", x);
            let y = n.scope("attn", |n| self.attention(n, y));
            let x = n.add("add_1", x, y);
            let y = self.norm(n, "ln_2", x);
            let y = n.scope("mlp", |n| self.feed_forward(n, y));
            n.add("add_2", x, y)
        } else {
            let y = n.scope("attn", |n| self.attention(n, x));
            let x = n.add("add_1", x, y);
            let x = self.norm(n, "ln_1", x);
            let y = n.scope("mlp", |n| self.feed_forward(n, x));
            let x = n.add("add_2", x, y);
            self.norm(n, "ln_2", x)
        }
    }

    fn norm(&self, n: &mut Net, name: &str, x: Val) -> Val {
        if self.rms_norm {
            n.rms_norm(name, x)
        } else {
            n.layer_norm(name, x)
        }
    }

    fn attention(&self, n: &mut Net, x: Val) -> Val {
        let head_dim = match self.head_dim {
            0 => self.hidden / self.heads,
            head_dim => head_dim,
        };
        let wide = self.heads * head_dim;
        let narrow = match self.kv_heads {
            0 => wide,
            kv_heads => kv_heads * head_dim,
        };
        let bias = self.biases != Biases::None;
        let mut q = n.linear("query", x, wide, bias);
        let mut k = n.linear("key", x, narrow, bias);
        let v = n.linear("value", x, narrow, bias);
        if self.rotary {
            q = n.rotate("query_rotary", q);
            k = n.rotate("key_rotary", k);
        }
        let y = if self.flash {
            n.flash_attention("flash", [q, k, v], self.heads, self.tokens)
        } else {
            self.scored(n, q, k, v)
        };
        let bias = matches!(self.biases, Biases::All | Biases::Attention);
        let y = n.linear("output", y, self.hidden, bias);
        self.drop(n, "output_dropout", y)
    }

    /// Attention whose scores are stored.
    fn scored(&self, n: &mut Net, q: Val, k: Val, v: Val) -> Val {
        let (s, h) = (self.tokens, self.heads);
        let batch = q.shape[0] / s;
        let flops = 2 * batch * s * s * q.shape[1];
        let scores = n.matmul("scores", q, k, [batch * h * s, s, 1, 1], flops);
        let p = n.softmax("softmax", scores);
        let p = self.drop(n, "dropout", p);
        let y = n.matmul("context", p, v, q.shape, flops);
        n.copy("merge", y, y.shape)
    }

    fn feed_forward(&self, n: &mut Net, x: Val) -> Val {
        let bias = self.biases == Biases::All;
        let gate = self.gated.then(|| n.linear("gate", x, self.feed, bias));
        let y = n.linear("up", x, self.feed, bias);
        let y = if let Some(gate) = gate {
            let gate = n.silu("silu", gate);
            n.scale("product", y, gate)
        } else if self.relu {
            n.from_output("relu", y, 1)
        } else {
            n.gelu("gelu", y)
        };
        let y = n.linear("down", y, self.hidden, bias);
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

/// A language model that sees what came before: GPT-2 (Radford et al., 2019), OPT (Zhang et al.,
/// 2022), and those of Llama's kind (Touvron et al., 2023).
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Decoder {
    /// Words that it knows.
    pub vocabulary: u64,
    /// Rows of the table of learned positions; 0: it has none.
    #[serde(default)]
    pub positions: u64,
    /// Whether the head has a weight of its own, and not the words'.
    #[serde(default)]
    pub untied: bool,
    /// The shape of its blocks.
    pub blocks: Transformer,
}

impl Decoder {
    /// Its loss, for samples of so many tokens.
    pub fn loss(&self, n: &mut Net, tokens: u64) -> Val {
        let (words, x) = self.begin(n, tokens, self.blocks.layers);
        let t = &self.blocks;
        let x = t.norm(n, "ln_f", x);
        let x = if self.untied {
            n.linear("lm_head", x, self.vocabulary, false)
        } else {
            n.linear_with("lm_head", x, words, self.vocabulary, false)
        };
        n.cross_entropy(x)
    }

    /// What the first `layers` layers make of samples of so many tokens, and the table of words.
    pub fn begin(&self, n: &mut Net, tokens: u64, layers: u64) -> (TensorId, Val) {
        let t = Transformer {
            tokens,
            layers,
            ..self.blocks
        };
        let rows = n.batch * tokens;
        let shape = [rows, t.hidden, 1, 1];
        let ids = n.input("input_ids", [rows, 1, 1, 1], 8);
        let words = n.param("wte", self.vocabulary * t.hidden);
        let places = (self.positions > 0).then(|| n.param("wpe", self.positions * t.hidden));
        let mut x = n.embedding("wte.lookup", words, ids, t.hidden, shape);
        if let Some(places) = places {
            let y = n.embedding("wpe.lookup", places, ids, t.hidden, shape);
            x = n.add("add", x, y);
        }
        let x = if t.dropout { n.dropout("drop", x) } else { x };
        (words, t.blocks(n, x))
    }
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
