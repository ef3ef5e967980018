// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Networks from configuration files: the `config.json` that Hugging Face's models come with.
//!
//! What such a file leaves out is what transformers takes it to be. A model that this crate does
//! not build as it is trained is refused, with the key that says so.

use std::fmt;

use serde_json::Map;
use serde_json::Value;

use crate::net::Optimizer;
use crate::net::Precision;
use crate::seq::Biases;
use crate::seq::Decoder;
use crate::seq::Transformer;
use crate::Entry;
use crate::Layers;
use crate::Options;

/// The families that can be read, as `model_type` calls them.
pub const FAMILIES: [&str; 5] = ["llama", "mistral", "qwen2", "gpt2", "opt"];

/// Tokens of a sample where nobody says how many, at most: few train on all that a model can take.
const USUAL_TOKENS: u64 = 4096;

/// Why a file is no network.
#[derive(Debug)]
pub enum ConfigError {
    /// It is not JSON, or no object.
    Json(String),
    /// A key that has no usual value is missing, or null.
    Missing(&'static str),
    /// A key has a value that makes no sense, or that cannot be built: what would.
    Value(&'static str, String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(why) => write!(f, "this is no JSON object: {why}"),
            Self::Missing(key) => write!(f, "`{key}` is missing"),
            Self::Value(key, want) => write!(f, "`{key}` must be {want}"),
        }
    }
}

impl std::error::Error for ConfigError {}

type Read<T> = Result<T, ConfigError>;

/// The network that `text` describes, to be called `name`.
///
/// # Errors
/// It describes none, or none that can be built.
pub fn parse(name: &str, text: &str) -> Read<Entry> {
    let value: Value = serde_json::from_str(text).map_err(|e| ConfigError::Json(e.to_string()))?;
    let Value::Object(keys) = value else {
        return Err(ConfigError::Json("it begins with something else".into()));
    };
    let config = Config(keys);
    let family = config.word("model_type", None, &FAMILIES)?;
    let (tokens, decoder) = match family {
        "gpt2" => config.gpt2(),
        "opt" => config.opt(),
        family => config.llama(family),
    }?;
    let blocks = &decoder.blocks;
    let about = format!("{family}, {} layers of {}", blocks.layers, blocks.hidden);
    let mut entry = Entry {
        name: name.into(),
        about,
        batch: 1,
        tokens: tokens.min(USUAL_TOKENS),
        parameters: 0,
        optimizer: Optimizer::Adam,
        layers: Layers::Decoder(decoder),
    };
    let least = Options {
        tokens: Some(1),
        ..Options::new(1, Precision::Bf16)
    };
    entry.parameters = entry.build(&least).parameters;
    Ok(entry)
}

/// The keys of a file. Numbers have limits, so that sizes of tensors can be told in 64 bits.
struct Config(Map<String, Value>);

impl Config {
    /// The value of a key that is there, and not null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|v| !v.is_null())
    }

    /// A number from 1 to `most`.
    fn count(&self, key: &'static str, most: u64) -> Read<u64> {
        let value = self.get(key).ok_or(ConfigError::Missing(key))?;
        let number = value.as_u64().filter(|n| (1..=most).contains(n));
        number.ok_or_else(|| ConfigError::Value(key, format!("a whole number from 1 to {most}")))
    }

    /// The same, or `usual` where nothing is said.
    fn count_or(&self, key: &'static str, most: u64, usual: u64) -> Read<u64> {
        match self.get(key) {
            Some(_) => self.count(key, most),
            None => Ok(usual),
        }
    }

    fn flag(&self, key: &'static str, usual: bool) -> Read<bool> {
        match self.get(key) {
            Some(value) => {
                let flag = value.as_bool();
                flag.ok_or_else(|| ConfigError::Value(key, "true or false".into()))
            }
            None => Ok(usual),
        }
    }

    /// A flag that must be `want`, which it also is where nothing is said.
    fn only(&self, key: &'static str, want: bool) -> Read<()> {
        if self.flag(key, want)? == want {
            Ok(())
        } else {
            Err(ConfigError::Value(key, want.to_string()))
        }
    }

    /// Whether the share of what is dropped is more than none.
    fn drops(&self, key: &'static str, usual: f64) -> Read<bool> {
        let share = self.get(key).map_or(Some(usual), Value::as_f64);
        let share = share.filter(|s| (0.0..1.0).contains(s));
        let share = share.ok_or_else(|| ConfigError::Value(key, "from 0 to 1".into()))?;
        Ok(share > 0.0)
    }

    /// One of `words`; `usual` where nothing is said, or an error if there is no such.
    fn word<'a>(
        &self,
        key: &'static str,
        usual: Option<&'a str>,
        words: &[&'a str],
    ) -> Read<&'a str> {
        let Some(value) = self.get(key) else {
            return usual.ok_or(ConfigError::Missing(key));
        };
        let known = words.iter().find(|w| value.as_str() == Some(**w));
        known.copied().ok_or_else(|| {
            let words = words.join(", ");
            ConfigError::Value(key, format!("one of {words}"))
        })
    }

    /// What all families have, by the names that each has for it: width, layers, heads.
    fn shape(&self, [hidden, layers, heads]: [&'static str; 3]) -> Read<Transformer> {
        let shape = Transformer {
            hidden: self.count(hidden, 1 << 15)?,
            layers: self.count(layers, 1 << 12)?,
            heads: self.count(heads, 1 << 10)?,
            pre_norm: true,
            ..Transformer::default()
        };
        if self.get("head_dim").is_none() && shape.hidden % shape.heads != 0 {
            let want = format!("a divisor of `{hidden}`, {}", shape.hidden);
            return Err(ConfigError::Value(heads, want));
        }
        Ok(shape)
    }

    fn vocabulary(&self) -> Read<u64> {
        self.count("vocab_size", 1 << 20)
    }

    /// Llama and what is made like it, which differ in what has a bias.
    fn llama(&self, family: &str) -> Read<(u64, Decoder)> {
        self.word("hidden_act", Some("silu"), &["silu"])?;
        let names = ["hidden_size", "num_hidden_layers", "num_attention_heads"];
        let shape = self.shape(names)?;
        let kv_heads = self.count_or("num_key_value_heads", shape.heads, shape.heads)?;
        if shape.heads % kv_heads != 0 {
            let want = format!("a divisor of `num_attention_heads`, {}", shape.heads);
            return Err(ConfigError::Value("num_key_value_heads", want));
        }
        let biases = match family {
            "qwen2" => Biases::Qkv,
            "llama" if self.flag("attention_bias", false)? => Biases::Attention,
            _ => Biases::None,
        };
        let biases = match (self.flag("mlp_bias", false)?, biases) {
            (false, biases) => biases,
            (true, Biases::Attention) => Biases::All,
            _ => return Err(ConfigError::Value("mlp_bias", "false".into())),
        };
        let blocks = Transformer {
            kv_heads,
            head_dim: self.count_or("head_dim", 1 << 9, 0)?,
            feed: self.count("intermediate_size", 1 << 18)?,
            biases,
            rms_norm: true,
            rotary: true,
            gated: true,
            flash: true,
            ..shape
        };
        let decoder = Decoder {
            vocabulary: self.vocabulary()?,
            positions: 0,
            untied: !self.flag("tie_word_embeddings", false)?,
            blocks,
        };
        Ok((self.count("max_position_embeddings", 1 << 24)?, decoder))
    }

    fn gpt2(&self) -> Read<(u64, Decoder)> {
        let words = ["gelu_new", "gelu", "relu"];
        let function = self.word("activation_function", Some("gelu_new"), &words)?;
        let shape = self.shape(["n_embd", "n_layer", "n_head"])?;
        let dropout = ["resid_pdrop", "embd_pdrop", "attn_pdrop"].map(|key| self.drops(key, 0.1));
        let positions = self.count("n_positions", 1 << 24)?;
        let mut blocks = Transformer {
            feed: self.count_or("n_inner", 1 << 18, 4 * shape.hidden)?,
            relu: function == "relu",
            ..shape
        };
        for dropout in dropout {
            blocks.dropout |= dropout?;
        }
        let decoder = Decoder {
            vocabulary: self.vocabulary()?,
            positions,
            untied: !self.flag("tie_word_embeddings", true)?,
            blocks,
        };
        Ok((positions, decoder))
    }

    fn opt(&self) -> Read<(u64, Decoder)> {
        let words = ["relu", "gelu"];
        let function = self.word("activation_function", Some("relu"), &words)?;
        self.only("do_layer_norm_before", true)?;
        self.only("enable_bias", true)?;
        self.only("layer_norm_elementwise_affine", true)?;
        self.only("_remove_final_layer_norm", false)?;
        let names = ["hidden_size", "num_hidden_layers", "num_attention_heads"];
        let shape = self.shape(names)?;
        let words = self.count_or("word_embed_proj_dim", 1 << 15, shape.hidden)?;
        if words != shape.hidden {
            let want = format!("as much as `hidden_size`, {}", shape.hidden);
            return Err(ConfigError::Value("word_embed_proj_dim", want));
        }
        let positions = self.count("max_position_embeddings", 1 << 24)?;
        let blocks = Transformer {
            feed: self.count("ffn_dim", 1 << 18)?,
            relu: function == "relu",
            dropout: self.drops("dropout", 0.1)? | self.drops("attention_dropout", 0.0)?,
            ..shape
        };
        let decoder = Decoder {
            vocabulary: self.vocabulary()?,
            // Its table begins with two rows that no token has.
            positions: positions + 2,
            untied: !self.flag("tie_word_embeddings", true)?,
            blocks,
        };
        Ok((positions, decoder))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Entry {
        parse("own", &value.to_string()).unwrap()
    }

    fn refused(value: &Value) -> String {
        parse("own", &value.to_string()).unwrap_err().to_string()
    }

    fn llama() -> Value {
        json!({
            "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2,
            "max_position_embeddings": 131_072,
        })
    }

    fn gpt2() -> Value {
        json!({
            "model_type": "gpt2", "vocab_size": 50257, "n_embd": 1280, "n_layer": 36,
            "n_head": 20, "n_positions": 1024, "n_inner": null,
        })
    }

    fn opt() -> Value {
        json!({
            "model_type": "opt", "vocab_size": 50272, "hidden_size": 2048, "ffn_dim": 8192,
            "num_hidden_layers": 24, "num_attention_heads": 32, "max_position_embeddings": 2048,
        })
    }

    /// `value` with one key changed.
    fn with(mut value: Value, key: &str, to: Value) -> Value {
        value[key] = to;
        value
    }

    /// Those that the zoo has too are the same step there.
    #[test]
    fn what_the_zoo_has_is_read_as_it_is_there() {
        let llama3 = json!({
            "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
        });
        let mistral = json!({
            "model_type": "mistral", "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 32_768, "head_dim": 128,
        });
        let all = [
            ("llama3-8b", llama3),
            ("mistral-7b", mistral),
            ("gpt2-l", gpt2()),
            ("opt-1.3b", opt()),
        ];
        for (name, config) in all {
            let (zoo, own) = (crate::find(name).unwrap(), read(&config));
            let options = Options {
                tokens: Some(256),
                ..Options::new(2, Precision::Bf16)
            };
            let [zoo, mut own] = [zoo, &own].map(|e| e.build(&options));
            own.trace.set_meta("name", name);
            assert_eq!(zoo.trace.to_string(), own.trace.to_string(), "{name}");
        }
    }

    /// Counts that Hugging Face's pages give for models of families that the zoo has not.
    #[test]
    fn parameters_are_the_published_ones() {
        let qwen2 = json!({
            "model_type": "qwen2", "vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944,
            "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
            "max_position_embeddings": 131_072,
        });
        // Llama 3.2 1B: one table for words and head.
        let small = json!({
            "model_type": "llama", "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 131_072, "tie_word_embeddings": true, "head_dim": 64,
        });
        assert_eq!(read(&qwen2).parameters, 7_615_616_512);
        assert_eq!(read(&small).parameters, 1_235_814_400);
    }

    #[test]
    fn what_is_left_out_is_what_transformers_takes_it_to_be() {
        let entry = read(&llama());
        assert_eq!((entry.tokens, entry.batch), (4096, 1));
        let parameters = |value: &Value| read(value).parameters;
        let kv = with(llama(), "num_key_value_heads", Value::Null);
        // Six more heads of eight have keys and values, in three layers.
        assert_eq!(parameters(&kv) - entry.parameters, 3 * 2 * 6 * 8 * 64);
        let biased = with(llama(), "attention_bias", true.into());
        let biases = 3 * (64 + 2 * 16 + 64);
        assert_eq!(parameters(&biased) - entry.parameters, biases);
        let all = with(biased, "mlp_bias", true.into());
        assert_eq!(
            parameters(&all) - entry.parameters,
            biases + 3 * (96 + 96 + 64)
        );
        let tied = with(llama(), "tie_word_embeddings", true.into());
        assert_eq!(entry.parameters - parameters(&tied), 1000 * 64);
        let wide = with(llama(), "head_dim", 16.into());
        assert!(parameters(&wide) > entry.parameters);
        // GPT-2's dropout is on unless all three are off.
        let masks = |value: &Value| {
            let step = read(value).build(&Options::new(1, Precision::Bf16));
            let tensors = step.trace.tensors;
            tensors.iter().filter(|t| t.name.ends_with(".mask")).count()
        };
        let mut off = gpt2();
        for key in ["resid_pdrop", "embd_pdrop"] {
            off[key] = 0.0.into();
        }
        assert!(masks(&off) > 0);
        off["attn_pdrop"] = 0.0.into();
        assert_eq!(masks(&off), 0);
        let step = read(&off).build(&Options::new(1, Precision::Bf16));
        assert!(step.trace.validate().is_ok());
    }

    #[test]
    fn errors_name_the_key() {
        let no_key = |from: &Value, key: &str| {
            let mut value = from.clone();
            value.as_object_mut().unwrap().remove(key);
            assert_eq!(refused(&value), format!("`{key}` is missing"));
        };
        let common = [
            "model_type",
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
        ];
        for key in common
            .into_iter()
            .chain(["max_position_embeddings", "num_attention_heads"])
        {
            no_key(&llama(), key);
            no_key(&opt(), key);
        }
        no_key(&llama(), "intermediate_size");
        no_key(&opt(), "ffn_dim");
        for key in ["n_embd", "n_layer", "n_head", "n_positions", "vocab_size"] {
            no_key(&gpt2(), key);
        }
        for (value, key) in [
            (with(llama(), "model_type", "bert".into()), "model_type"),
            (with(llama(), "hidden_act", "gelu".into()), "hidden_act"),
            (with(llama(), "hidden_size", 0.into()), "hidden_size"),
            (
                with(llama(), "hidden_size", (1u64 << 40).into()),
                "hidden_size",
            ),
            (with(llama(), "hidden_size", (-64).into()), "hidden_size"),
            (with(llama(), "hidden_size", "64".into()), "hidden_size"),
            (
                with(llama(), "hidden_size", 63.into()),
                "num_attention_heads",
            ),
            (
                with(llama(), "num_key_value_heads", 3.into()),
                "num_key_value_heads",
            ),
            (with(llama(), "mlp_bias", true.into()), "mlp_bias"),
            (
                with(llama(), "tie_word_embeddings", 1.into()),
                "tie_word_embeddings",
            ),
            (with(gpt2(), "attn_pdrop", 2.0.into()), "attn_pdrop"),
            (
                with(opt(), "do_layer_norm_before", false.into()),
                "do_layer_norm_before",
            ),
            (
                with(opt(), "word_embed_proj_dim", 512.into()),
                "word_embed_proj_dim",
            ),
        ] {
            let said = refused(&value);
            assert!(
                said.starts_with(&format!("`{key}` must be ")),
                "{key}: {said}"
            );
        }
        for text in ["", "[]", "7", "{", "{} {}"] {
            let said = parse("own", text).unwrap_err().to_string();
            assert!(said.starts_with("this is no JSON object"), "{text}: {said}");
        }
        let said = refused(&with(llama(), "model_type", "bert".into()));
        assert!(FAMILIES.iter().all(|f| said.contains(f)), "{said}");
    }

    /// The largest shape that is taken, and the largest step of it, overflow nothing.
    #[test]
    fn the_largest_shape_can_be_counted() {
        let mut largest = llama();
        for (key, most) in [
            ("vocab_size", 1u64 << 20),
            ("hidden_size", 1 << 15),
            ("intermediate_size", 1 << 18),
            ("num_attention_heads", 1 << 10),
            ("num_key_value_heads", 1 << 10),
            ("head_dim", 1 << 9),
            ("max_position_embeddings", 1 << 24),
        ] {
            largest[key] = most.into();
        }
        let entry = read(&largest);
        let step = |tokens| {
            let options = Options {
                tokens: Some(tokens),
                ..Options::new(crate::LARGEST_ROWS / tokens, Precision::Fp32)
            };
            let step = entry.build(&options);
            step.costs.iter().map(|c| c.flops).max()
        };
        assert!(step(4) > Some(1 << 60) && step(65_536) > Some(1 << 60));
    }
}
