//! Debug: one cell. Args: dir net batch policy [host] [pcie] [ssd] [err]
use uvmsim_engine::g10::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t = uvmsim_trace::g10::import(a[1].as_ref(), &a[2], a[3].parse().unwrap()).unwrap();
    let p = Policy::ALL
        .into_iter()
        .find(|p| p.as_str() == a[4])
        .unwrap();
    let mut m = Machine::default();
    if let Some(x) = a.get(5) {
        m.host_gib = x.parse().unwrap();
    }
    if let Some(x) = a.get(6) {
        m.pcie_gbps = x.parse().unwrap();
    }
    if let Some(x) = a.get(7) {
        m.ssd_gbps = x.parse().unwrap();
    }
    if let Some(x) = a.get(8) {
        m.time_error = x.parse().unwrap();
        m.seed = Machine::artifact_seed(&a[2]);
    }
    let s = std::time::Instant::now();
    match run(&t, p, &m) {
        Ok(o) => {
            for r in &o.records {
                println!("{r}");
            }
            eprintln!(
                "{} {} {} step {} norm {:.4} {:.2?} {:?}",
                a[2],
                a[3],
                a[4],
                o.step_cycles,
                o.normalized(),
                s.elapsed(),
                o.traffic
            );
        }
        Err(e) => eprintln!("{} {} {} {e} {:.2?}", a[2], a[3], a[4], s.elapsed()),
    }
}
