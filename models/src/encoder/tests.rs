//! Compares every architecture with transformers (`tests/reference/make_architectures.py`), and kernels with composed
//! operations.

use super::*;
use crate::{
    Architecture, Device, ModelError, Pooling, Precision,
    architecture::EncoderConfig,
    weights::{Packs, WeightFile},
};
use safetensors::{Dtype, tensor::TensorView};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tempfile::TempDir;

#[derive(Deserialize)]
struct Model {
    name: String,
    config: serde_json::Value,
    tensors: BTreeMap<String, Vec<usize>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    ids: Vec<u32>,
    /// The number of tokens of type 0.
    first: usize,
    at: Vec<usize>,
    rows: Vec<Vec<f64>>,
    mean: Vec<f64>,
    logit: Option<f64>,
}

fn models() -> Vec<Model> {
    serde_json::from_str(include_str!("../../tests/reference/architectures.json")).unwrap()
}

/// The twin of `value` in the script: a number from -1 to 1, hashed from name and place, then scaled so that
/// activations stay near 1.
fn value(name: &str, at: u32, shape: &[usize]) -> f32 {
    let seed = name.bytes().fold(2_166_136_261u32, |seed, byte| (seed ^ u32::from(byte)).wrapping_mul(16_777_619));
    let mut x = at.wrapping_mul(2_654_435_769).wrapping_add(seed);
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^= x >> 16;
    let value = (x >> 8) as f32 / (1 << 23) as f32 - 1.0;
    match shape {
        [_] if name.ends_with("weight") => value / 4.0 + 1.0,
        [_] => value / 4.0,
        _ if name.contains("embeddings") || name.contains("relative_attention_bias") => value,
        _ => value / 4.0,
    }
}

impl Model {
    fn architecture(&self) -> Architecture {
        Architecture::from_model_type(self.config["model_type"].as_str().unwrap()).unwrap()
    }

    fn config(&self) -> EncoderConfig {
        let json = self.config.to_string();
        EncoderConfig::from_json(self.architecture(), json.as_bytes(), Path::new("config.json")).unwrap()
    }

    fn write(&self) -> (TempDir, PathBuf) {
        let data: BTreeMap<&String, Vec<u8>> = self
            .tensors
            .iter()
            .map(|(name, shape)| {
                let count = shape.iter().product::<usize>() as u32;
                (name, (0..count).flat_map(|at| value(name, at, shape).to_le_bytes()).collect())
            })
            .collect();
        let tensors = data.iter().map(|(&name, bytes)| {
            (name.as_str(), TensorView::new(Dtype::F32, self.tensors[name].clone(), bytes).unwrap())
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        safetensors::serialize_to_file(tensors, None, &path).unwrap();
        (folder, path)
    }

    fn encoder(&self, device: Device) -> Arc<dyn Encoder> {
        self.encoder_in(device, Precision::F32)
    }

    fn encoder_in(&self, device: Device, precision: Precision) -> Arc<dyn Encoder> {
        self.load_in(device, precision).unwrap()
    }

    fn load_in(&self, device: Device, precision: Precision) -> Result<Arc<dyn Encoder>, ModelError> {
        let (_folder, path) = self.write();
        let (config, mut file) = (self.config(), WeightFile::open(&path).unwrap());
        let has_head = self.cases.iter().any(|case| case.logit.is_some());
        let weights = if has_head { config.load_with_head(&mut file) } else { config.load(&mut file) };
        device.encoder(weights.unwrap(), precision)
    }
}

/// Runs `work` in a pool with this many threads, because kernels share their work among them.
fn on<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

fn rows_of(encoder: &Arc<dyn Encoder>, batch: &Ragged) -> Vec<f32> {
    encoder.forward(batch, Wanted::Rows, &Here)
}

fn largest_difference<'a>(got: &[f32], want: impl IntoIterator<Item = &'a f64>) -> f64 {
    let differences = got.iter().zip(want).map(|(got, want)| (f64::from(*got) - want).abs());
    // A value that is not a number differs by more than anything.
    differences.map(|difference| if difference.is_nan() { f64::INFINITY } else { difference }).fold(0.0, f64::max)
}

/// How far a number of a row may be off on a device that sums in f32 what it multiplies in f32.
const OFF: f64 = 1e-4;
/// The same where matrix units round the factors to the 10 bits of TF32 or f16: it measures up to .006 on an H200.
#[cfg(feature = "cuda")]
const OFF_IN_TF32: f64 = 1e-2;

fn most_off(device: Device) -> f64 {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda => OFF_IN_TF32,
        _ => OFF,
    }
}

fn is_that_of_transformers(device: Device, threads: usize) {
    let mut off = Vec::new();
    for model in models() {
        let encoder = model.encoder(device);
        let hidden = encoder.hidden_size();
        let batch = Ragged::from_pairs(model.cases.iter().map(|case| (case.ids.as_slice(), case.first)));
        let rows = on(threads, || rows_of(&encoder, &batch));
        assert_eq!(rows.len(), batch.token_count() * hidden);
        let mut worst = 0f64;
        for (case, sequence) in model.cases.iter().zip(&batch.sequences) {
            let rows = &rows[sequence.start * hidden..sequence.end * hidden];
            for (&at, want) in case.at.iter().zip(&case.rows) {
                worst = worst.max(largest_difference(&rows[at * hidden..(at + 1) * hidden], want));
            }
            let mut mean = vec![0f32; hidden];
            for row in rows.chunks_exact(hidden) {
                for (mean, value) in mean.iter_mut().zip(row) {
                    *mean += value / case.ids.len() as f32;
                }
            }
            worst = worst.max(largest_difference(&mean, &case.mean));
        }
        worst = worst.max(of_pooled_rows(&model, &encoder, &batch, &rows, threads));
        println!("{} on {device}, {threads} threads: off by at most {worst:e}", model.name);
        if worst >= most_off(device) {
            off.push((model.name, worst));
        }
    }
    assert!(off.is_empty(), "on {device}: {off:?}");
}

/// How far vectors and scores are from what the rows and transformers say.
fn of_pooled_rows(model: &Model, encoder: &Arc<dyn Encoder>, batch: &Ragged, rows: &[f32], threads: usize) -> f64 {
    let hidden = encoder.hidden_size();
    let off = |wanted, want: &[f64]| {
        let got = on(threads, || encoder.forward(batch, wanted, &Here));
        assert_eq!(got.len(), want.len());
        largest_difference(&got, want)
    };
    let rows: Vec<f64> = rows.iter().map(|&value| f64::from(value)).collect();
    let of_text = |sequence: &Range<usize>| rows[sequence.start * hidden..sequence.end * hidden].chunks_exact(hidden);
    let first = batch.sequences.iter().flat_map(|sequence| of_text(sequence).next().unwrap().to_vec());
    let sum =
        |sequence| (0..hidden).map(move |at| of_text(sequence).map(|row| row[at]).sum::<f64>()).collect::<Vec<_>>();
    let sums: Vec<f64> = batch.sequences.iter().flat_map(sum).collect();
    let mut worst = off(Wanted::Vector(Pooling::Cls), &first.collect::<Vec<f64>>());
    // A sum of many rows is off by more than a row.
    worst = worst.max(off(Wanted::Vector(Pooling::Mean), &sums) / 10.0);
    let logits: Vec<f64> = model.cases.iter().filter_map(|case| case.logit).collect();
    if !logits.is_empty() {
        worst = worst.max(off(Wanted::Score, &logits));
    }
    worst
}

#[test]
fn kernels_are_those_of_transformers() {
    is_that_of_transformers(Device::Cpu, 1);
    is_that_of_transformers(Device::Cpu, 3);
}

#[test]
fn composed_operations_are_those_of_transformers() {
    is_that_of_transformers(Device::CpuPlain, 1);
}

#[cfg(feature = "ndarray")]
#[test]
fn ndarray_is_that_of_transformers() {
    is_that_of_transformers(Device::NdArray, 1);
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_is_that_of_transformers() {
    is_that_of_transformers(Device::Wgpu, 1);
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_is_that_of_transformers() {
    is_that_of_transformers(Device::Cuda, 1);
}

#[test]
fn kernels_and_composed_operations_agree_on_ragged_batches() {
    agrees_with_the_kernels(Device::CpuPlain);
}

#[cfg(feature = "ndarray")]
#[test]
fn ndarray_agrees_on_ragged_batches() {
    agrees_with_the_kernels(Device::NdArray);
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_agrees_on_ragged_batches() {
    agrees_with_the_kernels(Device::Wgpu);
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_agrees_on_ragged_batches() {
    agrees_with_the_kernels(Device::Cuda);
}

fn agrees_with_the_kernels(device: Device) {
    for model in models() {
        let (fast, plain) = (model.encoder(Device::Cpu), model.encoder(device));
        // The longest sequence has more queries than a block of composed attention and more keys than one of the kernel.
        for lengths in [&[1usize][..], &[2, 33, 1, 150, 299], &[31, 32, 33], &[317]] {
            let ids: Vec<Vec<u32>> = lengths
                .iter()
                .map(|&length| (0..length as u32).map(|at| (at * 7 + at / 5 + length as u32) % 60).collect())
                .collect();
            let batch = Ragged::from_sequences(ids.iter().map(Vec::as_slice));
            let want: Vec<f64> = rows_of(&plain, &batch).into_iter().map(f64::from).collect();
            for threads in [1, 2] {
                let got = on(threads, || rows_of(&fast, &batch));
                let off = largest_difference(&got, &want);
                let most = most_off(device) / 2.0;
                assert!(got.len() == want.len() && off < most, "{} {lengths:?}: off by {off:e}", model.name);
            }
        }
        assert!(rows_of(&fast, &Ragged::default()).is_empty() && rows_of(&plain, &Ragged::default()).is_empty());
    }
}

/// Two pools, used in turns.
struct Turns([rayon::ThreadPool; 2], AtomicUsize);

impl Place for Turns {
    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send)) {
        self.0[self.1.fetch_add(1, Ordering::Relaxed) % 2].install(|| work(&|| true));
    }
}

#[test]
fn a_pass_that_moves_from_place_to_place_gives_the_same_rows() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for model in models() {
        let encoder = model.encoder(Device::Cpu);
        let layers = model.config().shape.layers;
        for length in [9, 130] {
            let ids: Vec<u32> = (0..length).map(|at| (at * 7 + at / 5) % 60).collect();
            let batch = Ragged::from_sequences([&ids[..]]);
            let turns = Turns([pool(3), pool(1)], AtomicUsize::new(0));
            assert_eq!(
                encoder.forward(&batch, Wanted::Rows, &turns),
                on(1, || rows_of(&encoder, &batch)),
                "{}",
                model.name
            );
            assert_eq!(turns.1.into_inner(), layers, "{}: it stays where it is told to leave", model.name);
        }
    }
}

/// Counts pauses.
struct Counted(AtomicUsize);

impl Place for Counted {
    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send)) {
        work(&|| false);
    }

    fn pause(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_long_text_pauses_within_a_layer() {
    let pausing: Vec<Model> =
        models().into_iter().filter(|model| ["bert", "modernbert"].contains(&model.name.as_str())).collect();
    assert_eq!(pausing.len(), 2);
    for model in pausing {
        let (encoder, layers) = (model.encoder(Device::Cpu), model.config().shape.layers);
        let ids: Vec<u32> = (0..300).map(|at| at % 60).collect();
        let place = Counted(AtomicUsize::new(0));
        on(1, || encoder.forward(&Ragged::from_sequences([&ids[..]]), Wanted::Rows, &place));
        // Each layer has four products of at least four blocks, and four tiles of attention, or more where it looks through a window.
        let (pauses, least) = (place.0.into_inner(), layers * 5 * 4);
        assert!(pauses >= least, "{}: {pauses} pauses, at least {least} are wanted", model.name);
        assert!(model.name != "bert" || pauses == least, "{pauses} pauses");
    }
}

/// The smallest cosine of a row with its row in f32. Rows are compared by their directions, as a search compares them.
fn worst_cosine(got: &[f32], want: &[f32], hidden: usize) -> f64 {
    let cosine = |left: &[f32], right: &[f32]| {
        let dot = |left: &[f32], right: &[f32]| left.iter().zip(right).map(|(x, y)| f64::from(x * y)).sum::<f64>();
        dot(left, right) / (dot(left, left) * dot(right, right)).sqrt()
    };
    assert_eq!(got.len(), want.len());
    let rows = got.chunks_exact(hidden).zip(want.chunks_exact(hidden));
    rows.map(|(got, want)| cosine(got, want))
        .map(|cosine| if cosine.is_nan() { -1.0 } else { cosine })
        .fold(1.0, f64::min)
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_in_bf16_stays_close_to_f32_or_is_refused() {
    stays_close_in_bf16(Device::Wgpu);
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_in_bf16_stays_close_to_f32() {
    stays_close_in_bf16(Device::Cuda);
}

/// Many drivers of Vulkan cannot compute in bf16, so wgpu may refuse it.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn stays_close_in_bf16(device: Device) {
    for model in models() {
        let batch = Ragged::from_pairs(model.cases.iter().map(|case| (case.ids.as_slice(), case.first)));
        let want = rows_of(&model.encoder(Device::Cpu), &batch);
        match model.load_in(device, Precision::Bf16) {
            Ok(encoder) => {
                let got = rows_of(&encoder, &batch);
                assert_ne!(got, want, "{}: bf16 is no other than f32", model.name);
                let worst = worst_cosine(&got, &want, encoder.hidden_size());
                println!("{} in bf16 on {device}: cosine of at least {worst}", model.name);
                assert!(worst >= 0.998, "{} in bf16 on {device}: a cosine of {worst}", model.name);
            }
            Err(error) => {
                println!("{device}: {error}");
                assert!(device.to_string() == "wgpu" && error.to_string().contains("take f32"), "{error}");
            }
        }
    }
}

#[test]
fn lower_precisions_stay_close_to_f32() {
    for model in models() {
        let batch = Ragged::from_pairs(model.cases.iter().map(|case| (case.ids.as_slice(), case.first)));
        let want = rows_of(&model.encoder(Device::Cpu), &batch);
        // A processor that multiplies pairs of bf16 rounds the rows too: the worst row measures 0.99988, that of NomicBERT.
        for (precision, least) in [(Precision::Bf16, 0.9998), (Precision::Int8, 0.999)] {
            let encoder = model.encoder_in(Device::Cpu, precision);
            let (got, shared) = (on(1, || rows_of(&encoder, &batch)), on(3, || rows_of(&encoder, &batch)));
            assert_eq!(got, shared, "{}: {precision} depends on the threads", model.name);
            assert_ne!(got, want, "{}: {precision} is no other than f32", model.name);
            let worst = worst_cosine(&got, &want, encoder.hidden_size());
            println!("{} in {precision}: cosine of at least {worst}", model.name);
            assert!(worst >= least, "{} in {precision}: a cosine of {worst}", model.name);
        }
    }
}

#[test]
fn a_mapped_pack_gives_the_rows_of_the_file_whatever_becomes_of_either() {
    for model in models() {
        let (folder, path) = model.write();
        let packs = folder.path().join("packs");
        let load = || {
            let config = model.config();
            Packs::load(Some(&Packs::in_folder(&packs)), &path, b"", |file| config.load(file)).unwrap()
        };
        let batch = Ragged::from_sequences(model.cases.iter().map(|case| case.ids.as_slice()));
        let (read, of_file) = load();
        let want = rows_of(&Device::Cpu.encoder(read, Precision::F32).unwrap(), &batch);
        let (mapped, of_pack) = load();
        assert_eq!(of_file, of_pack);
        let fast = Device::Cpu.encoder(mapped, Precision::F32).unwrap();
        let plain = Device::CpuPlain.encoder(load().0, Precision::F32).unwrap();
        // A running encoder keeps what it has.
        fs::File::options().write(true).open(&path).unwrap().set_len(8).unwrap();
        fs::remove_dir_all(&packs).unwrap();
        assert_eq!(rows_of(&fast, &batch), want, "{}", model.name);
        let want: Vec<f64> = want.into_iter().map(f64::from).collect();
        assert!(largest_difference(&rows_of(&plain, &batch), &want) < 5e-5, "{}", model.name);
    }
}

#[test]
fn rotary_models_go_beyond_a_block_of_keys() {
    for mut model in models().into_iter().filter(|model| ["nomic_bert", "modernbert"].contains(&model.name.as_str())) {
        for key in ["n_positions", "max_position_embeddings"] {
            if model.config.get(key).is_some() {
                model.config[key] = json!(2048);
            }
        }
        let ids: Vec<u32> = (0..1300).map(|at| (at * 7 + at / 5) % 60).collect();
        let batch = Ragged::from_sequences([&ids[..], &ids[..40]]);
        let want: Vec<f64> = rows_of(&model.encoder(Device::CpuPlain), &batch).into_iter().map(f64::from).collect();
        let off = largest_difference(&on(2, || rows_of(&model.encoder(Device::Cpu), &batch)), &want);
        assert!(off < 5e-5, "{}: off by {off:e}", model.name);
    }
}

#[test]
fn what_a_config_asks_for_and_is_not_built_is_refused() {
    let refused = |name: &str, key: &str, value: serde_json::Value, wanted: &str| {
        let mut model = models().into_iter().find(|model| model.name == name).unwrap();
        model.config[key] = value;
        let json = model.config.to_string();
        let result = EncoderConfig::from_json(model.architecture(), json.as_bytes(), Path::new("config.json"));
        let error = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(wanted), "{wanted:?} is not said in {error:?}");
    };
    refused("nomic_bert", "rotary_scaling_factor", json!(2.0), "scaled rotary");
    refused("nomic_bert", "rotary_emb_fraction", json!(0.5), "part of a head");
    refused("nomic_bert", "rotary_emb_interleaved", json!(true), "interleaved");
    refused("nomic_bert", "prenorm", json!(true), "before a sublayer");
    refused("nomic_bert", "qkv_proj_bias", json!(true), "bias");
    refused("nomic_bert", "activation_function", json!("gelu"), "gelu");
    refused("nomic_bert", "rotary_emb_base", json!(0.0), "base of its rotary positions is 0");
    refused("nomic_bert", "n_head", json!(16), "even width");
    refused("nomic_bert", "n_embd", json!(null), "hidden_size is 0");
    refused("modernbert", "hidden_activation", json!("silu"), "silu");
    refused("modernbert", "hidden_size", json!(10_000_000), "a table of rotations of gigabytes");
    refused("modernbert", "norm_bias", json!(true), "bias");
    refused("modernbert", "layer_types", json!(["full_attention"]), "1 layer_types for 4 layers");
    refused("modernbert", "layer_types", json!(["chunked", "chunked", "chunked", "chunked"]), "chunked");
    refused("modernbert", "rope_parameters", json!({"full_attention": {"rope_type": "yarn"}}), "scaled rotary");
    refused("mpnet", "relative_attention_num_buckets", json!(3), "relative_attention_num_buckets is 3");
    refused("mpnet", "max_position_embeddings", json!(2), "max_position_embeddings is 0");
    refused("mpnet", "hidden_act", json!("relu"), "relu");
}

#[test]
fn modernbert_is_read_from_configs_of_before_and_after_transformers_5() {
    let after = models().into_iter().find(|model| model.name == "modernbert").unwrap();
    let mut before = models().into_iter().find(|model| model.name == "modernbert").unwrap();
    let config = before.config.as_object_mut().unwrap();
    config.remove("layer_types");
    config.remove("rope_parameters");
    for (key, value) in
        [("global_attn_every_n_layers", 3.0), ("global_rope_theta", 160_000.0), ("local_rope_theta", 10_000.0)]
    {
        config.insert(key.to_owned(), if key.contains("theta") { json!(value) } else { json!(value as u32) });
    }
    let batch = Ragged::from_sequences([&after.cases[3].ids[..]]);
    let rows = |model: &Model| rows_of(&model.encoder(Device::Cpu), &batch);
    assert_eq!(rows(&before), rows(&after));
    before.config["local_attention"] = json!(64);
    assert_ne!(rows(&before), rows(&after));
}
