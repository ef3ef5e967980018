//! Debug
use uvmsim_engine::g10::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t = uvmsim_trace::g10::import(a[1].as_ref(), &a[2], a[3].parse().unwrap()).unwrap();
    let o = run(&t, Policy::FlashNeuron, &Machine::default()).unwrap();
    let i = run(&t, Policy::Ideal, &Machine::default()).unwrap();
    for (k, (c, d)) in o.kernel_cycles.iter().zip(&i.kernel_cycles).enumerate() {
        println!(
            "{} {:.6} {}",
            k,
            (*c as f64 - *d as f64) / *d as f64,
            t.kernels[k].name
        );
    }
}
