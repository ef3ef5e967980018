// SPDX-License-Identifier: GPL-2.0-only OR MIT

use proptest::prelude::*;
use uvmsim_trace::testing::g10_traces;
use uvmsim_trace::Kernel;

use super::*;

/// What a kernel takes where all is resident, where its outputs fault, and where all does.
fn times(k: &Kernel) -> [u64; 3] {
    [Some(k.duration_ns), k.out_fault_ns, k.all_fault_ns].map(Option::unwrap)
}

/// Counts, totals and peaks that an independent reading of the artifact gave.
#[test]
fn g10_imports_have_the_artifacts_tensors_and_kernels() {
    let Some(dir) = g10_traces() else { return };
    let gib = |b: u64| b as f64 / f64::from(1u32 << 30);
    // Network, batch, tensors, kernels, total, weights and largest working set in GiB.
    let cases = [
        ("BERT", 256, 1463, 1369, 148.0, 16.60, 2.25),
        ("VIT", 512, 1563, 1489, 0.0, 0.0, 0.0),
        ("Inceptionv3", 1536, 2171, 929, 787.8, 0.09, 31.65),
        ("ResNet152", 1280, 3330, 1299, 1086.2, 0.23, 15.31),
        ("SENet154", 256, 0, 2319, 463.9, 1.30, 6.13),
        ("BERT", 512, 0, 1369, 295.3, 32.82, 4.50),
        ("Inceptionv3", 1280, 0, 929, 656.9, 0.09, 26.38),
        ("ResNet152", 256, 0, 1299, 229.9, 0.23, 3.06),
    ];
    for (net, batch, tensors, kernels, total, weights, largest) in cases {
        let t = import(&dir, net, batch).unwrap();
        assert_eq!(t.kernels.len(), kernels, "{net} {batch}");
        if tensors > 0 {
            assert_eq!(t.tensors.len(), tensors, "{net} {batch}");
        }
        if total > 0.0 {
            let sum = gib(t.tensors.iter().map(|t| t.bytes).sum());
            let set = gib(t.kernels.iter().map(|k| t.working_set(k)).max().unwrap());
            assert!((sum - total).abs() < 0.051, "{net} {batch}: {sum}");
            let learned = gib(t.bytes_of(Kind::Weight));
            assert!(
                (learned - weights).abs() < 0.006,
                "{net} {batch}: {learned}"
            );
            assert!((set - largest).abs() < 0.006, "{net} {batch}: {set}");
        }
        let again: Trace = t.to_string().parse().unwrap();
        assert_eq!(again.to_string(), t.to_string());
    }
}

/// A folder of BERT's graph and of times for some batches, which is gone at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str, graph: &str) -> Self {
        let name = format!("uvmsim-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(dir.join("Nets")).unwrap();
        std::fs::create_dir_all(dir.join("results/BERT_Base")).unwrap();
        std::fs::write(dir.join("Nets/BERT_Base.txt"), graph).unwrap();
        Self(dir)
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join("results/BERT_Base").join(file), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Between two batches and outside of them a kernel's times and workspace are on their
/// line, and never less than nothing.
#[test]
fn g10_times_of_other_batches_are_on_a_line() {
    let f = Folder::new(
        "line",
        "300 Relu 1 301 2 99 4\n-----\n302 Relu 1 300 2 99 4\n-----\n",
    );
    let import = |batch| import_between(&f.0, "bert", batch);
    let text = std::fs::read_to_string(f.0.join("Nets/BERT_Base.txt")).unwrap();
    let kernels = graph(&text, true, 1).unwrap().kernels.len();
    let column = |value: &str, unit: &str| -> String {
        let lines = (0..kernels).map(|i| format!("{i} {value} {unit}\n"));
        lines.collect()
    };
    // Milliseconds of the three kinds, and bytes of scratch.
    let write = |batch: u64, ms: [&str; 3], scratch: &str| {
        for (suffix, ms) in ["", "InputPF", "PF"].iter().zip(ms) {
            f.write(&format!("cudnn{batch}{suffix}.txt"), &column(ms, "ms"));
        }
        let bytes = column(scratch, "B");
        f.write(&format!("cudnn{batch}Workspace.txt"), &bytes);
    };
    write(10, ["1", "2", "3"], "8192");
    let e = import(20).unwrap_err().to_string();
    assert!(e.contains("there is [10]"), "{e}");
    write(20, ["2", "2.5", "5"], "4096");
    write(40, ["8", "2.5", "9"], "4096");
    let times = |batch| {
        let t = import(batch).unwrap();
        let scratch = t.bytes_of(Kind::Workspace) / kernels as u64;
        (times(&t.kernels[1]), scratch, t.meta("source").to_string())
    };
    let line = |a, b| format!("g10, times on the line through those of batches {a} and {b}");
    let ms = |t: [f64; 3]| t.map(|ms| (ms * 1e6) as u64);
    assert_eq!(times(15), (ms([1.5, 2.25, 4.0]), 8192, line(10, 20)));
    assert_eq!(times(30), (ms([5.0, 2.5, 7.0]), 4096, line(20, 40)));
    assert_eq!(times(60), (ms([14.0, 2.5, 13.0]), 4096, line(20, 40)));
    assert_eq!(times(5), (ms([0.5, 1.75, 2.0]), 12288, line(10, 20)));
    assert_eq!(times(40), (ms([8.0, 2.5, 9.0]), 4096, "g10".into()));
    // The time of one kernel that falls with the batch would be below nothing at 60.
    write(20, ["9", "2.5", "5"], "4096");
    assert_eq!(times(60).0[0], 7_000_000);
    write(40, ["1", "2.5", "9"], "0");
    assert_eq!((times(60).0[0], times(60).1), (1, 0));
}

/// The artifact's BERT at 384 samples is on the line through 256 and 512, to the digits
/// that it prints.
#[test]
fn g10_batches_that_the_artifact_interpolated_come_out_alike() {
    let Some(dir) = g10_traces() else { return };
    let graph = std::fs::read_to_string(dir.join("Nets/BERT_Base.txt")).unwrap();
    let f = Folder::new("bert", &graph);
    for batch in [256, 512] {
        for suffix in ["", "InputPF", "PF", "Workspace"] {
            let name = format!("cudnn{batch}{suffix}.txt");
            let text = std::fs::read_to_string(dir.join("results/BERT_Base").join(&name));
            f.write(&name, &text.unwrap());
        }
    }
    let made = import_between(&f.0, "BERT", 384).unwrap();
    let theirs = import(&dir, "BERT", 384).unwrap();
    assert!(made.tensors == theirs.tensors);
    for (a, b) in made.kernels.iter().zip(&theirs.kernels) {
        let [ours, artifacts] = [a, b].map(times);
        let near = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= 1;
        assert!(ours.iter().zip(&artifacts).all(near), "{a:?} {b:?}");
    }
}

proptest! {
    /// Graphs made of the words of graphs, and of noise, are errors, not panics.
    #[test]
    fn no_graph_makes_the_importer_panic(
        operators in any::<bool>(),
        s in "(([0-9]{1,3}|Dot|Add|Divide|GatherV2|SoftmaxBasic|Power|-----)[ \n]){0,40}|((\\(a\\): )?(Net|Bottleneck|SENetUnit|InceptionA|InceptionE|Add)\\(\n|\\)\n|\\(c\\): Conv2d\\([0-9]{1,2}, [0-9]{1,2}, kernel_size=\\([0-9], [0-9]\\), stride=\\([0-9], 1\\)\\)\n|\\(b\\): BatchNorm2d\\(3\\)\n|\\(l\\): Linear\\(in_features=[0-9], out_features=9, bias=True\\)\n|\\(p\\): MaxPool2d\\(kernel_size=[0-9], stride=[0-9]\\)\n){0,12}"
    ) {
        let _ = graph(&s, operators, 4);
    }
}
